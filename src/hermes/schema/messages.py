"""What a conversation is made of. Plain data: no I/O, no behaviour, no provider quirks."""

from collections.abc import Sequence
from enum import StrEnum
from typing import TypeAlias

from msgspec import Raw, Struct


class Text(Struct, frozen=True, tag="text"):
    text: str


class Reasoning(Struct, frozen=True, tag="reasoning"):
    """What the model thought; `signature` is the provider's seal, kept for the replay."""

    text: str
    signature: str | None = None


class Media(Struct, frozen=True, tag="media"):
    """A file by content address; bytes live in the blob store, never in a message."""

    digest: str
    media_type: str
    name: str = ""


class ToolCall(Struct, frozen=True, tag="tool_call"):
    """`args` stay the model's own bytes, so a replay is identical for the provider's cache.

    When those bytes were not JSON and could not be repaired, `args` is `{}` and
    `broken` holds what came.
    """

    id: str
    name: str
    args: Raw
    broken: str = ""


class Trust(StrEnum):
    """Who stands behind a user message."""

    OWNER = "owner"
    GUEST = "guest"
    DATA = "data"
    PROGRAM = "house"
    """Written by our own program: a nudge to go on, a steering note."""


class Usage(Struct, frozen=True):
    """Tokens. `input` counts everything sent; the cache counts are parts of it."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
            self.reasoning + other.reasoning,
        )


class Stop(StrEnum):
    """Why an answer ended."""

    END = "end"
    TOOLS = "tools"
    LENGTH = "length"
    REFUSED = "refused"
    CANCELLED = "cancelled"


class User(Struct, frozen=True, tag="user"):
    id: str
    parts: tuple[Text | Media, ...]
    trust: Trust = Trust.OWNER


class Assistant(Struct, frozen=True, tag="assistant"):
    id: str
    parts: tuple[Text | Reasoning | ToolCall, ...]
    stop: Stop
    usage: Usage = Usage()
    model: str = ""
    provider: str = ""

    @property
    def calls(self) -> list[ToolCall]:
        return [part for part in self.parts if isinstance(part, ToolCall)]

    @property
    def text(self) -> str:
        return text_of(self)


class Result(Struct, frozen=True, tag="result"):
    """What a tool call came to. `shown` is for people (a diff, say); the model reads `parts`.

    `foreign`: strangers' words are in it. `unverified`: it comes from a command or file whose text
    somebody else than the owner may have written; that counts only for what is learned from it.
    """

    id: str
    call: str
    parts: tuple[Text | Media, ...]
    failed: bool = False
    shown: str = ""
    foreign: bool = False
    unverified: bool = False


Message: TypeAlias = User | Assistant | Result


def text_of(message: Message) -> str:
    """The visible words of a message, without reasoning, calls or media."""
    return "".join(part.text for part in message.parts if isinstance(part, Text))


def final_text(messages: Sequence[Message]) -> str:
    """The answer of a run: its last words, joined with the pieces before a cut."""
    pieces: list[str] = []
    for message in reversed(messages):
        match message:
            case Assistant():
                if pieces and message.stop is not Stop.LENGTH:
                    break
                pieces.append(message.text)
            case User(trust=Trust.PROGRAM):
                continue
            case User() | Result():
                break
    return "".join(reversed(pieces))
