"""What goes through the socket: each frame is its length, then that many bytes of JSON.

Lines would not do: the arguments of a call are the model's own bytes, line breaks included.
"""

from types import UnionType
from typing import Generic, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Struct

from hermes.local.partner import (
    Greeting,
    Past,
    Question,
    Reply,
    Start,
    State,
    Trouble,
    UsageReport,
)
from hermes.schema.errors import HermesError
from hermes.schema.events import Event, Outcome, RunEnded

PROTOCOL = 4
LENGTH = 4
FIRST_LIMIT = 1024 * 1024
"""Bytes of a first frame: whoever is not known yet gets no more room than that."""
LIMIT = 64 * 1024 * 1024
"""Bytes of any other frame: the largest prompt there may be, with every character escaped."""


class Hello(Struct, frozen=True, kw_only=True, tag="hello"):
    """`marks` stand for the values of the caller's environment."""

    protocol: int = PROTOCOL
    version: str
    marks: dict[str, str]
    start: Start


class Wake(Struct, frozen=True, tag="wake"):
    """Something was put into the inbox or the outbox from outside."""

    protocol: int = PROTOCOL


class Say(Struct, frozen=True, tag="say"):
    question: Question


class Command(Struct, frozen=True, tag="command"):
    line: str


class Report(Struct, frozen=True, tag="report"):
    ended: RunEnded | None


class Decide(Struct, frozen=True, tag="decide"):
    """Words to a question of the turn that is going on."""

    question: str
    words: str


class Steer(Struct, frozen=True, tag="steer"):
    """Words to the turn that is going on; `word` is the id under which they are told as heard."""

    word: str
    text: str


class Look(Struct, frozen=True, tag="look"):
    """Has anything come in by itself?"""


class Looked(Struct, frozen=True, tag="looked"):
    news: bool


class Recount(Struct, frozen=True, tag="recount"):
    """What was said and done in this session?"""


class Recounted(Struct, frozen=True, tag="recounted"):
    past: Past


class Interrupt(Struct, frozen=True, tag="interrupt"):
    pass


class Accepted(Struct, frozen=True, tag="accepted"):
    """The agent here would do the same as one of the caller's own."""


class Refused(Struct, frozen=True, tag="refused"):
    """It would not; the caller had better run the turn itself."""

    reason: str


class Welcome(Struct, frozen=True, tag="welcome"):
    greeting: Greeting
    state: State


class Happened(Struct, frozen=True, tag="happened"):
    event: Event


class Ended(Struct, frozen=True, tag="ended"):
    outcome: Outcome
    state: State


class Replied(Struct, frozen=True, tag="replied"):
    reply: Reply
    state: State


class Reported(Struct, frozen=True, tag="reported"):
    report: UsageReport


class Failed(Struct, frozen=True, tag="failed"):
    trouble: Trouble
    state: State | None = None


class Woken(Struct, frozen=True, tag="woken"):
    pass


First: TypeAlias = Hello | Wake
Request: TypeAlias = Say | Command | Report | Look | Recount | Decide | Steer | Interrupt
Answer: TypeAlias = (
    Accepted
    | Refused
    | Welcome
    | Happened
    | Ended
    | Replied
    | Reported
    | Looked
    | Recounted
    | Failed
    | Woken
)


class BadFrame(HermesError):
    """What came is no frame of ours; nothing after it can be trusted."""

    code = "bad_frame"


def pack(frame: First | Request | Answer) -> bytes:
    body = msgspec.json.encode(frame)
    return len(body).to_bytes(LENGTH, "big") + body


class Frames:
    """Cuts what comes in pieces into the bytes of whole frames."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def take(self) -> bytes | None:
        """The next frame; None while it is not whole. Raises `BadFrame` when it is too large."""
        if len(self._buffer) < LENGTH:
            return None
        size = int.from_bytes(self._buffer[:LENGTH], "big")
        if size > self.limit:
            raise BadFrame(f"A frame of {size:,} bytes is too large.")
        if len(self._buffer) < LENGTH + size:
            return None
        frame = bytes(self._buffer[LENGTH : LENGTH + size])
        del self._buffer[: LENGTH + size]
        return frame


T = TypeVar("T", bound=First | Request | Answer)


class Reader(Generic[T]):
    """Reads the frames of one direction."""

    def __init__(self, kinds: "type[T] | UnionType") -> None:
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(cast("type[T]", kinds))

    def read(self, frame: bytes) -> T:
        """Raises `BadFrame` for what is none."""
        try:
            return self._decoder.decode(frame)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadFrame(f"A frame cannot be understood: {error}") from error


def first_reader() -> Reader[First]:
    return Reader(First)


def request_reader() -> Reader[Request]:
    return Reader(Request)


def answer_reader() -> Reader[Answer]:
    return Reader(Answer)
