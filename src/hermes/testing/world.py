"""A platform that misbehaves as platforms do, and a judge of what its people got to see."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import Enum, auto

import anyio

from hermes.ports.channel import (
    Caps,
    NotSent,
    Offline,
    Outgoing,
    Receipt,
    TargetGone,
    Throttled,
)
from hermes.schema.scope import Address
from hermes.testing.channel import FakeChannel

PENALTY = 7.0


class Fault(Enum):
    """How one call to `send` goes wrong."""

    NONE = auto()
    REFUSED = auto()
    OFFLINE = auto()
    THROTTLED = auto()
    GONE = auto()
    HANGS = auto()
    LOST_REPLY = auto()
    """It arrives, but we are told of an error."""
    NO_ID = auto()
    BREAKS = auto()
    """It does not arrive, and the error does not say so."""


class RoughChannel(FakeChannel):
    """A fake channel whose calls to `send` go wrong by plan, or as `chance` says when it is over.

    `reactions` are the signs given to messages; `heard` is the last proof of life.
    """

    def __init__(
        self,
        *faults: Fault,
        name: str = "fake",
        caps: Caps | None = None,
        chance: Callable[[], Fault] = lambda: Fault.NONE,
    ) -> None:
        super().__init__(name, caps)
        self.faults = list(faults)
        self.chance = chance
        self.calls = 0
        self.reactions: list[tuple[str, str]] = []
        self.heard: datetime | None = None

    def heard_at(self) -> datetime | None:
        return self.heard

    async def react(self, to: Address, message: str, sign: str) -> None:
        self.reactions.append((message, sign))

    async def send(self, to: Address, post: Outgoing) -> Receipt:
        self.calls += 1
        fault = self.faults.pop(0) if self.faults else self.chance()
        match fault:
            case Fault.NONE:
                return await super().send(to, post)
            case Fault.REFUSED:
                raise NotSent("The platform said no.")
            case Fault.OFFLINE:
                raise Offline("There is no connection.")
            case Fault.THROTTLED:
                raise Throttled("Too many posts.", wait=PENALTY)
            case Fault.GONE:
                raise TargetGone("The chat was deleted.")
            case Fault.HANGS:
                await anyio.sleep_forever()
                raise AssertionError("unreachable")
            case Fault.LOST_REPLY:
                await super().send(to, post)
                raise ConnectionError("the connection broke after the post")
            case Fault.NO_ID:
                return Receipt(to, "")
            case Fault.BREAKS:
                raise ConnectionError("the connection broke before the post")


class WrongHistory(AssertionError):
    """Somebody saw too little, too much, or in the wrong order."""


def check_seen(
    expected: Mapping[str, Sequence[str]], seen: Callable[[str], Sequence[str]], mark: str
) -> None:
    """Each text arrives, in order, once; a second copy only with the mark before it."""
    for chat, texts in expected.items():
        plain: list[str] = []
        for text in seen(chat):
            bare = text.removeprefix(mark)
            if bare in plain:
                if text == bare:
                    raise WrongHistory(f"{chat}: {text!r} came twice, and nothing said so")
                continue
            plain.append(bare)
        if plain != list(texts):
            raise WrongHistory(f"{chat}: expected {list(texts)}, saw {plain}")
