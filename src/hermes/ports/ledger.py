"""Changes to what the agent has learned, and proposals of such changes."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Protocol, TypeAlias

from msgspec import Raw, Struct, field


class Author(StrEnum):
    """Who decided a change. A review is the agent looking back after a turn."""

    PERSON = "person"
    AGENT = "agent"
    REVIEW = "review"
    CURATOR = "curator"


class ChangeState(StrEnum):
    """An `APPLYING` change is being written; after a crash, the next start completes it."""

    APPLYING = "applying"
    APPLIED = "applied"
    UNDONE = "undone"
    FAILED = "failed"


class FileEdit(Struct, frozen=True):
    """One file in the home, before and after; None where there is no file."""

    path: str
    before: bytes | None
    after: bytes | None


class ChangeOrigin(Struct, frozen=True, kw_only=True):
    """Where a change came from. `sources` names those of untrusted content in the turn."""

    session: str = ""
    run: str = ""
    principal: str = ""
    sources: tuple[str, ...] = field(default=(), name="words")


class Change(Struct, frozen=True, kw_only=True):
    """`kind` is `memory` or `skill`, `name` which one; `summary` is one line for people.

    `undoes` is the id of the change that it reverts, if any.
    """

    id: str
    kind: str
    name: str
    summary: str
    by: Author
    at: datetime
    edits: tuple[FileEdit, ...]
    origin: ChangeOrigin = ChangeOrigin()
    why: str = ""
    undoes: str = ""


class LedgerEntry(Struct, frozen=True):
    change: Change
    state: ChangeState


class Proposal(Struct, frozen=True, kw_only=True):
    """A change that waits for a person's decision. `request` is read by the owner of the `kind`."""

    id: str
    kind: str
    name: str
    summary: str
    by: Author
    at: datetime
    request: Raw
    origin: ChangeOrigin = ChangeOrigin()
    why: str = ""


class ProposalState(StrEnum):
    WAITING = "waiting"
    ACCEPTED = "accepted"
    REJECTED = "rejected"


class PutChange(Struct, frozen=True):
    """Add a change, or with `expected_state` move one on that is in that state.

    Otherwise the commit fails with `StateConflict`. `holder` is the worker that applies it.
    """

    change: Change
    state: ChangeState
    expected_state: ChangeState | None = None
    holder: str = ""


class AddProposal(Struct, frozen=True):
    proposal: Proposal


class DecideProposal(Struct, frozen=True):
    """Decide a waiting proposal; the commit fails with `StateConflict` if it is not waiting."""

    id: str
    state: ProposalState
    at: datetime


LedgerWrite: TypeAlias = PutChange | AddProposal | DecideProposal


class LedgerRecords(Protocol):
    async def changes(
        self, *, kind: str | None = None, state: ChangeState | None = None, limit: int
    ) -> Sequence[LedgerEntry]:
        """The newest `limit` changes, in chronological order."""
        ...

    async def abandoned_changes(self) -> Sequence[Change]:
        """Changes that a dead worker was applying, oldest first."""
        ...

    async def proposals(
        self,
        *,
        kind: str | None = None,
        by: Author | None = None,
        state: ProposalState | None = None,
        limit: int,
    ) -> Sequence[Proposal]:
        """The newest `limit` proposals, in chronological order."""
        ...

    async def forget(self, before: datetime) -> int:
        """Delete changes made before that time, and proposals decided before it."""
        ...
