"""What the driver asks of a wire: a body out, deltas and one answer back."""

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias

import msgspec
from msgspec import Struct

from hermes.models.wire.told import StreamDelta
from hermes.ports.model import Request
from hermes.schema.messages import Assistant, Media, Message

LONGEST = 4_000_000
"""Characters after which an answer is a runaway and is cut off."""

Urls: TypeAlias = Mapping[str, str]
"""Data URLs by the digest of the image; `LEFT_OUT` where there is no room for it."""


class NotAChunk(ValueError):
    """The data of an event was nothing this wire knows."""


class ErrorInStream(Exception):
    """The provider sent an error where a chunk was due; `body` is that error as it came."""

    def __init__(self, body: bytes) -> None:
        super().__init__("error in the stream")
        self.body = body


class _Typed(Struct):
    type: str


def is_foreign(data: bytes, known: Container[str]) -> bool:
    """Whether this is an event of a type that nobody here reads; it may look as it likes."""
    try:
        return msgspec.json.decode(data, type=_Typed).type not in known
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


class AnswerStream(Protocol):
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

    def body(self, request: Request, images: Urls | None = None) -> bytes:
        """The whole body. `images` holds what `images_in` names, as far as it could be found."""
        ...

    def pieces(self, request: Request, images: Urls | None = None) -> Sequence[bytes]:
        """The body in pieces; what requests have in common may be the very same bytes."""
        ...

    def learn(self, refusal: str) -> bool:
        """Whether what was refused can be left out; the next body is without it."""
        ...

    def stream(self) -> AnswerStream: ...

    def heard(self, request: Request, stream: AnswerStream, answer: Assistant) -> None:
        """The answer came whole; what it is good for later may be remembered."""
        ...
