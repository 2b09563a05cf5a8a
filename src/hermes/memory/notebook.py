"""Reads and changes the two files; every change goes through the ledger."""

import re
from collections.abc import Sequence
from pathlib import Path

import anyio
import msgspec
from msgspec import Raw, Struct, structs

from hermes.changes.change import Author, Change, Edit, Origin, Proposal, State
from hermes.changes.files import Drifted, present
from hermes.changes.ledger import Ledger
from hermes.kit.clock import Clock
from hermes.kit.files import write_atomic
from hermes.kit.ids import new_id
from hermes.memory.entries import Limits, Target, join, split, usage
from hermes.memory.operations import Operation, applied, summary

KIND = "memory"
_TRIES = 3


class Sheet(Struct, frozen=True):
    """One file as it is now. `odd`: it does not read back as it was written, so people edit it."""

    target: Target
    entries: tuple[str, ...]
    data: bytes | None
    limit: int
    odd: bool = False

    @property
    def usage(self) -> str:
        return usage(self.entries, self.limit)


class Full(Exception):
    """The file would be longer than it may be; `sheet` is what is in it."""

    def __init__(self, sheet: Sheet, wanted: int) -> None:
        super().__init__(f"{wanted:,} characters do not fit into {sheet.limit:,}")
        self.sheet = sheet


class Request(Struct, frozen=True, kw_only=True):
    """What is to change, by whom, and why."""

    target: Target
    operations: tuple[Operation, ...]
    by: Author
    origin: Origin = Origin()
    why: str = ""


class Notebook:
    def __init__(self, home: Path, ledger: Ledger, limits: Limits, clock: Clock) -> None:
        self._home = home
        self._ledger = ledger
        self._limits = limits
        self._clock = clock

    async def read(self, target: Target) -> Sheet:
        return await anyio.to_thread.run_sync(self.read_now, target)

    def read_now(self, target: Target) -> Sheet:
        data = present(self._home / target.file)
        text = "" if data is None else data.decode("utf-8", "replace")
        entries = tuple(split(text))
        odd = data is not None and join(entries).encode() != data.strip()
        return Sheet(target, entries, data, self._limits.of(target), odd)

    async def change(self, request: Request) -> Sheet:
        """Carry it out, all or nothing. Raises `Unfit`, `Full`, `Drifted`."""
        for attempt in range(1, _TRIES + 1):
            sheet = await self.read(request.target)
            if sheet.odd:
                await anyio.to_thread.run_sync(self._set_aside, sheet)
                raise Drifted(
                    f"{request.target.file} was edited by hand into a form that would lose "
                    "something when written again; a copy was saved beside it.",
                    hint="Separate its entries by lines that hold only §.",
                )
            after = applied(sheet.entries, request.operations)
            if len(join(after)) > sheet.limit:
                raise Full(sheet, len(join(after)))
            if after == list(sheet.entries):
                return sheet
            try:
                await self._ledger.apply(self._change(request, sheet, after))
            except Drifted:
                if attempt == _TRIES:
                    raise
                continue
            return structs.replace(sheet, entries=tuple(after), data=join(after).encode())
        raise AssertionError("unreachable")

    async def propose(self, request: Request) -> Proposal:
        """Let it wait for a person. It must be possible now. Raises `Unfit`, `Full`."""
        sheet = await self.read(request.target)
        after = applied(sheet.entries, request.operations)
        if len(join(after)) > sheet.limit:
            raise Full(sheet, len(join(after)))
        proposal = Proposal(
            id=new_id("pro"),
            kind=KIND,
            name=request.target,
            summary=summary(request.operations),
            by=request.by,
            at=self._clock.now(),
            request=Raw(msgspec.json.encode(request)),
            origin=request.origin,
            why=request.why,
        )
        await self._ledger.propose(proposal)
        return proposal

    async def proposed_before(self, by: Author) -> Sequence[Request]:
        """What waits, and what was decided about, of all that is still remembered."""
        found = await self._ledger.proposed_before(KIND, by)
        return [msgspec.json.decode(one.request, type=Request) for one in found]

    async def was_refused(self, operations: Sequence[Operation]) -> bool:
        """Whether a person took back, or rejected, something in the same words."""
        changes, proposals = await self._ledger.refusals(KIND)
        edits = [edit for change in changes for edit in change.edits]
        refused = {one for edit in edits for one in _entries(edit.after)}
        refused -= {one for edit in edits for one in _entries(edit.before)}
        for proposal in proposals:
            steps = msgspec.json.decode(proposal.request, type=Request).operations
            refused |= {step.content for step in steps}
        wanted = {_words(step.content) for step in operations} - {""}
        return not wanted.isdisjoint(map(_words, refused))

    async def undo(self, name: str) -> Change:
        """Take a change back; what came after it stays. Raises `NotFound`, `Drifted`, `Full`.

        What is not memory is put back as a whole, or not at all.
        """
        entry = await self._ledger.get(name)
        if entry.change.kind != KIND or entry.state is not State.APPLIED:
            return await self._ledger.undo(name)
        (edit,) = entry.change.edits
        sheet = await self.read(Target(entry.change.name))
        if sheet.data == edit.after:
            return await self._ledger.undo(name)
        without = _without(edit, sheet)
        if len(join(without)) > sheet.limit:
            raise Full(sheet, len(join(without)))
        data = join(without).encode() if without else None
        return await self._ledger.undo(name, [Edit(edit.path, sheet.data, data)])

    async def accept(self, proposal: Proposal) -> Sheet:
        """A person wants it: carried out on the file as it is by now."""
        sheet = await self.change(msgspec.json.decode(proposal.request, type=Request))
        await self._ledger.decide(proposal, accepted=True)
        return sheet

    def _change(self, request: Request, sheet: Sheet, after: Sequence[str]) -> Change:
        return Change(
            id=new_id("chg"),
            kind=KIND,
            name=request.target,
            summary=summary(request.operations),
            by=request.by,
            at=self._clock.now(),
            edits=(Edit(request.target.file, sheet.data, join(after).encode()),),
            origin=request.origin,
            why=request.why,
        )

    def _set_aside(self, sheet: Sheet) -> None:
        stamp = self._clock.now().strftime("%Y%m%d-%H%M%S")
        path = self._home / f"{sheet.target.file}.bak.{stamp}"
        if sheet.data is not None and not path.exists():
            write_atomic(path, sheet.data, mode=0o600)


def _without(edit: Edit, sheet: Sheet) -> list[str]:
    """The entries as they would be if that had never been done, and all else had."""
    before, after = _entries(edit.before), _entries(edit.after)
    added = [one for one in after if one not in before]
    removed = [one for one in before if one not in after and one not in sheet.entries]
    if sheet.odd or any(one not in sheet.entries for one in added):
        raise Drifted(
            f"What this did to {edit.path} was changed again since, so it was left as it is.",
            hint="Undo first what came later, or edit the file.",
        )
    place = min((sheet.entries.index(one) for one in added), default=len(sheet.entries))
    kept = [(n, one) for n, one in enumerate(sheet.entries) if one not in added]
    earlier = [one for n, one in kept if n < place]
    return [*earlier, *removed, *(one for n, one in kept if n >= place)]


def _entries(data: bytes | None) -> list[str]:
    return split((data or b"").decode("utf-8", "replace"))


def _words(text: str) -> str:
    """Without what two writings of the same may differ in."""
    return " ".join(re.findall(r"\w+", text.casefold()))
