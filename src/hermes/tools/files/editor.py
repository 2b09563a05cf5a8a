"""Write files for the file tools: with approval, locked, all-or-nothing, and with provenance."""

import os
from collections.abc import AsyncGenerator, Collection, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from weakref import WeakValueDictionary

import anyio
from msgspec import Struct

from hermes.kit.files import write_error_hint
from hermes.kit.lru_map import LruMap
from hermes.ports.approvals import ApprovalRequest, Isolation
from hermes.ports.tool import ToolContext
from hermes.schema.errors import ToolError
from hermes.schema.scope import Role, Scope
from hermes.tools.files.file_changes import FileChange, apply_changes
from hermes.tools.files.lint import LintResult, SyntaxChecker
from hermes.tools.files.safe_open import Forbids, forbid_nothing, open_folder, resolve_or_same
from hermes.tools.paths import SessionPaths
from hermes.tools.provenance.command_provenance import untrusted_workspace
from hermes.tools.provenance.file_provenance import FileProvenance
from hermes.tools.provenance.instruction_files import instruction_files_among
from hermes.tools.thread_runner import ThreadRunner

MAX_EDITED = 50 << 20
"""Bytes."""
NO_PATHS: frozenset[Path] = frozenset()
MAX_FILES = 8_192
FileStamp = tuple[int, int, int]


class WriteProvenance(Struct, frozen=True):
    """Which files of a change contain untrusted content, and which the owner wrote.

    `whole` means that the previous content is replaced completely.
    """

    foreign: frozenset[Path] = NO_PATHS
    trusted: frozenset[Path] = NO_PATHS
    whole: bool = False


class FileLocks:
    """Shared by all tools of a profile, even across platforms with separate tool sets."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[Path, anyio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def holding(self, paths: Iterable[Path]) -> AsyncGenerator[None]:
        """Lock resolved paths in a fixed order, so that two patches never deadlock."""
        async with AsyncExitStack() as stack:
            for path in sorted(set(paths)):
                # A lock lives as long as it is held or waited for.
                await stack.enter_async_context(self._locks.setdefault(path, anyio.Lock()))
            yield


class SeenFiles:
    """Remembers the state of the files each session has seen."""

    def __init__(self, limit: int = MAX_FILES) -> None:
        self._stamps: LruMap[tuple[str, Path], FileStamp] = LruMap(limit)

    def note(self, session: str, path: Path, stat: os.stat_result) -> None:
        self._stamps.put((session, path), _stamp(stat))

    def forget(self, session: str, path: Path) -> None:
        self._stamps.drop((session, path))

    def knows(self, session: str, path: Path) -> bool:
        return self._stamps.get((session, path)) is not None

    def changed(self, session: str, path: Path, stat: os.stat_result | None) -> bool:
        """Whether the session saw another state of this file than the one on disk."""
        known = self._stamps.get((session, path))
        return known is not None and (stat is None or _stamp(stat) != known)


def _stamp(stat: os.stat_result) -> FileStamp:
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


class FileEditor:
    """Shared by all tools that write, so that they use the same locks and records."""

    def __init__(
        self,
        paths: SessionPaths,
        seen: SeenFiles,
        threads: ThreadRunner,
        provenance: FileProvenance,
        syntax: SyntaxChecker | None = None,
        locks: FileLocks | None = None,
    ) -> None:
        self.provenance = provenance
        self.syntax = syntax
        self.locks = locks or FileLocks()
        self.paths = paths
        self.seen = seen
        self.threads = threads

    async def resolve_writable(self, ctx: ToolContext, name: str, tool: str, content: str) -> Path:
        """Resolve a path and ask to write it. Raises `ToolError` if that is denied.

        `content` is shown to the approver.
        """
        path = self.paths.resolve(ctx.scope, name)
        blocked = self.paths.blocked_for(ctx.scope)
        real = await self.threads.run(partial(self.paths.guard, path, blocked))
        await self._require_approval(ctx, real, tool, content)
        return real

    async def _require_approval(
        self, ctx: ToolContext, real: Path, tool: str, content: str
    ) -> None:
        beyond = self.paths.needs_write_approval(ctx.scope, real)
        request = ApprovalRequest(
            tool=tool,
            action=str(real),
            reaching=Isolation.BEYOND if beyond else Isolation.INSIDE,
            folder=str(real.parent),
            foreign=ctx.foreign,
            detail=content if beyond else "",
        )
        decision = await ctx.request_approval(request)
        if not decision.allowed:
            existing = "existing folders of " if self.paths.contains_home(ctx.scope) else ""
            free = f"Files in {existing}{ctx.scope.workspace} and /tmp need no approval."
            message = f"{real} was not written. {decision.why}".strip()
            raise ToolError(message, hint=free if beyond else "")

    async def provenance_of(
        self, ctx: ToolContext, paths: Collection[Path], text: str, *, whole: bool
    ) -> WriteProvenance:
        """Determine the provenance of a text about to be written, in a thread since it may be long.

        An instruction file must come from the owner's turn without untrusted content. `whole` means
        that nothing remains of the previous content.
        """
        workspace = await self.threads.run(partial(resolve_or_same, Path(ctx.scope.workspace)))
        if untrusted_workspace(ctx):
            await self.threads.run(partial(self._record_untrusted_work, workspace, paths))
        if await anyio.to_thread.run_sync(ctx.quotes, text):
            return WriteProvenance(foreign=frozenset(paths))
        instructions = await self.threads.run(partial(instruction_files_among, paths, workspace))
        if not instructions:
            return WriteProvenance()
        sources = await anyio.to_thread.run_sync(ctx.sources, text)
        untrusted = ctx.foreign or sources.untrusted or sources.quoted
        if ctx.scope.role is not Role.OWNER or untrusted:
            return WriteProvenance(foreign=instructions)
        # Parts of a file that others wrote may remain.
        foreign = [
            instruction
            for instruction in instructions
            if not whole and not self.provenance.may_instruct(instruction)
        ]
        return WriteProvenance(foreign=frozenset(foreign), trusted=instructions, whole=whole)

    def _record_untrusted_work(self, workspace: Path, paths: Collection[Path]) -> None:
        """Record untrusted work in a folder: it may become an instruction file later."""
        beyond = (path.parent for path in paths if not path.is_relative_to(workspace))
        for folder in dict.fromkeys([workspace, *beyond]):
            self.provenance.record_untrusted_work(folder)

    async def lint(self, lint: LintResult, path: Path, text: str, before: str | None) -> LintResult:
        """Run an external checker if the built-in one does not know the language."""
        if lint.status != "skipped" or lint.output or self.syntax is None:
            return lint
        return await self.syntax.check(path, text, before)

    async def apply(
        self,
        scope: Scope,
        changes: Sequence[FileChange],
        provenance: WriteProvenance | None = None,
    ) -> list[Path]:
        """Apply all changes or none, and return the folders created.

        Once started it runs to the end, even if the caller is cancelled.
        """
        session = scope.session
        work = partial(apply_changes, changes, self.paths.blocked_for(scope).forbids)
        try:
            made = await anyio.to_thread.run_sync(work)
        except OSError as error:
            message = f"nothing was changed: {error.filename}: {error.strerror}"
            raise ToolError(message, hint=write_error_hint(error)) from error
        for change in changes:
            if change.after is None:
                self.seen.forget(session, change.path)
            else:
                self._remember(session, change.path)
                self._record_provenance(change, provenance or WriteProvenance())
        return made

    def _remember(self, session: str, path: Path) -> None:
        try:
            self.seen.note(session, path, path.lstat())
        except OSError:
            # It was moved since: what is there next is not what we have seen.
            self.seen.forget(session, path)

    def _record_provenance(self, change: FileChange, provenance: WriteProvenance) -> None:
        origins, path = self.provenance, change.path
        origins.record_write(path, foreign=path in provenance.foreign)
        if path in provenance.foreign and change.after is not None:
            origins.reject_instructions(path, change.after)
        if path in provenance.trusted - provenance.foreign and change.after is not None:
            before, trusted = change.before, origins.trusted
            if provenance.whole or before is None or trusted.is_trusted(path, before):
                trusted.trust(path, change.after)


def read_bytes(
    path: Path, forbids: Forbids = forbid_nothing
) -> tuple[bytes, os.stat_result] | None:
    """Return None if there is no such file. Raises `ToolError` if it cannot be edited."""
    try:
        with open_folder(path.parent, forbids) as folder:
            handle = folder.open(path.name)
        with os.fdopen(handle, "rb") as file:
            stat = os.fstat(handle)
            if stat.st_size > MAX_EDITED:
                raise ToolError(
                    f"{path} has {stat.st_size:,} bytes; the limit for editing is {MAX_EDITED:,}."
                )
            return file.read(MAX_EDITED), stat
    except (FileNotFoundError, NotADirectoryError):
        return None
    except IsADirectoryError as error:
        raise ToolError(f"{path} is a folder, not a file.") from error
    except OSError as error:
        raise ToolError(f"{path}: {error.strerror}.") from error
