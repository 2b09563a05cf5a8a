"""Whom a turn asks when it may not, or cannot, decide by itself."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from typing import Protocol, TypeAlias

from msgspec import Struct

from hermes.ports.events import Emit
from hermes.schema.scope import Scope


class Isolation(StrEnum):
    """How far something would go: held by a wall, held by none, or through a gap in it."""

    INSIDE = "inside"
    OPEN = "open"
    NETWORK = "network"
    BEYOND = "beyond"


class ApprovalRequest(Struct, frozen=True, kw_only=True):
    """What a tool is about to do. `action` is exact: the command line, the path, the address.

    `shell` says that the action is a command for a shell; `folder` is where it would run.
    `code` says that it is, or may be, a program in another language.
    `reason` is the model's own; `foreign` says that words of strangers are in the turn.
    `target` is what it is done to, and `detail` what would be put there; people see both.
    `kind` is what an answer for longer is about, where that is more than this very action, and
    `seal` what must still be the same for it to count.
    """

    tool: str
    action: str
    reaching: Isolation
    shell: bool = False
    code: bool = False
    folder: str = ""
    reason: str = ""
    foreign: bool = False
    target: str = ""
    detail: str = ""
    kind: str = ""
    seal: str = ""


class Decision(Struct, frozen=True):
    """`why` is a sentence for the model; when it is allowed, only if there is something to say."""

    allowed: bool
    why: str = ""


class Approvals(Protocol):
    """Rules, and where they do not decide, people."""

    async def rule(self, scope: Scope, wish: ApprovalRequest, tell: Emit) -> Decision:
        """May it be done? Asking is told as an event; a person who does not answer refuses."""
        ...

    async def inquire(
        self, scope: Scope, text: str, choices: Sequence[str], tell: Emit
    ) -> str | None:
        """A person's answer in their own words; None when there is nobody, or nobody answered."""
        ...


class TurnSuspended(Exception):
    """The house closes while a call only waits for a person: both go on after the next start."""


class RecoveredQuestions(Struct, frozen=True, kw_only=True):
    """What an earlier process left of a session's questions, by the calls they were asked for.

    Those that are `waiting` have done nothing, and are begun anew. `told` are others that
    have done nothing, with what there is to say of each.
    """

    waiting: frozenset[str] = frozenset()
    told: Mapping[str, str] = {}


class PendingQuestions(Protocol):
    """Those that were asked before; whoever calls holds the session."""

    async def left(self, session: str, *, resumed: bool) -> RecoveredQuestions:
        """A turn begins: nobody waits any more but what a `resumed` one takes up again."""
        ...

    async def over(self, session: str) -> None:
        """The turn has ended: what it did not ask again is not asked any more."""
        ...

    async def sweep(self) -> None:
        """Close what nobody comes back for."""
        ...


RequestApproval: TypeAlias = Callable[[ApprovalRequest], Awaitable[Decision]]
AskPerson: TypeAlias = Callable[[str, Sequence[str]], Awaitable[str | None]]


async def decide_unattended(wish: ApprovalRequest) -> Decision:
    """What needs nobody's leave may be done."""
    if wish.reaching in {Isolation.INSIDE, Isolation.OPEN}:
        return Decision(allowed=True)
    return Decision(allowed=False, why="Not done: it needs approval, and there is nobody to ask.")


async def no_answer(text: str, choices: Sequence[str]) -> str | None:
    return None
