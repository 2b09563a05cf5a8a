"""Event listeners: collect the answer, or print events as JSON."""

from typing import TextIO

import msgspec

from hermes.schema.events import Event, MessageAdded, Notice, RunEnded
from hermes.schema.messages import Message


class Listener:
    """Collects messages and the end of a run; subclasses show events."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self.messages: list[Message] = []
        self.ended: RunEnded | None = None
        self.refused = False
        """Something was not done because no one could be asked."""

    def __call__(self, event: Event) -> None:
        if isinstance(event, MessageAdded):
            self.messages.append(event.message)
        elif isinstance(event, RunEnded):
            self.ended = event
        elif isinstance(event, Notice):
            self.refused = self.refused or event.refused
        self.show(event)

    def show(self, event: Event) -> None:
        """Show nothing; the answer is printed at the end."""


class AnswerListener(Listener):
    """Prints notices to stderr if it is a terminal, and always what was refused."""

    def show(self, event: Event) -> None:
        if isinstance(event, Notice) and (event.refused or self._out.isatty()):
            self._out.write(f"hermes: {event.text}\n")
            self._out.flush()


class JsonListener(Listener):
    """Prints every event as one line of JSON."""

    def show(self, event: Event) -> None:
        line = msgspec.json.encode(event)
        if b"\n" in line:
            # Tool call arguments are the model's raw JSON and may contain line breaks.
            line = msgspec.json.format(line, indent=-1)
        self._out.write(line.decode() + "\n")
        self._out.flush()
