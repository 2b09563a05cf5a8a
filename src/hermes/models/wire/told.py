"""Deltas on their way out."""

from typing import TypeAlias

from hermes.schema.events import ReasoningDelta, StreamReset, TextDelta

StreamDelta: TypeAlias = TextDelta | ReasoningDelta | StreamReset


class Told:
    """Deltas waiting to be given out, neighbours of one kind joined."""

    def __init__(self) -> None:
        self._done: list[StreamDelta] = []
        self._pieces: list[str] = []
        self._thought = False

    def add(self, text: str, *, thought: bool) -> None:
        if thought is not self._thought:
            self._flush()
            self._thought = thought
        self._pieces.append(text)

    def reset(self, reason: str) -> None:
        self._flush()
        self._done.append(StreamReset(reason))

    def take(self) -> list[StreamDelta]:
        self._flush()
        done, self._done = self._done, []
        return done

    def _flush(self) -> None:
        if text := "".join(self._pieces):
            self._done.append(ReasoningDelta(text) if self._thought else TextDelta(text))
        self._pieces = []
