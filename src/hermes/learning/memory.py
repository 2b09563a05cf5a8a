"""The agent's memory: notes about its work and about the user, in two small files."""

import re
from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache, reduce
from pathlib import Path
from typing import Literal

import anyio
import msgspec
from msgspec import Raw, Struct, structs

from hermes.kit.clock import Clock
from hermes.kit.files import write_atomic
from hermes.kit.ids import new_id
from hermes.kit.injection_scan import injection_reason
from hermes.learning.ledger import FileConflict, Ledger, read_if_present
from hermes.ports.ledger import Author, Change, ChangeOrigin, ChangeState, FileEdit, Proposal

SEPARATOR = "\n§\n"
MEMORY_FOLDER = "memories"
MEMORY_KIND = "memory"
_MAX_TRIES = 3
_RULE = "═" * 46


class MemoryTarget(StrEnum):
    """The agent's own notes, or what it knows about the user."""

    MEMORY = "memory"
    USER = "user"

    @property
    def file(self) -> str:
        return f"{MEMORY_FOLDER}/{self.upper()}.md"


class MemoryLimits(Struct, frozen=True):
    """Maximum characters per file, including separators."""

    memory: int = 2200
    user: int = 1375

    def for_target(self, target: MemoryTarget) -> int:
        return self.memory if target is MemoryTarget.MEMORY else self.user


def split_entries(text: str) -> list[str]:
    return [entry for part in text.split(SEPARATOR) if (entry := part.strip())]


def join_entries(entries: Sequence[str]) -> str:
    return SEPARATOR.join(entries)


def usage_label(entries: Sequence[str], limit: int) -> str:
    """As shown to the model: `1% — 30/2,200 chars`."""
    size = len(join_entries(entries))
    share = 100 * size // limit if limit else 100
    return f"{share}% — {size:,}/{limit:,} chars"


MemoryAction = Literal["add", "replace", "remove"]


class MemoryOperation(Struct, frozen=True, kw_only=True):
    """`old_text` is part of exactly one entry: the one to replace or remove."""

    action: MemoryAction
    content: str = ""
    old_text: str = ""


class InvalidOperation(Exception):
    """The operation is not possible; the message tells the model what to do instead."""


def apply_operations(entries: Sequence[str], operations: Sequence[MemoryOperation]) -> list[str]:
    """Return the resulting entries. Raises `InvalidOperation`."""
    return reduce(_apply_one, operations, list(entries))


def summarize_operations(operations: Sequence[MemoryOperation]) -> str:
    """Describe the operations to a person, in one line."""
    return "; ".join(map(_operation_line, operations)) or "nothing"


def _apply_one(entries: list[str], operation: MemoryOperation) -> list[str]:
    match operation.action:
        case "add":
            content = _check_content(operation.content)
            return entries if content in entries else [*entries, content]
        case "replace":
            index = _entry_index(entries, operation.old_text)
            content = _check_content(operation.content)
            return [*entries[:index], content, *entries[index + 1 :]]
        case "remove":
            index = _entry_index(entries, operation.old_text)
            return [*entries[:index], *entries[index + 1 :]]


def _check_content(content: str) -> str:
    content = content.strip()
    if not content:
        raise InvalidOperation("`content` is empty.")
    if "\n§\n" in f"\n{content}\n" or content.startswith("§"):
        raise InvalidOperation("An entry cannot contain a line with only §; add several entries.")
    if why := injection_reason(content):
        raise InvalidOperation(f"This was not remembered: it {why}. Rephrase it or leave it out.")
    return content


def _entry_index(entries: Sequence[str], old_text: str) -> int:
    wanted = old_text.strip()
    if not wanted:
        raise InvalidOperation("`old_text` is empty: give a part of the entry.")
    exact = [index for index, entry in enumerate(entries) if entry == wanted]
    found = exact or [index for index, entry in enumerate(entries) if wanted in entry]
    if not found:
        raise InvalidOperation(f"No entry contains {wanted[:80]!r}.")
    if len(found) > 1:
        raise InvalidOperation(
            f"{len(found)} entries contain {wanted[:80]!r}: give a longer part of the one you mean."
        )
    return found[0]


def _operation_line(operation: MemoryOperation) -> str:
    text = operation.content or operation.old_text
    first = text.strip().splitlines()[0] if text.strip() else ""
    return f"{operation.action} “{first[:60]}{'…' if len(first) > 60 else ''}”"


class MemoryFile(Struct, frozen=True):
    """The content of one file; `irregular` if rewriting it would change more than the entries."""

    target: MemoryTarget
    entries: tuple[str, ...]
    data: bytes | None
    limit: int
    irregular: bool = False

    @property
    def usage(self) -> str:
        return usage_label(self.entries, self.limit)


class MemoryFull(Exception):
    """The file would exceed its limit; `file` is its content."""

    def __init__(self, file: MemoryFile, wanted: int) -> None:
        super().__init__(f"{wanted:,} characters do not fit into {file.limit:,}")
        self.file = file


class MemoryRequest(Struct, frozen=True, kw_only=True):
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
        irregular = data is not None and join_entries(entries).encode() != data.strip()
        return MemoryFile(target, entries, data, self._limits.for_target(target), irregular)

    async def change(self, request: MemoryRequest) -> MemoryFile:
        """Apply the operations.

        Raises `InvalidOperation`, `MemoryFull` or `FileConflict`, changing nothing.
        """
        for attempt in range(1, _MAX_TRIES + 1):
            file = await self.read(request.target)
            if file.irregular:
                await anyio.to_thread.run_sync(self._set_aside, file)
                raise FileConflict(
                    f"{request.target.file} was edited by hand and would lose content when "
                    "rewritten; a copy was saved next to it.",
                    hint="Separate entries with lines that contain only §.",
                )
            after = _checked_size(apply_operations(file.entries, request.operations), file)
            if after == list(file.entries):
                return file
            try:
                await self._ledger.apply(self._change(request, file, after))
            except FileConflict:
                if attempt == _MAX_TRIES:
                    raise
                continue
            return structs.replace(file, entries=tuple(after), data=join_entries(after).encode())
        raise AssertionError("unreachable")

    async def propose(self, request: MemoryRequest) -> Proposal:
        """Propose the operations. Raises `InvalidOperation` or `MemoryFull`."""
        file = await self.read(request.target)
        _checked_size(apply_operations(file.entries, request.operations), file)
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
        """Return the stored proposals by this author, pending and decided."""
        found = await self._ledger.proposed_before(MEMORY_KIND, by)
        return [msgspec.json.decode(proposal.request, type=MemoryRequest) for proposal in found]

    async def was_rejected(self, operations: Sequence[MemoryOperation]) -> bool:
        """Whether a person undid or rejected the same text before."""
        changes, proposals = await self._ledger.rejected(MEMORY_KIND)
        edits = [edit for change in changes for edit in change.edits]
        rejected = {entry for edit in edits for entry in _decode_entries(edit.after)}
        rejected -= {entry for edit in edits for entry in _decode_entries(edit.before)}
        for proposal in proposals:
            steps = msgspec.json.decode(proposal.request, type=MemoryRequest).operations
            rejected |= {step.content for step in steps}
        wanted = {_normalized(step.content) for step in operations} - {""}
        return not wanted.isdisjoint(map(_normalized, rejected))

    async def undo(self, name: str) -> Change:
        """Undo a change; later ones stay. Raises `NotFound`, `FileConflict`, `MemoryFull`.

        Changes of other kinds are restored as a whole, or not at all.
        """
        entry = await self._ledger.get(name)
        if entry.change.kind != MEMORY_KIND or entry.state is not ChangeState.APPLIED:
            return await self._ledger.undo(name)
        (edit,) = entry.change.edits
        file = await self.read(MemoryTarget(entry.change.name))
        if file.data == edit.after:
            return await self._ledger.undo(name)
        without = _checked_size(_entries_without(edit, file), file)
        data = join_entries(without).encode() if without else None
        return await self._ledger.undo(name, [FileEdit(edit.path, file.data, data)])

    async def accept(self, proposal: Proposal) -> MemoryFile:
        file = await self.change(msgspec.json.decode(proposal.request, type=MemoryRequest))
        await self._ledger.decide(proposal, accepted=True)
        return file

    def _change(self, request: MemoryRequest, file: MemoryFile, after: Sequence[str]) -> Change:
        return Change(
            id=new_id("chg"),
            kind=MEMORY_KIND,
            name=request.target,
            summary=summarize_operations(request.operations),
            by=request.by,
            at=self._clock.now(),
            edits=(FileEdit(request.target.file, file.data, join_entries(after).encode()),),
            origin=request.origin,
            why=request.why,
        )

    def _set_aside(self, file: MemoryFile) -> None:
        stamp = self._clock.now().strftime("%Y%m%d-%H%M%S")
        path = self._home / f"{file.target.file}.bak.{stamp}"
        if file.data is not None and not path.exists():
            write_atomic(path, file.data, mode=0o600)


def _checked_size(entries: list[str], file: MemoryFile) -> list[str]:
    size = len(join_entries(entries))
    if size > file.limit:
        raise MemoryFull(file, size)
    return entries


def _entries_without(edit: FileEdit, file: MemoryFile) -> list[str]:
    """The entries as if the change had never been made, with all later changes."""
    before, after = _decode_entries(edit.before), _decode_entries(edit.after)
    added = [entry for entry in after if entry not in before]
    removed = [entry for entry in before if entry not in {*after, *file.entries}]
    if file.irregular or not {*added} <= {*file.entries}:
        raise FileConflict(
            f"{edit.path} was changed again since, so this cannot be undone.",
            hint="Undo the later changes first, or edit the file.",
        )
    index = min(map(file.entries.index, added), default=len(file.entries))
    later = [entry for entry in file.entries[index:] if entry not in added]
    return [*file.entries[:index], *removed, *later]


def _decode_entries(data: bytes | None) -> list[str]:
    return split_entries((data or b"").decode("utf-8", "replace"))


def _normalized(text: str) -> str:
    """Ignore differences in case, spacing and punctuation."""
    return " ".join(re.findall(r"\w+", text.casefold()))


_TITLES = {
    MemoryTarget.MEMORY: "MEMORY (your personal notes)",
    MemoryTarget.USER: "USER PROFILE (who the user is)",
}


def memory_prompt(store: MemoryStore, *, memory: bool, user: bool) -> str:
    """The memory section of the prompt; empty without entries."""
    wanted = [MemoryTarget.MEMORY] * memory + [MemoryTarget.USER] * user
    files = [store.read_now(target) for target in wanted]
    return "\n\n".join(_file_block(file) for file in files if file.entries)


@lru_cache(maxsize=8)
def _file_block(file: MemoryFile) -> str:
    """Render a file; a note replaces entries that bypassed the scan for injected instructions."""
    shown = [
        f"[BLOCKED: this entry {why}]" if (why := injection_reason(entry)) else entry
        for entry in file.entries
    ]
    title = f"{_TITLES[file.target]} [{usage_label(file.entries, file.limit)}]"
    return "\n".join([_RULE, title, _RULE, join_entries(shown)])
