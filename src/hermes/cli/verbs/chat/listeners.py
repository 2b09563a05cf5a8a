"""Those who hear a run on the command line: only for its answer, or to pass it on as JSON."""

from typing import TextIO

import msgspec

from hermes.schema.events import Event, MessageAdded, Notice, RunEnded
from hermes.schema.messages import Message, final_text


class Listener:
    """Keeps what the run said; the other listeners add how to show it."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.ended: RunEnded | None = None

    def __call__(self, event: Event) -> None:
        if isinstance(event, MessageAdded):
            self.messages.append(event.message)
        elif isinstance(event, RunEnded):
            self.ended = event
        self.show(event)

    def show(self, event: Event) -> None:
        """Nothing: the answer is taken at the end."""

    @property
    def answer(self) -> str:
        return final_text(self.messages)


class AnswerListener(Listener):
    """Tells a person who waits why it takes so long; nobody else."""

    def __init__(self, err: TextIO) -> None:
        super().__init__()
        self._err = err

    def show(self, event: Event) -> None:
        if isinstance(event, Notice) and self._err.isatty():
            self._err.write(f"hermes: {event.text}\n")
            self._err.flush()


class JsonListener(Listener):
    """Every event as one line of JSON, for programs."""

    def __init__(self, out: TextIO) -> None:
        super().__init__()
        self._out = out

    def show(self, event: Event) -> None:
        line = msgspec.json.encode(event)
        if b"\n" in line:
            # The arguments of a call are the model's own bytes, in its own layout.
            line = msgspec.json.format(line, indent=-1)
        self._out.write(line.decode() + "\n")
        self._out.flush()
