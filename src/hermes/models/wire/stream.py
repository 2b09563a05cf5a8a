"""The interfaces of wire formats and their streams."""

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias

import msgspec
from msgspec import Struct

from hermes.ports.model import ModelRequest
from hermes.schema.events import ReasoningDelta, StreamReset, TextDelta
from hermes.schema.messages import Assistant, Media, Message, Usage

StreamDelta: TypeAlias = TextDelta | ReasoningDelta | StreamReset


class DeltaBuffer:
    """Collects deltas, merging neighbours of the same kind."""

    def __init__(self) -> None:
        self._done: list[StreamDelta] = []
        self._pieces: list[str] = []
        self._thought = False

    def add(self, text: str, *, reasoning: bool) -> None:
        if reasoning is not self._thought:
            self._flush()
            self._thought = reasoning
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
"""Characters after which an answer is cut off."""

ImageUrlMap: TypeAlias = Mapping[str, str]
"""Data URLs by image digest; `OMITTED` for those that did not fit."""


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

    def drop_rejected(self, refusal: str) -> bool:
        """Return whether a refused field can be omitted; the next body is without it."""
        ...

    def stream(self) -> WireStream: ...

    def answer_received(self, request: ModelRequest, stream: WireStream, answer: Assistant) -> None:
        """Called with the complete answer, to remember what later requests need."""
        ...


MAX_TOKENS = 10**9
"""More tokens than any answer uses."""


class PromptDetails(Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    cache_creation_tokens: int | None = None


class CompletionDetails(Struct):
    reasoning_tokens: int | None = None


class WireUsage(Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens_details: CompletionDetails | None = None
    prompt_cache_hit_tokens: int | None = None
    cached_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


def usage_of(wire: WireUsage) -> Usage:
    prompt = wire.prompt_tokens_details or PromptDetails()
    reasoning = (wire.completion_tokens_details or CompletionDetails()).reasoning_tokens or 0
    sent, written = wire.prompt_tokens or 0, wire.completion_tokens or 0
    read = prompt.cached_tokens or wire.prompt_cache_hit_tokens or wire.cached_tokens or 0
    # Some providers do not include reasoning in the completion; only the total shows it.
    if reasoning and wire.total_tokens == sent + written + reasoning:
        written += reasoning
    return Usage(
        input=clamp_tokens(sent),
        output=clamp_tokens(written),
        cache_read=clamp_tokens(read),
        cache_write=clamp_tokens(
            prompt.cache_write_tokens
            or prompt.cache_creation_tokens
            or wire.cache_creation_input_tokens
            or 0
        ),
        reasoning=clamp_tokens(reasoning),
    )


def clamp_tokens(count: int) -> int:
    """Bound a reported count, so that an absurd value cannot spoil the totals."""
    return min(max(count, 0), MAX_TOKENS)
