"""The book of changes: written down, then carried out; undone by carrying out the reverse."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import anyio
import msgspec
from msgspec import Raw, structs

from hermes.changes.change import Author, Change, Edit, Entry, Proposal, State
from hermes.changes.files import Drifted, carry_out
from hermes.kit.clock import Clock
from hermes.kit.errors import UsageError
from hermes.kit.failpoints import passing
from hermes.kit.holder import this_process
from hermes.kit.ids import new_id
from hermes.ports.matters import Matter, PutMatter
from hermes.ports.store import Store
from hermes.schema.errors import NotFound, Overtaken

T = TypeVar("T")

_CHANGE = "change"
_PROPOSAL = "proposal"
_WAITING = "waiting"
_REJECTED = "rejected"
_REMEMBERED = 1000
"""How many of a kind are looked at, the newest."""
MOST_WAITING = 200


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
            await self._put(change, State.APPLYING, was="")
            passing("ledger.noted")
            await self._finish(change)
        return change

    async def settle(self) -> None:
        """Bring what a crash interrupted to its end."""
        for matter in await self._store.matters.abandoned(_CHANGE):
            try:
                await self._finish(_read(matter).change)
            except Drifted:
                continue  # it is in the book as failed

    async def log(self, kind: str | None = None, limit: int = 50) -> Sequence[Entry]:
        """The newest, oldest of them first."""
        fields = {} if kind is None else {"kind": kind}
        found = await self._store.matters.matching(_CHANGE, fields, limit=limit)
        return [_read(one) for one in found]

    async def get(self, name: str) -> Entry:
        """By its id, or by an end of it that is unique. Raises `NotFound`."""
        return _one_of(await self.log(limit=1000), name, lambda entry: entry.change.id)

    async def undo(self, name: str, edits: Sequence[Edit] | None = None) -> Change:
        """Put every file back as it was, byte for byte. Raises `Drifted` if one has changed since.

        `edits` are what to do instead. The undoing is a change of its own, so it can be undone
        as well.
        """
        entry = await self.get(name)
        done = entry.change
        if entry.state is not State.APPLIED:
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
            except Drifted as error:
                hint = await self._what_came_later(done) or error.hint
                raise Drifted(str(error), hint=hint) from error
            await self._put(done, State.UNDONE, was=State.APPLIED)
        return reverse

    async def _what_came_later(self, done: Change) -> str:
        from hermes.changes.differences import short  # noqa: PLC0415 - it can compare texts

        paths = {edit.path for edit in done.edits}
        entries = await self.log(limit=1000)
        ids = [entry.change.id for entry in entries]
        # The attempt to undo it may have been one too many: all that is left came later.
        place = ids.index(done.id) if done.id in ids else -1
        later = [
            short(entry.change.id)
            for entry in reversed(entries[place + 1 :])
            if entry.state is State.APPLIED and paths & {edit.path for edit in entry.change.edits}
        ]
        return f"Undo first what came later, in this order: {', '.join(later)}." if later else ""

    async def forget(self, before: datetime) -> int:
        """Drop changes and decided proposals from before that; they cannot be undone any more."""
        matters = self._store.matters
        return await matters.forget(_CHANGE, before) + await matters.forget(_PROPOSAL, before)

    async def propose(self, proposal: Proposal) -> None:
        """Raises `UsageError` when too many wait already: a flood is not worth reading."""
        if len(await self._store.matters.find(_PROPOSAL, only_open=True)) >= MOST_WAITING:
            raise UsageError(
                f"{MOST_WAITING} proposals wait for the person already.",
                hint="Let them decide about those first.",
            )
        body = Raw(msgspec.json.encode(proposal))
        matter = Matter(
            kind=_PROPOSAL,
            id=proposal.id,
            session=proposal.origin.session,
            state=_WAITING,
            at=proposal.at,
            body=body,
        )
        await self._store.commit(PutMatter(matter, was=""))

    async def waiting(self, kind: str | None = None) -> Sequence[Proposal]:
        found = await self._store.matters.find(_PROPOSAL, only_open=True)
        proposals = [msgspec.json.decode(one.body, type=Proposal) for one in found]
        return [one for one in proposals if kind in {None, one.kind}]

    async def proposed_before(self, kind: str, by: Author) -> Sequence[Proposal]:
        """What waits, and what was decided about, of all that is still remembered."""
        fields = {"kind": kind, "by": by.value}
        found = await self._store.matters.matching(_PROPOSAL, fields, limit=_REMEMBERED)
        return [msgspec.json.decode(one.body, type=Proposal) for one in found]

    async def refusals(self, kind: str) -> tuple[Sequence[Change], Sequence[Proposal]]:
        """What the agent did that was undone, and what it proposed that was rejected."""
        matters, fields = self._store.matters, {"kind": kind}
        undone = [
            _read(one).change
            for one in await matters.matching(
                _CHANGE, fields, state=State.UNDONE, limit=_REMEMBERED
            )
        ]
        rejected = await matters.matching(_PROPOSAL, fields, state=_REJECTED, limit=_REMEMBERED)
        # Of those that were undone: by which undoing, as far as that was undone as well.
        undoing = {one.undoes: one.id for one in undone}
        return (
            [one for one in undone if one.by is not Author.PERSON and _stays(one, undoing)],
            [msgspec.json.decode(one.body, type=Proposal) for one in rejected],
        )

    async def proposal(self, name: str) -> Proposal:
        """One that waits. Raises `NotFound`."""
        return _one_of(await self.waiting(), name, lambda one: one.id)

    async def decide(self, proposal: Proposal, *, accepted: bool) -> None:
        """It waits no more; whoever makes such changes carries it out. Raises `Overtaken`."""
        found = await self._store.matters.get(_PROPOSAL, proposal.id)
        if found is None:
            raise NotFound(f"There is no proposal {proposal.id}.")
        state = "accepted" if accepted else _REJECTED
        after = structs.replace(found, state=state, open=False, at=self._clock.now())
        await self._store.commit(PutMatter(after, was=_WAITING))

    async def _finish(self, change: Change) -> None:
        try:
            await anyio.to_thread.run_sync(carry_out, self._root, change.edits)
        except Drifted:
            await self._put(change, State.FAILED, was=State.APPLYING)
            raise
        passing("ledger.carried_out")
        try:
            await self._put(change, State.APPLIED, was=State.APPLYING)
        except Overtaken:
            return  # another process settled it after us

    async def _put(self, change: Change, state: State, *, was: str) -> None:
        matter = Matter(
            kind=_CHANGE,
            id=change.id,
            session="",  # what was learned outlives the session it was learned in
            state=state,
            at=change.at,
            body=Raw(msgspec.json.encode(change)),
            open=state is State.APPLYING,
            holder=this_process() if state is State.APPLYING else "",
        )
        await self._store.commit(PutMatter(matter, was=was))


def _read(matter: Matter) -> Entry:
    return Entry(msgspec.json.decode(matter.body, type=Change), State(matter.state))


def _stays(change: Change, undoing: Mapping[str, str]) -> bool:
    """Whether it is undone still: not when the undoing was undone, unless that was as well."""
    stays, last = True, undoing.get(change.id)
    while last is not None:
        stays, last = not stays, undoing.get(last)
    return stays


def _one_of(things: Sequence[T], name: str, id_of: Callable[[T], str]) -> T:
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
