"""The order of a conversation: what is said now, what waits, and how it is ended."""

from collections import deque
from typing import Protocol

from hermes.kit.ids import new_id
from hermes.schema.errors import HermesError
from hermes.schema.messages import Text
from hermes.tui.busy_mode import BusyMode, mode_of_line, parse_busy_mode
from hermes.tui.client import (
    CANCELLED,
    MessageParts,
    NotACommand,
    QuitReply,
    ResumedReply,
    ScreenReply,
    SubmitReply,
    TextReply,
    TuiClient,
)
from hermes.tui.worker import WorkerThread


class ConversationView(Protocol):
    """What a conversation is shown on."""

    async def show_user_message(self, text: str) -> None: ...

    async def show_note(self, text: str, kind: str, typed: str = "") -> None:
        """`typed` is the command that it replies to."""
        ...

    async def show_reply(self, reply: TextReply, typed: str) -> None: ...

    async def show_resumed(self, told: str, typed: str) -> None:
        """The talk goes on in another session, which has a past."""
        ...

    async def adjust(self, action: ScreenReply, typed: str) -> None:
        """Do something with the screen itself."""
        ...

    def mark_undone(self, turns: int) -> None:
        """The last turns of this session count no more."""
        ...

    async def run_turn(self, parts: MessageParts) -> None:
        """From the first event to the last. Raises what went wrong."""
        ...

    def return_text(self, text: str) -> None:
        """Put it where it can be edited."""
        ...

    def changed(self) -> None: ...

    def quit(self) -> None: ...


class ConversationController:
    def __init__(
        self,
        client: TuiClient,
        turn_worker: WorkerThread,
        side_worker: WorkerThread,
        stage: ConversationView,
    ) -> None:
        """Turns and commands are waited for by `backroom`; `aside` is free meanwhile."""
        self._client = client
        self._turn_worker = turn_worker
        self._aside = side_worker
        self._stage = stage
        self._waiting: deque[str] = deque()
        self._urgent = 0
        """How many of those that wait are to be said before the others."""
        self._steering: dict[str, str] = {}
        """Words that the turn has not heard yet, by their ids."""
        self._sent_steering: set[str] = set()
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
    def default_mode(self) -> BusyMode:
        """What is done with words that are said meanwhile, unless they say so themselves."""
        return parse_busy_mode(self._client.state.busy)

    def add(self, line: str, mode: BusyMode | None = None) -> None:
        """To be said now; or, while something goes on, as `manner` or the usual one has it."""
        if not self.busy:
            self._waiting.append(line)
            self._stage.changed()
            return
        mode, words = mode_of_line(line, mode or self.default_mode)
        match mode:
            case BusyMode.INTERRUPT if words:
                self._add_urgent(words)
                self._client.interrupt()
            case BusyMode.INTERRUPT:
                self.interrupt()
            case BusyMode.STEER if self._turning:
                self._steering[new_id("msg")] = words
            case BusyMode.STEER | BusyMode.QUEUE | BusyMode.COLLECT:
                self._waiting.append(words)
        self._stage.changed()

    def steering_received(self, word: str) -> str | None:
        """The turn has heard this: what it was, if it was said here."""
        return self._steering.pop(word, None)

    def _add_urgent(self, line: str) -> None:
        """Before all that waits, but after what was hastened before it."""
        self._waiting.insert(self._urgent, line)
        self._urgent += 1

    def pop_last(self) -> str | None:
        """The last line that waits."""
        line = self._waiting.pop() if self._waiting else None
        self._urgent = min(self._urgent, len(self._waiting))
        self._stage.changed()
        return line

    def interrupt(self) -> None:
        """End what is going on. What waits is given back, not said; what is added later is."""
        self._given_up = True
        if self._waiting:
            self._stage.return_text("\n".join(self._waiting))
            self._waiting.clear()
            self._urgent = 0
            self._stage.changed()
        if self.open:
            self._client.interrupt()

    async def start(self) -> None:
        """Somebody is there: what was said before is heard now."""
        self.open = True
        await self.run_queued()

    async def run_queued(self) -> None:
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

    async def check_news(self) -> None:
        """Ask about what came in by itself, if anything did."""
        if self.busy or not self.open:
            return
        self.busy = True
        try:
            if await self._turn_worker.run(self._client.has_news):
                await self._turn(())
        except HermesError as error:
            await self._tell(error)
        finally:
            self.busy = False
            self._stage.changed()
        await self.run_queued()

    def _next(self) -> str:
        """What is said next: one line, or all of them up to a command."""
        lines = [self._waiting.popleft()]
        if self.default_mode is BusyMode.COLLECT and not _is_command(lines[0]):
            while self._waiting and not _is_command(self._waiting[0]):
                lines.append(self._waiting.popleft())
        self._urgent = max(self._urgent - len(lines), 0)
        return "\n".join(lines)

    async def _pass_on(self) -> None:
        """Bring to the turn what it has not been told yet."""
        for word, text in list(self._steering.items()):
            if word not in self._sent_steering:
                self._sent_steering.add(word)
                try:
                    await self._aside.run(lambda at=word, said=text: self._steer(at, said))
                except HermesError as error:
                    await self._tell(error)

    def _steer(self, word: str, text: str) -> None:
        self._client.steer(word, text)

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
        done = await self._turn_worker.run(lambda: self._client.command(line))
        match done:
            case NotACommand():
                await self._say((Text(line),), line)
            case TextReply():
                self._stage.mark_undone(done.undone)
                await self._stage.show_reply(done, line)
            case ResumedReply(told=told):
                await self._stage.show_resumed(told, line)
            case SubmitReply(parts=parts, told=told, undone=undone):
                self._stage.mark_undone(undone)
                shown = " ".join(part.text for part in parts if isinstance(part, Text))
                # The whole text of a skill is not what somebody typed.
                typed = not shown or (told and "\n" in shown)
                if told or not typed:
                    await self._stage.show_note(told, "reply", "" if typed else line)
                await self._say(parts, line if typed else shown)
            case ScreenReply():
                await self._stage.adjust(done, line)
            case QuitReply():
                self._stage.quit()

    async def _say(self, parts: MessageParts, shown: str) -> None:
        await self._stage.show_user_message(shown)
        await self._turn(parts)

    async def _turn(self, parts: MessageParts) -> None:
        """What the turn did not hear is said after it, or given back when it was given up."""
        self._turning, self._given_up = True, False
        try:
            await self._stage.run_turn(parts)
        finally:
            self._turning = False
            unheard = list(self._steering.values())
            self._steering.clear()
            self._sent_steering.clear()
            if unheard and self._given_up:
                self._stage.return_text("\n".join(unheard))
            else:
                self._waiting.extendleft(reversed(unheard))
                self._urgent += len(unheard)
            self._stage.changed()


def _is_command(line: str) -> bool:
    return line.lstrip().startswith("/")
