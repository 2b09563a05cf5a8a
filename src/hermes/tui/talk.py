"""The order of a conversation: what is said now, what waits, and how it is ended."""

from collections import deque
from typing import Protocol

from hermes.kit.ids import new_id
from hermes.schema.errors import HermesError
from hermes.schema.messages import Text
from hermes.tui.backroom import Backroom
from hermes.tui.companion import (
    CANCELLED,
    Back,
    Bye,
    Companion,
    OnScreen,
    Parts,
    Shown,
    Speak,
    Words,
)
from hermes.tui.meanwhile import Manner, manner_of, meant


class Stage(Protocol):
    """What a conversation is shown on."""

    async def show_said(self, text: str) -> None: ...

    async def show_note(self, text: str, kind: str, typed: str = "") -> None:
        """`typed` is the command that it replies to."""
        ...

    async def show_reply(self, reply: Shown, typed: str) -> None: ...

    async def show_back(self, told: str, typed: str) -> None:
        """The talk goes on in another session, which has a past."""
        ...

    async def adjust(self, wish: OnScreen, typed: str) -> None:
        """Do something with the screen itself."""
        ...

    def take_back(self, turns: int) -> None:
        """The last turns of this session count no more."""
        ...

    async def run_turn(self, parts: Parts) -> None:
        """From the first event to the last. Raises what went wrong."""
        ...

    def give_back(self, text: str) -> None:
        """Put it where it can be edited."""
        ...

    def changed(self) -> None: ...

    def leave(self) -> None: ...


class Talk:
    def __init__(
        self, companion: Companion, backroom: Backroom, aside: Backroom, stage: Stage
    ) -> None:
        """Turns and commands are waited for by `backroom`; `aside` is free meanwhile."""
        self._companion = companion
        self._backroom = backroom
        self._aside = aside
        self._stage = stage
        self._waiting: deque[str] = deque()
        self._urgent = 0
        """How many of those that wait are to be said before the others."""
        self._steering: dict[str, str] = {}
        """Words that the turn has not heard yet, by their ids."""
        self._passed: set[str] = set()
        self._turning = False
        self._given_up = False
        self.open = False
        """Whether there is somebody to talk to; what is said before that waits."""
        self.busy = False

    @property
    def queued(self) -> tuple[str, ...]:
        return tuple(self._waiting)

    @property
    def steering(self) -> tuple[str, ...]:
        return tuple(self._steering.values())

    @property
    def usual(self) -> Manner:
        """What is done with words that are said meanwhile, unless they say so themselves."""
        return manner_of(self._companion.now.busy)

    def add(self, line: str, manner: Manner | None = None) -> None:
        """To be said now; or, while something goes on, as `manner` or the usual one has it."""
        if not self.busy:
            self._waiting.append(line)
            self._stage.changed()
            return
        manner, words = meant(line, manner or self.usual)
        match manner:
            case Manner.INTERRUPT if words:
                self._hasten(words)
                self._companion.interrupt()
            case Manner.INTERRUPT:
                self.interrupt()
            case Manner.STEER if self._turning:
                self._steering[new_id("msg")] = words
            case Manner.STEER | Manner.QUEUE | Manner.COLLECT:
                self._waiting.append(words)
        self._stage.changed()

    def heard(self, word: str) -> str | None:
        """The turn has heard this: what it was, if it was said here."""
        return self._steering.pop(word, None)

    def _hasten(self, line: str) -> None:
        """Before all that waits, but after what was hastened before it."""
        self._waiting.insert(self._urgent, line)
        self._urgent += 1

    def take_back(self) -> str | None:
        """The last line that waits."""
        line = self._waiting.pop() if self._waiting else None
        self._urgent = min(self._urgent, len(self._waiting))
        self._stage.changed()
        return line

    def interrupt(self) -> None:
        """End what is going on. What waits is given back, not said; what is added later is."""
        self._given_up = True
        if self._waiting:
            self._stage.give_back("\n".join(self._waiting))
            self._waiting.clear()
            self._urgent = 0
            self._stage.changed()
        if self.open:
            self._companion.interrupt()

    async def begin(self) -> None:
        """Somebody is there: what was said before is heard now."""
        self.open = True
        await self.go_on()

    async def go_on(self) -> None:
        """Say what waits, one after the other, until nothing does."""
        if not self.open:
            return
        if self.busy:
            await self._pass_on()
            return
        self.busy = True
        try:
            while self._waiting:
                await self._guarded(self._next())
        finally:
            self.busy = False
            self._stage.changed()

    async def attend(self) -> None:
        """Ask about what came in by itself, if anything did."""
        if self.busy or not self.open:
            return
        self.busy = True
        try:
            if await self._backroom.do(self._companion.news):
                await self._turn(())
        except HermesError as error:
            await self._tell(error)
        finally:
            self.busy = False
            self._stage.changed()
        await self.go_on()

    def _next(self) -> str:
        """What is said next: one line, or all of them up to a command."""
        lines = [self._waiting.popleft()]
        if self.usual is Manner.COLLECT and not _is_command(lines[0]):
            while self._waiting and not _is_command(self._waiting[0]):
                lines.append(self._waiting.popleft())
        self._urgent = max(self._urgent - len(lines), 0)
        return "\n".join(lines)

    async def _pass_on(self) -> None:
        """Bring to the turn what it has not been told yet."""
        for word, text in list(self._steering.items()):
            if word not in self._passed:
                self._passed.add(word)
                try:
                    await self._aside.do(lambda at=word, said=text: self._steer(at, said))
                except HermesError as error:
                    await self._tell(error)

    def _steer(self, word: str, text: str) -> None:
        self._companion.steer(word, text)

    async def _guarded(self, line: str) -> None:
        self._stage.changed()
        try:
            await self._obey(line)
        except HermesError as error:
            await self._tell(error, line if _is_command(line) else "")

    async def _tell(self, error: HermesError, typed: str = "") -> None:
        if error.code == CANCELLED:
            await self._stage.show_note("Interrupted.", "warning")
        else:
            hint = f"\n{error.hint}" if error.hint else ""
            await self._stage.show_note(f"{error}{hint}", "error", typed)

    async def _obey(self, line: str) -> None:
        # Only what begins with a slash can be a command; whether it is one, others know.
        if not _is_command(line):
            await self._say((Text(line),), line)
            return
        done = await self._backroom.do(lambda: self._companion.command(line))
        match done:
            case Words():
                await self._say((Text(line),), line)
            case Shown():
                self._stage.take_back(done.undone)
                await self._stage.show_reply(done, line)
            case Back(told=told):
                await self._stage.show_back(told, line)
            case Speak(parts=parts, told=told, undone=undone):
                self._stage.take_back(undone)
                shown = " ".join(part.text for part in parts if isinstance(part, Text))
                # The whole text of a skill is not what somebody typed.
                typed = not shown or (told and "\n" in shown)
                if told or not typed:
                    await self._stage.show_note(told, "reply", "" if typed else line)
                await self._say(parts, line if typed else shown)
            case OnScreen():
                await self._stage.adjust(done, line)
            case Bye():
                self._stage.leave()

    async def _say(self, parts: Parts, shown: str) -> None:
        await self._stage.show_said(shown)
        await self._turn(parts)

    async def _turn(self, parts: Parts) -> None:
        """What the turn did not hear is said after it, or given back when it was given up."""
        self._turning, self._given_up = True, False
        try:
            await self._stage.run_turn(parts)
        finally:
            self._turning = False
            unheard = list(self._steering.values())
            self._steering.clear()
            self._passed.clear()
            if unheard and self._given_up:
                self._stage.give_back("\n".join(unheard))
            else:
                self._waiting.extendleft(reversed(unheard))
                self._urgent += len(unheard)
            self._stage.changed()


def _is_command(line: str) -> bool:
    return line.lstrip().startswith("/")
