"""Ask for approval of an action, or ask a person a question."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from typing import Protocol, TypeAlias

from msgspec import Struct

from hermes.ports.turn import Emit
from hermes.schema.scope import Scope


class Isolation(StrEnum):
    """How isolated an action would be."""

    INSIDE = "inside"  # inside the sandbox
    OPEN = "open"  # no sandbox is configured
    NETWORK = "network"  # sandboxed, but with network access
    BEYOND = "beyond"  # outside the sandbox


class ApprovalRequest(Struct, frozen=True, kw_only=True):
    """What a tool is about to do."""

    tool: str
    action: str  # exact: the command line, the path, the URL
    reaching: Isolation
    shell: bool = False  # the action is a shell command
    code: bool = False  # the action is, or may be, a program in another language
    folder: str = ""  # the working directory
    reason: str = ""  # given by the model
    foreign: bool = False  # the turn contains untrusted content
    target: str = ""  # shown to people: what is changed
    detail: str = ""  # shown to people: the new content
    kind: str = ""  # what a session or permanent approval covers, if more than this action
    seal: str = ""  # such an approval lapses when this value changes
    caution: str = ""  # sentences for people: why even a sandboxed action needs a person


class Decision(Struct, frozen=True):
    allowed: bool
    why: str = ""  # a sentence for the model; when allowed, only if there is something to add


class Approvals(Protocol):
    """Applies the approval rules, and asks a person where they do not decide."""

    async def decide(self, scope: Scope, request: ApprovalRequest, emit: Emit) -> Decision:
        """Decide on the action. A question is emitted as an event; no answer means denied."""
        ...

    async def ask_person(
        self, scope: Scope, text: str, choices: Sequence[str], emit: Emit
    ) -> str | None:
        """Return a person's answer, or None if no person is attached or none answered."""
        ...


class TurnSuspended(Exception):
    """Shutdown while a call waits for a person; both continue after the next start."""


class RecoveredQuestions(Struct, frozen=True, kw_only=True):
    """A session's questions left over by an earlier process, by call id."""

    waiting: frozenset[str] = frozenset()  # these calls did nothing yet and are run again
    results: Mapping[str, str] = {}  # other calls that did nothing, with their result text


class PendingQuestions(Protocol):
    """Questions asked by earlier turns. The caller holds the session lease."""

    async def recover(self, session: str, *, resumed: bool) -> RecoveredQuestions:
        """Take over the open questions when a turn starts; only a `resumed` turn keeps them."""
        ...

    async def turn_ended(self, session: str) -> None:
        """Close the questions that the ended turn did not ask again."""
        ...

    async def close_abandoned(self) -> None:
        """Close questions whose turn will not resume."""
        ...


RequestApproval: TypeAlias = Callable[[ApprovalRequest], Awaitable[Decision]]
AskPerson: TypeAlias = Callable[[str, Sequence[str]], Awaitable[str | None]]


async def decide_unattended(request: ApprovalRequest) -> Decision:
    """Allow what needs no approval, deny everything else."""
    if request.reaching in {Isolation.INSIDE, Isolation.OPEN}:
        return Decision(allowed=True)
    return Decision(
        allowed=False, why="Not done: it needs approval, and no one is available to approve it."
    )


async def no_answer(text: str, choices: Sequence[str]) -> str | None:
    return None
