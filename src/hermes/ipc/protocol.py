"""The socket protocol: each frame is its length followed by that many bytes of JSON.

Frames are not lines, because arguments of a tool call are the model's own bytes and may contain
line breaks.
"""

from collections.abc import Mapping
from hashlib import blake2b
from types import UnionType
from typing import Generic, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Struct

from hermes.ipc.client import ConversationOptions, UsageReport, UserInput
from hermes.schema.errors import HermesError
from hermes.schema.events import Event, Outcome, RunEnded
from hermes.schema.terminal import ConversationState, ErrorInfo, Greeting, LineReply, RecentHistory

PROTOCOL = 4
LENGTH_BYTES = 4
MAX_FIRST_FRAME = 1024 * 1024
"""Maximum size of the first frame, in bytes, before the client is known."""
MAX_FRAME = 64 * 1024 * 1024
"""Maximum size of other frames, in bytes: the largest prompt with every character escaped."""


class Hello(Struct, frozen=True, kw_only=True, tag="hello"):
    """Opens a conversation; `marks` is the fingerprint of the client's environment."""

    protocol: int = PROTOCOL
    version: str
    marks: dict[str, str]
    start: ConversationOptions


class Wake(Struct, frozen=True, tag="wake"):
    """Something was added to the inbox or outbox by another process."""

    protocol: int = PROTOCOL


class StartTurn(Struct, frozen=True, tag="say"):
    question: UserInput


class RunCommand(Struct, frozen=True, tag="command"):
    line: str


class GetUsage(Struct, frozen=True, tag="report"):
    ended: RunEnded | None


class AnswerQuestion(Struct, frozen=True, tag="decide"):
    """An answer to a question of the running turn."""

    question: str
    words: str


class Steer(Struct, frozen=True, tag="steer"):
    """A message to the running turn; `word` is its id, confirmed by an event."""

    word: str
    text: str


class CheckNews(Struct, frozen=True, tag="look"):
    """Ask whether anything arrived by itself."""


class NewsResult(Struct, frozen=True, tag="looked"):
    news: bool
    state: ConversationState | None = None


class GetHistory(Struct, frozen=True, tag="recount"):
    """Ask for the recent messages of the session."""


class HistoryResult(Struct, frozen=True, tag="recounted"):
    past: RecentHistory


class Interrupt(Struct, frozen=True, tag="interrupt"):
    pass


class Accepted(Struct, frozen=True, tag="accepted"):
    """The gateway would behave like an agent started by the client."""


class Refused(Struct, frozen=True, tag="refused"):
    """It would not; the client should run the turn itself."""

    reason: str


class ConversationOpened(Struct, frozen=True, tag="welcome"):
    greeting: Greeting
    state: ConversationState


class EventFrame(Struct, frozen=True, tag="happened"):
    event: Event


class TurnEnded(Struct, frozen=True, tag="ended"):
    outcome: Outcome
    state: ConversationState


class CommandReplied(Struct, frozen=True, tag="replied"):
    reply: LineReply
    state: ConversationState


class UsageResult(Struct, frozen=True, tag="reported"):
    report: UsageReport


class RequestFailed(Struct, frozen=True, tag="failed"):
    trouble: ErrorInfo
    state: ConversationState | None = None


class WakeAccepted(Struct, frozen=True, tag="woken"):
    pass


FirstFrame: TypeAlias = Hello | Wake
ClientFrame: TypeAlias = (
    StartTurn | RunCommand | GetUsage | CheckNews | GetHistory | AnswerQuestion | Steer | Interrupt
)
ServerFrame: TypeAlias = (
    Accepted
    | Refused
    | ConversationOpened
    | EventFrame
    | TurnEnded
    | CommandReplied
    | UsageResult
    | NewsResult
    | HistoryResult
    | RequestFailed
    | WakeAccepted
)


class BadFrame(HermesError):
    """An invalid frame; the connection cannot be used any further."""

    code = "bad_frame"


def encode_frame(frame: FirstFrame | ClientFrame | ServerFrame) -> bytes:
    body = msgspec.json.encode(frame)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


class FrameBuffer:
    """Splits received bytes into frames."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def take(self) -> bytes | None:
        """Return the next frame, or None while incomplete. Raises `BadFrame` if it is too large."""
        if len(self._buffer) < LENGTH_BYTES:
            return None
        size = int.from_bytes(self._buffer[:LENGTH_BYTES], "big")
        if size > self.limit:
            raise BadFrame(f"A frame of {size:,} bytes is too large.")
        if len(self._buffer) < LENGTH_BYTES + size:
            return None
        frame = bytes(self._buffer[LENGTH_BYTES : LENGTH_BYTES + size])
        del self._buffer[: LENGTH_BYTES + size]
        return frame


T = TypeVar("T", bound=FirstFrame | ClientFrame | ServerFrame)


class FrameDecoder(Generic[T]):
    """Decodes the frames of one direction."""

    def __init__(self, kinds: "type[T] | UnionType") -> None:
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(cast("type[T]", kinds))

    def decode(self, frame: bytes) -> T:
        """Raises `BadFrame` for an invalid frame."""
        try:
            return self._decoder.decode(frame)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadFrame(f"Invalid frame: {error}") from error


DIGEST_SIZE = 12

EnvFingerprint: TypeAlias = dict[str, str]


def env_fingerprint(env: Mapping[str, str]) -> EnvFingerprint:
    """A digest of each variable. Names that are not text are escaped: JSON cannot carry them."""

    def digest(name: str, value: str) -> str:
        data = f"{name}={value}".encode("utf-8", "surrogateescape")
        return blake2b(data, digest_size=DIGEST_SIZE).hexdigest()

    return {
        name.encode("utf-8", "backslashreplace").decode(): digest(name, value)
        for name, value in env.items()
    }
