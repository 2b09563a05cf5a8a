"""Deltas on their way out."""

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias

import msgspec
from msgspec import Struct

from hermes.ports.model import ModelRequest
from hermes.schema.events import ReasoningDelta, StreamReset, TextDelta
from hermes.schema.messages import Assistant, Media, Message

StreamDelta: TypeAlias = TextDelta | ReasoningDelta | StreamReset


class DeltaBuffer:
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


MAX_ANSWER = 4_000_000
"""Characters after which an answer is a runaway and is cut off."""

ImageUrlMap: TypeAlias = Mapping[str, str]
"""Data URLs by the digest of the image; `LEFT_OUT` where there is no room for it."""


class InvalidChunk(ValueError):
    """The data of an event was nothing this wire knows."""


class StreamError(Exception):
    """The provider sent an error where a chunk was due; `body` is that error as it came."""

    def __init__(self, body: bytes) -> None:
        super().__init__("error in the stream")
        self.body = body


class _Typed(Struct):
    type: str


def is_unknown_event(data: bytes, known: Container[str]) -> bool:
    """Whether this is an event of a type that nobody here reads; it may look as it likes."""
    try:
        return msgspec.json.decode(data, type=_Typed).type not in known
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


class WireStream(Protocol):
    """Reads one answer. `feed` wants the data of events, `answer` gives the whole.

    `ended` says that nothing can follow; a wire that ends with `[DONE]` never sets it.
    """

    ended: bool

    @property
    def finish_reason(self) -> str:
        """Why the answer ended, in the provider's word; empty until it says so."""
        ...

    @property
    def size(self) -> int:
        """Grows with every chunk that brings a part of the answer."""
        ...

    @property
    def runaway(self) -> str:
        """Of what there is too much; empty while the answer is of a sane size."""
        ...

    def feed(self, batch: Iterable[bytes]) -> list[StreamDelta]:
        """Raises `NotAChunk` or `ErrorInStream`; what came before in the batch is lost then."""
        ...

    def close(self) -> list[StreamDelta]:
        """The deltas that were held back; call it once, before `answer`."""
        ...

    def answer(self, model: str, provider: str) -> Assistant: ...


class Wire(Protocol):
    """One language, spoken with one model of one provider."""

    def path(self, base_url: str) -> str:
        """What follows the address."""
        ...

    def headers(self, key: str, base_url: str) -> dict[str, str]:
        """How the key is shown, and what else this language wants beside the body."""
        ...

    def images_in(self, messages: Sequence[Message]) -> list[Media]:
        """The images whose bytes `body` will need."""
        ...

    def body(self, request: ModelRequest, images: ImageUrlMap | None = None) -> bytes:
        """The whole body. `images` holds what `images_in` names, as far as it could be found."""
        ...

    def pieces(self, request: ModelRequest, images: ImageUrlMap | None = None) -> Sequence[bytes]:
        """The body in pieces; what requests have in common may be the very same bytes."""
        ...

    def learn(self, refusal: str) -> bool:
        """Whether what was refused can be left out; the next body is without it."""
        ...

    def stream(self) -> WireStream: ...

    def heard(self, request: ModelRequest, stream: WireStream, answer: Assistant) -> None:
        """The answer came whole; what it is good for later may be remembered."""
        ...
