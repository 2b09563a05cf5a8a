"""Record changes to what the agent has learned, apply them to files, and undo them."""

import fcntl
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import TypeVar

import anyio
from msgspec import structs

from hermes.kit.clock import Clock
from hermes.kit.errors import HermesError, UsageError
from hermes.kit.failpoints import failpoint
from hermes.kit.files import read_regular_file, write_atomic
from hermes.kit.ids import new_id
from hermes.ports.ledger import (
    AddProposal,
    Author,
    Change,
    ChangeState,
    DecideProposal,
    FileEdit,
    LedgerEntry,
    Proposal,
    ProposalState,
    PutChange,
)
from hermes.ports.store import Store
from hermes.schema.errors import NotFound, StateConflict

T = TypeVar("T")

_MAX_EXAMINED = 1000
"""How many of the newest records of a kind are examined."""
MAX_WAITING = 200
MAX_BYTES = 4 * 1024 * 1024
_LOCK_FILE = ".changes.lock"
_PRIVATE_MODE = 0o600


class FileConflict(HermesError):
    """A file is not in the state that the change expects."""

    code = "drifted"


def apply_edits(root: Path, edits: Sequence[FileEdit]) -> None:
    """Write every file; files already written by an interrupted attempt are skipped.

    Raises `FileConflict` before anything is written.
    """
    paths = [_checked_path(root, edit) for edit in edits]
    with edit_lock(root):
        for path, edit in zip(paths, edits, strict=True):
            found = read_if_present(path)
            if found not in {edit.before, edit.after}:
                raise FileConflict(
                    f"{edit.path} changed in the meantime, so it was not touched.",
                    hint="Check the file, then make the change again.",
                )
        for path, edit in zip(paths, edits, strict=True):
            if read_if_present(path) != edit.after:
                _write_file(root, path, edit.after)
                failpoint("ledger.one_file_written")


def read_if_present(path: Path) -> bytes | None:
    """Read a file; None if it does not exist. Raises `UsageError` for anything but a file."""
    try:
        return read_regular_file(path, MAX_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error


@contextmanager
def edit_lock(root: Path) -> Generator[None]:
    """Allow one writer at a time, across processes; the kernel releases the lock of a dead one."""
    root.mkdir(parents=True, exist_ok=True)
    handle = os.open(
        root / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, _PRIVATE_MODE
    )
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _checked_path(root: Path, edit: FileEdit) -> Path:
    parts = PurePosixPath(edit.path).parts
    if not parts or edit.path.startswith("/") or ".." in parts or "\0" in edit.path:
        raise UsageError(f"{edit.path!r} is not a path in the home.")
    return root.joinpath(*parts)


def _write_file(root: Path, path: Path, data: bytes | None) -> None:
    if data is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, data, mode=None if path.exists() else _PRIVATE_MODE)
        return
    path.unlink(missing_ok=True)
    folder = path.parent
    while folder != root and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent


class Ledger:
    """All changes of a profile. `root` is its home; edits name files in it."""

    def __init__(self, store: Store, root: Path, clock: Clock) -> None:
        self._store = store
        self._root = root
        self._clock = clock

    async def apply(self, change: Change) -> Change:
        """Apply a change. Raises `FileConflict`, and changes nothing, if a file is not as expected.

        Cancellation does not interrupt it, because the next start would have to complete it.
        """
        with anyio.CancelScope(shield=True):
            await self._put(change, ChangeState.APPLYING, was=None)
            failpoint("ledger.recorded")
            await self._finish(change)
        return change

    async def complete_interrupted(self) -> None:
        for change in await self._store.ledger.abandoned_changes():
            try:
                await self._finish(change)
            except FileConflict:
                continue  # recorded as failed

    async def log(self, kind: str | None = None, limit: int = 50) -> Sequence[LedgerEntry]:
        """The newest changes, oldest first."""
        return await self._store.ledger.changes(kind=kind, limit=limit)

    async def get(self, name: str) -> LedgerEntry:
        """Find by id, or by a unique ending of it. Raises `NotFound`."""
        return _find_by_id(await self.log(limit=1000), name, lambda entry: entry.change.id)

    async def undo(self, name: str, edits: Sequence[FileEdit] | None = None) -> Change:
        """Restore every file, byte for byte. Raises `FileConflict` if one has changed since.

        `edits` replace the default reversal. Undoing is a change itself, so it can be undone too.
        """
        entry = await self.get(name)
        original = entry.change
        if entry.state is not ChangeState.APPLIED:
            raise UsageError(f"The change {name} is {entry.state}, so there is nothing to undo.")
        if edits is None:
            edits = [structs.replace(e, before=e.after, after=e.before) for e in original.edits]
        reverse = structs.replace(
            original,
            id=new_id("chg"),
            at=self._clock.now(),
            by=Author.PERSON,
            summary=f"undo: {original.summary}",
            why=f"undo of {original.id}",
            edits=tuple(edits),
            undoes=original.id,
        )
        with anyio.CancelScope(shield=True):
            try:
                await self.apply(reverse)
            except FileConflict as error:
                hint = await self._later_changes_hint(original) or error.hint
                raise FileConflict(str(error), hint=hint) from error
            await self._put(original, ChangeState.UNDONE, was=ChangeState.APPLIED)
        return reverse

    async def _later_changes_hint(self, original: Change) -> str:
        from hermes.learning.diffs import short_id  # noqa: PLC0415 - imports difflib

        paths = {edit.path for edit in original.edits}
        entries = await self.log(limit=1000)
        ids = [entry.change.id for entry in entries]
        # The change may be older than the log; then the whole log is later.
        index = ids.index(original.id) if original.id in ids else -1
        applied = [e.change for e in entries[index + 1 :] if e.state is ChangeState.APPLIED]
        later = [
            short_id(change.id)
            for change in reversed(applied)
            if not paths.isdisjoint(edit.path for edit in change.edits)
        ]
        return (
            f"Undo these later changes first, in this order: {', '.join(later)}." if later else ""
        )

    async def forget(self, before: datetime) -> int:
        """Delete changes and decided proposals from before then; they can no longer be undone."""
        return await self._store.ledger.forget(before)

    async def propose(self, proposal: Proposal) -> None:
        """Add a proposal. Raises `UsageError` when too many are pending already."""
        if len(await self.waiting()) >= MAX_WAITING:
            raise UsageError(
                f"{MAX_WAITING} proposals are already waiting for a decision.",
                hint="Approve or reject some of them first: /changes",
            )
        await self._store.commit(AddProposal(proposal))

    async def waiting(self, kind: str | None = None) -> Sequence[Proposal]:
        return await self._store.ledger.proposals(
            kind=kind, state=ProposalState.WAITING, limit=_MAX_EXAMINED
        )

    async def proposed_before(self, kind: str, by: Author) -> Sequence[Proposal]:
        """Pending and decided proposals, as far as they are still stored."""
        return await self._store.ledger.proposals(kind=kind, by=by, limit=_MAX_EXAMINED)

    async def rejected(self, kind: str) -> tuple[Sequence[Change], Sequence[Proposal]]:
        """Changes of the agent that were undone, and its proposals that were rejected."""
        stored, limit = self._store.ledger, _MAX_EXAMINED
        entries = await stored.changes(kind=kind, state=ChangeState.UNDONE, limit=limit)
        proposals = await stored.proposals(kind=kind, state=ProposalState.REJECTED, limit=limit)
        undone = [entry.change for entry in entries]
        # For each undone change, the change that undid it, unless that is in effect.
        undoing = {change.undoes: change.id for change in undone}
        by_agent = [change for change in undone if change.by is not Author.PERSON]
        return (
            [change for change in by_agent if _is_still_undone(change, undoing)],
            proposals,
        )

    async def proposal(self, name: str) -> Proposal:
        """Find a pending proposal. Raises `NotFound`."""
        return _find_by_id(
            await self.waiting(), name, lambda proposal: proposal.id, listed_by="pending"
        )

    async def decide(self, proposal: Proposal, *, accepted: bool) -> None:
        """Close a proposal; the caller applies it. Raises `StateConflict`."""
        state = ProposalState.ACCEPTED if accepted else ProposalState.REJECTED
        await self._store.commit(DecideProposal(proposal.id, state, self._clock.now()))

    async def _finish(self, change: Change) -> None:
        try:
            await anyio.to_thread.run_sync(apply_edits, self._root, change.edits)
        except FileConflict:
            await self._put(change, ChangeState.FAILED, was=ChangeState.APPLYING)
            raise
        failpoint("ledger.applied")
        try:
            await self._put(change, ChangeState.APPLIED, was=ChangeState.APPLYING)
        except StateConflict:
            return  # another process completed it

    async def _put(self, change: Change, state: ChangeState, *, was: ChangeState | None) -> None:
        holder = self._store.workers.own if state is ChangeState.APPLYING else ""
        await self._store.commit(PutChange(change, state, was, holder))


def _is_still_undone(change: Change, undoing: Mapping[str, str]) -> bool:
    """Whether it is still undone, considering that an undo can itself be undone."""
    stays, last = True, undoing.get(change.id)
    while last is not None:
        stays, last = not stays, undoing.get(last)
    return stays


def _find_by_id(
    items: Sequence[T], name: str, id_of: Callable[[T], str], *, listed_by: str = "log"
) -> T:
    wanted = name.upper().removeprefix("CHG_").removeprefix("PRO_")
    found = [one for one in items if wanted and id_of(one).upper().endswith(wanted)]
    if len(found) == 1:
        return found[0]
    if found:
        raise NotFound(
            f"{len(found)} changes end in {name!r}.", hint="Give a longer part of the id."
        )
    raise NotFound(
        f"Unknown change: {name!r}.",
        hint=f"List the ids: hermes memory {listed_by}, or hermes skills {listed_by}",
    )
