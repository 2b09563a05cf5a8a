"""The order of a conversation: what is said now, what waits, and how it is ended."""

from collections import deque
from typing import Protocol

from hermes.schema.errors import HermesError
from hermes.schema.messages import Text
from hermes.tui.companion import (
    CANCELLED,
    GONE,
    Bye,
    Companion,
    Parts,
    Shown,
    Speak,
    Words,
)
from hermes.tui.errands import Errands


class Stage(Protocol):
    """What a conversation is shown on."""

    async def show_said(self, text: str) -> None: ...

    async def show_note(self, text: str, kind: str) -> None: ...

    async def show_reply(self, reply: Shown) -> None: ...

    async def run_turn(self, parts: Parts) -> None:
        """From the first event to the last. Raises what went wrong."""
        ...

    def give_back(self, text: str) -> None:
        """Put it where it can be edited."""
        ...

    def changed(self) -> None: ...

    def leave(self, trouble: HermesError | None) -> None: ...


class Talk:
    def __init__(self, companion: Companion, errands: Errands, stage: Stage) -> None:
        self._companion = companion
        self._errands = errands
        self._stage = stage
        self._waiting: deque[str] = deque()
        self.busy = False

    @property
    def queued(self) -> tuple[str, ...]:
        return tuple(self._waiting)

    def add(self, line: str, *, at_once: bool = False) -> None:
        """To be said after what is going on, or instead of it."""
        if at_once:
            self._waiting.appendleft(line)
            if self.busy:
                self._companion.interrupt()
        else:
            self._waiting.append(line)
        self._stage.changed()

    def take_back(self) -> str | None:
        """The last line that waits."""
        line = self._waiting.pop() if self._waiting else None
        self._stage.changed()
        return line

    def interrupt(self) -> None:
        """End what is going on. What waits is given back, not said; what is added later is."""
        if self._waiting:
            self._stage.give_back("\n".join(self._waiting))
            self._waiting.clear()
            self._stage.changed()
        self._companion.interrupt()

    async def go_on(self) -> None:
        """Say what waits, one after the other, until nothing does."""
        if self.busy:
            return
        self.busy = True
        try:
            while self._waiting:
                line = self._waiting.popleft()
                await self._guarded(line)
        finally:
            self.busy = False
            self._stage.changed()

    async def attend(self) -> None:
        """Ask about what came in by itself, if anything did."""
        if self.busy:
            return
        self.busy = True
        try:
            if await self._errands.do(self._companion.news):
                await self._stage.run_turn(())
        except HermesError as error:
            await self._tell(error)
        finally:
            self.busy = False
            self._stage.changed()
        await self.go_on()

    async def _guarded(self, line: str) -> None:
        self._stage.changed()
        try:
            await self._obey(line)
        except HermesError as error:
            await self._tell(error)

    async def _tell(self, error: HermesError) -> None:
        if error.code == GONE:
            self._stage.leave(error)
        elif error.code == CANCELLED:
            await self._stage.show_note("Interrupted.", "warning")
        else:
            hint = f"\n{error.hint}" if error.hint else ""
            await self._stage.show_note(f"{error}{hint}", "error")

    async def _obey(self, line: str) -> None:
        # Only what begins with a slash can be a command; whether it is one, others know.
        if not line.lstrip().startswith("/"):
            await self._say((Text(line),), line)
            return
        done = await self._errands.do(lambda: self._companion.command(line))
        match done:
            case Words():
                await self._say((Text(line),), line)
            case Shown():
                await self._stage.show_reply(done)
            case Speak(parts=parts, told=told):
                if told:
                    await self._stage.show_note(told, "reply")
                shown = " ".join(part.text for part in parts if isinstance(part, Text))
                await self._say(parts, shown or line)
            case Bye():
                self._stage.leave(None)

    async def _say(self, parts: Parts, shown: str) -> None:
        await self._stage.show_said(shown)
        await self._stage.run_turn(parts)
