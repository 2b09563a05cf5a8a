"""Reads and changes the two files; every change goes through the ledger."""

from collections.abc import Sequence
from pathlib import Path

import anyio
import msgspec
from msgspec import Raw, Struct, structs

from hermes.changes.change import Author, Change, Edit, Origin, Proposal
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

    async def propose_once(self, request: Request) -> Proposal | None:
        """None when the same was proposed before. Raises as `propose` does."""
        said = summary(request.operations)
        if await self._ledger.was_proposed(KIND, request.target, said):
            return None
        return await self.propose(request)

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
