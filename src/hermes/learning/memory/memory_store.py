"""Reads and changes the two files; every change goes through the ledger."""

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import anyio
import msgspec
from msgspec import Raw, Struct, structs

from hermes.kit.clock import Clock
from hermes.kit.files import write_atomic
from hermes.kit.ids import new_id
from hermes.kit.injection_scan import injection_reason
from hermes.learning.ledger.change import (
    Author,
    Change,
    ChangeOrigin,
    ChangeState,
    FileConflict,
    FileEdit,
    Proposal,
    read_if_present,
)
from hermes.learning.ledger.ledger import Ledger
from hermes.learning.memory.entries import (
    MemoryLimits,
    MemoryOperation,
    MemoryTarget,
    apply_operations,
    join_entries,
    split_entries,
    summarize_operations,
    usage_label,
)

MEMORY_KIND = "memory"
_MAX_TRIES = 3


class MemoryFile(Struct, frozen=True):
    """One file as it is now. `odd`: it does not read back as it was written, so people edit it."""

    target: MemoryTarget
    entries: tuple[str, ...]
    data: bytes | None
    limit: int
    odd: bool = False

    @property
    def usage(self) -> str:
        return usage_label(self.entries, self.limit)


class MemoryFull(Exception):
    """The file would be longer than it may be; `sheet` is what is in it."""

    def __init__(self, sheet: MemoryFile, wanted: int) -> None:
        super().__init__(f"{wanted:,} characters do not fit into {sheet.limit:,}")
        self.sheet = sheet


class MemoryRequest(Struct, frozen=True, kw_only=True):
    """What is to change, by whom, and why."""

    target: MemoryTarget
    operations: tuple[MemoryOperation, ...]
    by: Author
    origin: ChangeOrigin = ChangeOrigin()
    why: str = ""


class MemoryStore:
    def __init__(self, home: Path, ledger: Ledger, limits: MemoryLimits, clock: Clock) -> None:
        self._home = home
        self._ledger = ledger
        self._limits = limits
        self._clock = clock

    async def read(self, target: MemoryTarget) -> MemoryFile:
        return await anyio.to_thread.run_sync(self.read_now, target)

    def read_now(self, target: MemoryTarget) -> MemoryFile:
        data = read_if_present(self._home / target.file)
        text = "" if data is None else data.decode("utf-8", "replace")
        entries = tuple(split_entries(text))
        odd = data is not None and join_entries(entries).encode() != data.strip()
        return MemoryFile(target, entries, data, self._limits.of(target), odd)

    async def change(self, request: MemoryRequest) -> MemoryFile:
        """Carry it out, all or nothing. Raises `Unfit`, `Full`, `Drifted`."""
        for attempt in range(1, _MAX_TRIES + 1):
            sheet = await self.read(request.target)
            if sheet.odd:
                await anyio.to_thread.run_sync(self._set_aside, sheet)
                raise FileConflict(
                    f"{request.target.file} was edited by hand into a form that would lose "
                    "something when written again; a copy was saved beside it.",
                    hint="Separate its entries by lines that hold only §.",
                )
            after = apply_operations(sheet.entries, request.operations)
            if len(join_entries(after)) > sheet.limit:
                raise MemoryFull(sheet, len(join_entries(after)))
            if after == list(sheet.entries):
                return sheet
            try:
                await self._ledger.apply(self._change(request, sheet, after))
            except FileConflict:
                if attempt == _MAX_TRIES:
                    raise
                continue
            return structs.replace(sheet, entries=tuple(after), data=join_entries(after).encode())
        raise AssertionError("unreachable")

    async def propose(self, request: MemoryRequest) -> Proposal:
        """Let it wait for a person. It must be possible now. Raises `Unfit`, `Full`."""
        sheet = await self.read(request.target)
        after = apply_operations(sheet.entries, request.operations)
        if len(join_entries(after)) > sheet.limit:
            raise MemoryFull(sheet, len(join_entries(after)))
        proposal = Proposal(
            id=new_id("pro"),
            kind=MEMORY_KIND,
            name=request.target,
            summary=summarize_operations(request.operations),
            by=request.by,
            at=self._clock.now(),
            request=Raw(msgspec.json.encode(request)),
            origin=request.origin,
            why=request.why,
        )
        await self._ledger.propose(proposal)
        return proposal

    async def proposed_before(self, by: Author) -> Sequence[MemoryRequest]:
        """What waits, and what was decided about, of all that is still remembered."""
        found = await self._ledger.proposed_before(MEMORY_KIND, by)
        return [msgspec.json.decode(one.request, type=MemoryRequest) for one in found]

    async def was_refused(self, operations: Sequence[MemoryOperation]) -> bool:
        """Whether a person took back, or rejected, something in the same words."""
        changes, proposals = await self._ledger.refusals(MEMORY_KIND)
        edits = [edit for change in changes for edit in change.edits]
        refused = {one for edit in edits for one in _decode_entries(edit.after)}
        refused -= {one for edit in edits for one in _decode_entries(edit.before)}
        for proposal in proposals:
            steps = msgspec.json.decode(proposal.request, type=MemoryRequest).operations
            refused |= {step.content for step in steps}
        wanted = {_normalized(step.content) for step in operations} - {""}
        return not wanted.isdisjoint(map(_normalized, refused))

    async def undo(self, name: str) -> Change:
        """Take a change back; what came after it stays. Raises `NotFound`, `Drifted`, `Full`.

        What is not memory is put back as a whole, or not at all.
        """
        entry = await self._ledger.get(name)
        if entry.change.kind != MEMORY_KIND or entry.state is not ChangeState.APPLIED:
            return await self._ledger.undo(name)
        (edit,) = entry.change.edits
        sheet = await self.read(MemoryTarget(entry.change.name))
        if sheet.data == edit.after:
            return await self._ledger.undo(name)
        without = _entries_without(edit, sheet)
        if len(join_entries(without)) > sheet.limit:
            raise MemoryFull(sheet, len(join_entries(without)))
        data = join_entries(without).encode() if without else None
        return await self._ledger.undo(name, [FileEdit(edit.path, sheet.data, data)])

    async def accept(self, proposal: Proposal) -> MemoryFile:
        """A person wants it: carried out on the file as it is by now."""
        sheet = await self.change(msgspec.json.decode(proposal.request, type=MemoryRequest))
        await self._ledger.decide(proposal, accepted=True)
        return sheet

    def _change(self, request: MemoryRequest, sheet: MemoryFile, after: Sequence[str]) -> Change:
        return Change(
            id=new_id("chg"),
            kind=MEMORY_KIND,
            name=request.target,
            summary=summarize_operations(request.operations),
            by=request.by,
            at=self._clock.now(),
            edits=(FileEdit(request.target.file, sheet.data, join_entries(after).encode()),),
            origin=request.origin,
            why=request.why,
        )

    def _set_aside(self, sheet: MemoryFile) -> None:
        stamp = self._clock.now().strftime("%Y%m%d-%H%M%S")
        path = self._home / f"{sheet.target.file}.bak.{stamp}"
        if sheet.data is not None and not path.exists():
            write_atomic(path, sheet.data, mode=0o600)


def _entries_without(edit: FileEdit, sheet: MemoryFile) -> list[str]:
    """The entries as they would be if that had never been done, and all else had."""
    before, after = _decode_entries(edit.before), _decode_entries(edit.after)
    added = [one for one in after if one not in before]
    removed = [one for one in before if one not in after and one not in sheet.entries]
    if sheet.odd or any(one not in sheet.entries for one in added):
        raise FileConflict(
            f"What this did to {edit.path} was changed again since, so it was left as it is.",
            hint="Undo first what came later, or edit the file.",
        )
    place = min((sheet.entries.index(one) for one in added), default=len(sheet.entries))
    kept = [(n, one) for n, one in enumerate(sheet.entries) if one not in added]
    earlier = [one for n, one in kept if n < place]
    return [*earlier, *removed, *(one for n, one in kept if n >= place)]


def _decode_entries(data: bytes | None) -> list[str]:
    return split_entries((data or b"").decode("utf-8", "replace"))


def _normalized(text: str) -> str:
    """Without what two writings of the same may differ in."""
    return " ".join(re.findall(r"\w+", text.casefold()))


_RULE = "═" * 46
_TITLES = {
    MemoryTarget.MEMORY: "MEMORY (your personal notes)",
    MemoryTarget.USER: "USER PROFILE (who the user is)",
}


def memory_prompt(notebook: MemoryStore, *, memory: bool, user: bool) -> str:
    """What to put into a prompt; empty when nothing is remembered."""
    wanted = [MemoryTarget.MEMORY] * memory + [MemoryTarget.USER] * user
    sheets = [notebook.read_now(target) for target in wanted]
    return "\n\n".join(_file_block(sheet) for sheet in sheets if sheet.entries)


@lru_cache(maxsize=8)
def _file_block(sheet: MemoryFile) -> str:
    """An entry that somebody slipped in past the scan is named, not shown."""
    shown = [
        f"[BLOCKED: this entry {why}]" if (why := injection_reason(entry)) else entry
        for entry in sheet.entries
    ]
    title = f"{_TITLES[sheet.target]} [{usage_label(sheet.entries, sheet.limit)}]"
    return "\n".join([_RULE, title, _RULE, join_entries(shown)])
