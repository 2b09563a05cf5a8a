"""The interfaces of wire formats and their streams, and the base of all of them."""

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import groupby
from operator import attrgetter, is_
from typing import Any, ClassVar, Protocol, TypeAlias, TypeGuard, TypeVar

import msgspec
from msgspec import Struct, field

from hermes.models.images import ImageUrlMap, is_image, part_text
from hermes.models.providers import ServedModel
from hermes.ports.model import ModelRequest, OutputConstraints, OutputFormat
from hermes.schema.events import ReasoningDelta, StreamReset, TextDelta
from hermes.schema.messages import Assistant, Media, Message, Result, Text
from hermes.schema.tools import ToolSpec

StreamDelta: TypeAlias = TextDelta | ReasoningDelta | StreamReset


_TEXT = attrgetter("text")


def joined_deltas(deltas: list[StreamDelta]) -> list[StreamDelta]:
    """Join neighbors of the same kind."""
    if len(deltas) < 2:
        return deltas
    joined: list[StreamDelta] = []
    for kind, group in groupby(deltas, type):
        if kind is StreamReset:
            joined += group
        else:
            text = "".join(map(_TEXT, group))
            joined.append(TextDelta(text) if kind is TextDelta else ReasoningDelta(text))
    return joined


MAX_ANSWER = 4_000_000
"""Characters after which an answer is cut off."""
TOO_LONG = f"more than {MAX_ANSWER:,} characters"


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
    """Decodes one answer: `feed` takes the data of events, `finish` returns the whole."""

    finish_reason: str
    """The provider's finish reason; empty until it is known."""
    ended: bool
    """Nothing can follow; a wire that ends with `[DONE]` never sets it."""
    size: int
    """Grows with every batch that adds content."""
    runaway: str
    """Which limit was exceeded; empty while the answer is within all limits."""

    def feed(self, batch: Iterable[bytes]) -> list[StreamDelta]:
        """Raises `InvalidChunk` or `StreamError`; earlier deltas of the batch are lost then."""
        ...

    def finish(self, model: str, provider: str) -> tuple[list[StreamDelta], Assistant]:
        """Return the deltas that were held back, and the answer; call it once."""
        ...


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


_Signature = TypeVar("_Signature")
_PORTABLE_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def portable_call_id(identity: str) -> str:
    """Hash ids of other providers that this one would reject; the result is deterministic."""
    if _PORTABLE_ID.fullmatch(identity):
        return identity
    return f"call_{sha256(identity.encode()).hexdigest()[:24]}"


def read_signature(signature: str | None, kind: type[_Signature]) -> _Signature | None:
    """Return None for a missing signature, or another provider's."""
    try:
        return msgspec.json.decode(signature or "", type=kind)
    except (msgspec.DecodeError, RecursionError):
        return None


def openai_tool_choice(wanted: OutputConstraints, named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields for constraints on calls; `named` is the function to call."""
    head: dict[str, Any] = {}
    if wanted.name:
        head["tool_choice"] = {"type": "function", **named}
    elif wanted.required:
        head["tool_choice"] = "required"
    if wanted.single:
        head["parallel_tool_calls"] = False
    return head


def openai_schema(wanted: OutputFormat) -> dict[str, Any]:
    """Return the schema that the answer must match; empty if there is none."""
    if wanted.schema is None:
        return {}
    strict = {} if wanted.strict is None else {"strict": wanted.strict}
    return {"name": wanted.name, "schema": wanted.schema, **strict}


class RequestCodec(Struct, eq=False):
    """Implements most of `wire.codec.Wire`.

    `rejection_patterns` maps optional fields to patterns of the errors that they may cause.
    """

    rejection_patterns: ClassVar[Mapping[str, str]] = {}

    _served: ServedModel
    _rejected: set[str] = set()
    _last_tools: tuple[Sequence[ToolSpec], bytes] = ((), b"[]")
    _encoder: msgspec.json.Encoder = field(default_factory=msgspec.json.Encoder)

    def headers(self, key: str, base_url: str) -> dict[str, str]:
        return {"authorization": f"Bearer {key}"} if key else {}

    def body(self, request: ModelRequest, images: ImageUrlMap | None = None) -> bytes:
        raise NotImplementedError

    def body_pieces(
        self, request: ModelRequest, images: ImageUrlMap | None = None
    ) -> Sequence[bytes]:
        return [self.body(request, images)]

    def images_in(self, messages: Sequence[Message]) -> list[Media]:
        if not self._served.profile.images:
            return []
        return [
            part
            for message in messages
            if not isinstance(message, Assistant)
            for part in message.parts
            if isinstance(part, Media) and is_image(part)
        ]

    def drop_rejected(self, rejection: str) -> bool:
        """Return whether the error was about an optional field, which is then omitted."""
        for name, pattern in self.rejection_patterns.items():
            if self._accepts(name) and re.search(pattern, rejection, re.IGNORECASE):
                self._rejected.add(name)
                return True
        return False

    def _accepts(self, name: str) -> bool:
        return name not in self._rejected

    def answer_received(self, request: ModelRequest, stream: WireStream, answer: Assistant) -> None:
        """Do nothing by default."""

    def _encode_tools(self, specs: Sequence[ToolSpec]) -> bytes:
        """Encode the tools, reusing the last result for the same objects."""
        last, encoded = self._last_tools
        if len(last) != len(specs) or not all(map(is_, last, specs)):
            encoded = self._encoder.encode([self._tool(spec) for spec in specs])
            self._last_tools = tuple(specs), encoded
        return encoded

    @staticmethod
    def _tool(spec: ToolSpec) -> dict[str, Any]:
        raise NotImplementedError

    def _sends_image(self, part: Text | Media) -> TypeGuard[Media]:
        return isinstance(part, Media) and self._served.profile.images and is_image(part)

    def _result_text(self, result: Result) -> str:
        """Return the text for a wire that sends a result's images separately."""
        return "\n".join(
            f"[the image {part.name or part.media_type} follows below]"
            if self._sends_image(part)
            else part_text(part)
            for part in result.parts
        )

    def _owns(self, answer: Assistant) -> bool:
        """Return whether this model wrote the answer: only then can it read its signatures."""
        return (answer.provider, answer.model) == (self._served.provider, self._served.model)
