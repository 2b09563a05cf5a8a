"""The book of changes: written down, then carried out; undone by carrying out the reverse."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import anyio
import msgspec
from msgspec import Raw, structs

from hermes.kit.clock import Clock
from hermes.kit.errors import UsageError
from hermes.kit.failpoints import failpoint
from hermes.kit.ids import new_id
from hermes.kit.process_identity import process_id
from hermes.learning.ledger.change import (
    Author,
    Change,
    ChangeState,
    FileConflict,
    FileEdit,
    LedgerEntry,
    Proposal,
    apply_edits,
)
from hermes.ports.records import PutRecord, StateRecord
from hermes.ports.store import Store
from hermes.schema.errors import NotFound, StateConflict

T = TypeVar("T")

_CHANGE_KIND = "change"
_PROPOSAL_KIND = "proposal"
_WAITING = "waiting"
_REJECTED = "rejected"
_MAX_EXAMINED = 1000
"""How many of a kind are looked at, the newest."""
MAX_WAITING = 200


class Ledger:
    """All changes of a profile. `root` is its home; edits name files below it."""

    def __init__(self, store: Store, root: Path, clock: Clock) -> None:
        self._store = store
        self._root = root
        self._clock = clock

    async def apply(self, change: Change) -> Change:
        """Carry it out. Raises `Drifted` when a file is not as expected, and changes nothing.

        Whoever gives up waiting meanwhile stops nothing: half of it would be left to a next start.
        """
        with anyio.CancelScope(shield=True):
            await self._put(change, ChangeState.APPLYING, was="")
            failpoint("ledger.noted")
            await self._finish(change)
        return change

    async def settle(self) -> None:
        """Bring what a crash interrupted to its end."""
        for matter in await self._store.records.abandoned(_CHANGE_KIND):
            try:
                await self._finish(_decode_entry(matter).change)
            except FileConflict:
                continue  # it is in the book as failed

    async def log(self, kind: str | None = None, limit: int = 50) -> Sequence[LedgerEntry]:
        """The newest, oldest of them first."""
        fields = {} if kind is None else {"kind": kind}
        found = await self._store.records.matching(_CHANGE_KIND, fields, limit=limit)
        return [_decode_entry(one) for one in found]

    async def get(self, name: str) -> LedgerEntry:
        """By its id, or by an end of it that is unique. Raises `NotFound`."""
        return _find_by_id(await self.log(limit=1000), name, lambda entry: entry.change.id)

    async def undo(self, name: str, edits: Sequence[FileEdit] | None = None) -> Change:
        """Put every file back as it was, byte for byte. Raises `Drifted` if one has changed since.

        `edits` are what to do instead. The undoing is a change of its own, so it can be undone
        as well.
        """
        entry = await self.get(name)
        done = entry.change
        if entry.state is not ChangeState.APPLIED:
            raise UsageError(f"The change {name} is {entry.state}, so there is nothing to undo.")
        if edits is None:
            edits = [structs.replace(e, before=e.after, after=e.before) for e in done.edits]
        reverse = structs.replace(
            done,
            id=new_id("chg"),
            at=self._clock.now(),
            by=Author.PERSON,
            summary=f"undo: {done.summary}",
            why=f"undo of {done.id}",
            edits=tuple(edits),
            undoes=done.id,
        )
        with anyio.CancelScope(shield=True):
            try:
                await self.apply(reverse)
            except FileConflict as error:
                hint = await self._later_changes_hint(done) or error.hint
                raise FileConflict(str(error), hint=hint) from error
            await self._put(done, ChangeState.UNDONE, was=ChangeState.APPLIED)
        return reverse

    async def _later_changes_hint(self, done: Change) -> str:
        from hermes.learning.ledger.diffs import short_id  # noqa: PLC0415 - it can compare texts

        paths = {edit.path for edit in done.edits}
        entries = await self.log(limit=1000)
        ids = [entry.change.id for entry in entries]
        # The attempt to undo it may have been one too many: all that is left came later.
        place = ids.index(done.id) if done.id in ids else -1
        later = [
            short_id(entry.change.id)
            for entry in reversed(entries[place + 1 :])
            if entry.state is ChangeState.APPLIED
            and paths & {edit.path for edit in entry.change.edits}
        ]
        return f"Undo first what came later, in this order: {', '.join(later)}." if later else ""

    async def forget(self, before: datetime) -> int:
        """Drop changes and decided proposals from before that; they cannot be undone any more."""
        records = self._store.records
        return await records.forget(_CHANGE_KIND, before) + await records.forget(
            _PROPOSAL_KIND, before
        )

    async def propose(self, proposal: Proposal) -> None:
        """Raises `UsageError` when too many wait already: a flood is not worth reading."""
        if len(await self._store.records.find(_PROPOSAL_KIND, only_open=True)) >= MAX_WAITING:
            raise UsageError(
                f"{MAX_WAITING} proposals wait for the person already.",
                hint="Let them decide about those first.",
            )
        body = Raw(msgspec.json.encode(proposal))
        matter = StateRecord(
            kind=_PROPOSAL_KIND,
            id=proposal.id,
            session=proposal.origin.session,
            state=_WAITING,
            at=proposal.at,
            body=body,
        )
        await self._store.commit(PutRecord(matter, was=""))

    async def waiting(self, kind: str | None = None) -> Sequence[Proposal]:
        found = await self._store.records.find(_PROPOSAL_KIND, only_open=True)
        proposals = [msgspec.json.decode(one.body, type=Proposal) for one in found]
        return [one for one in proposals if kind in {None, one.kind}]

    async def proposed_before(self, kind: str, by: Author) -> Sequence[Proposal]:
        """What waits, and what was decided about, of all that is still remembered."""
        fields = {"kind": kind, "by": by.value}
        found = await self._store.records.matching(_PROPOSAL_KIND, fields, limit=_MAX_EXAMINED)
        return [msgspec.json.decode(one.body, type=Proposal) for one in found]

    async def refusals(self, kind: str) -> tuple[Sequence[Change], Sequence[Proposal]]:
        """What the agent did that was undone, and what it proposed that was rejected."""
        records, fields = self._store.records, {"kind": kind}
        undone = [
            _decode_entry(one).change
            for one in await records.matching(
                _CHANGE_KIND, fields, state=ChangeState.UNDONE, limit=_MAX_EXAMINED
            )
        ]
        rejected = await records.matching(
            _PROPOSAL_KIND, fields, state=_REJECTED, limit=_MAX_EXAMINED
        )
        # Of those that were undone: by which undoing, as far as that was undone as well.
        undoing = {one.undoes: one.id for one in undone}
        return (
            [
                one
                for one in undone
                if one.by is not Author.PERSON and _is_still_undone(one, undoing)
            ],
            [msgspec.json.decode(one.body, type=Proposal) for one in rejected],
        )

    async def proposal(self, name: str) -> Proposal:
        """One that waits. Raises `NotFound`."""
        return _find_by_id(await self.waiting(), name, lambda one: one.id)

    async def decide(self, proposal: Proposal, *, accepted: bool) -> None:
        """It waits no more; whoever makes such changes carries it out. Raises `Overtaken`."""
        found = await self._store.records.get(_PROPOSAL_KIND, proposal.id)
        if found is None:
            raise NotFound(f"There is no proposal {proposal.id}.")
        state = "accepted" if accepted else _REJECTED
        after = structs.replace(found, state=state, open=False, at=self._clock.now())
        await self._store.commit(PutRecord(after, was=_WAITING))

    async def _finish(self, change: Change) -> None:
        try:
            await anyio.to_thread.run_sync(apply_edits, self._root, change.edits)
        except FileConflict:
            await self._put(change, ChangeState.FAILED, was=ChangeState.APPLYING)
            raise
        failpoint("ledger.carried_out")
        try:
            await self._put(change, ChangeState.APPLIED, was=ChangeState.APPLYING)
        except StateConflict:
            return  # another process settled it after us

    async def _put(self, change: Change, state: ChangeState, *, was: str) -> None:
        matter = StateRecord(
            kind=_CHANGE_KIND,
            id=change.id,
            session="",  # what was learned outlives the session it was learned in
            state=state,
            at=change.at,
            body=Raw(msgspec.json.encode(change)),
            open=state is ChangeState.APPLYING,
            holder=process_id() if state is ChangeState.APPLYING else "",
        )
        await self._store.commit(PutRecord(matter, was=was))


def _decode_entry(matter: StateRecord) -> LedgerEntry:
    return LedgerEntry(msgspec.json.decode(matter.body, type=Change), ChangeState(matter.state))


def _is_still_undone(change: Change, undoing: Mapping[str, str]) -> bool:
    """Whether it is undone still: not when the undoing was undone, unless that was as well."""
    stays, last = True, undoing.get(change.id)
    while last is not None:
        stays, last = not stays, undoing.get(last)
    return stays


def _find_by_id(things: Sequence[T], name: str, id_of: Callable[[T], str]) -> T:
    wanted = name.upper().removeprefix("CHG_").removeprefix("PRO_")
    found = [one for one in things if wanted and id_of(one).upper().endswith(wanted)]
    if len(found) == 1:
        return found[0]
    if found:
        raise NotFound(f"{len(found)} changes end in {name!r}.", hint="Give more of the id.")
    raise NotFound(
        f"There is no change {name!r} here.",
        hint="Its id is the first word of its line in the log.",
    )
