"""The interfaces of wire formats and their streams, and what all streams need."""

from collections.abc import Container, Iterable, Sequence
from typing import Protocol, TypeAlias

import msgspec
from msgspec import Struct

from hermes.models.images import ImageUrlMap
from hermes.ports.model import ModelRequest
from hermes.schema.events import ReasoningDelta, StreamReset, TextDelta
from hermes.schema.messages import Assistant, Media, Message

StreamDelta: TypeAlias = TextDelta | ReasoningDelta | StreamReset


class DeltaBuffer:
    """Collects deltas, merging neighbors of the same kind."""

    def __init__(self) -> None:
        self._done: list[StreamDelta] = []
        self._pieces: list[str] = []
        self._is_reasoning = False

    def add(self, text: str, *, reasoning: bool) -> None:
        if reasoning is not self._is_reasoning:
            self._flush()
            self._is_reasoning = reasoning
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
            self._done.append(ReasoningDelta(text) if self._is_reasoning else TextDelta(text))
        self._pieces = []


MAX_ANSWER = 4_000_000
"""Characters after which an answer is cut off."""


class InvalidChunk(ValueError):
    """The data of an event does not match the wire format."""


class StreamError(Exception):
    """The provider sent an error instead of a chunk; `body` is that error."""

    def __init__(self, body: bytes) -> None:
        super().__init__("error in the stream")
        self.body = body


class _Typed(Struct):
    type: str


def is_unknown_event(data: bytes, known: Container[str]) -> bool:
    """Return whether this is an event type that is ignored, whatever its content."""
    try:
        return msgspec.json.decode(data, type=_Typed).type not in known
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


class WireStream(Protocol):
    """Decodes one answer: `feed` takes the data of events, `answer` returns the whole.

    `ended` means that nothing can follow; a wire that ends with `[DONE]` never sets it.
    """

    ended: bool

    @property
    def finish_reason(self) -> str:
        """The provider's finish reason; empty until it is known."""
        ...

    @property
    def size(self) -> int:
        """Grows with every chunk that adds content."""
        ...

    @property
    def runaway(self) -> str:
        """Which limit was exceeded; empty while the answer is within all limits."""
        ...

    def feed(self, batch: Iterable[bytes]) -> list[StreamDelta]:
        """Raises `InvalidChunk` or `StreamError`; earlier deltas of the batch are lost then."""
        ...

    def close(self) -> list[StreamDelta]:
        """Return the deltas that were held back; call it once, before `answer`."""
        ...

    def answer(self, model: str, provider: str) -> Assistant: ...


class Wire(Protocol):
    """Encodes requests and decodes answers for one model of a provider."""

    def path(self, base_url: str) -> str:
        """Return the path to append to the base URL."""
        ...

    def headers(self, key: str, base_url: str) -> dict[str, str]:
        """Return the authentication and other headers."""
        ...

    def images_in(self, messages: Sequence[Message]) -> list[Media]:
        """Return the images that `body` needs."""
        ...

    def body(self, request: ModelRequest, images: ImageUrlMap | None = None) -> bytes:
        """Return the whole body. `images` holds those named by `images_in`, as far as found."""
        ...

    def body_pieces(
        self, request: ModelRequest, images: ImageUrlMap | None = None
    ) -> Sequence[bytes]:
        """Return the body in pieces; requests may share the same bytes objects."""
        ...

    def drop_rejected(self, rejection: str) -> bool:
        """Return whether a rejected field can be omitted; the next body is without it."""
        ...

    def stream(self) -> WireStream: ...

    def answer_received(self, request: ModelRequest, stream: WireStream, answer: Assistant) -> None:
        """Called with the complete answer, to remember what later requests need."""
        ...


MAX_TOKENS = 10**9
"""More tokens than any answer uses."""


def clamp_tokens(count: int | None) -> int:
    """Bound a reported count, so that an absurd value cannot spoil the totals."""
    return min(max(count or 0, 0), MAX_TOKENS)
