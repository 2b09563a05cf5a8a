"""Change files on disk: one writer per file, all or nothing, and never over a stranger's edit."""

import os
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path

import anyio
from msgspec import Struct

from hermes.kit.files import write_error_hint
from hermes.ports.tool import ToolContext
from hermes.schema.errors import ToolError
from hermes.schema.scope import Role, Scope
from hermes.tools.files.edit_conflicts import FileLocks, SeenFiles
from hermes.tools.files.file_changes import FileChange, apply_changes
from hermes.tools.files.lint import LintResult, SyntaxChecker
from hermes.tools.files.permission import require_write_approval
from hermes.tools.files.safe_open import Forbids, forbid_nothing, open_folder
from hermes.tools.paths import SessionPaths
from hermes.tools.provenance.command_paths import resolve_or_same
from hermes.tools.provenance.command_provenance import untrusted_workspace
from hermes.tools.provenance.file_provenance import FileProvenance
from hermes.tools.provenance.instruction_files import instruction_files_among
from hermes.tools.thread_runner import ThreadRunner

__all__ = ["FileChange", "FileEditor", "read_bytes"]

MAX_EDITED = 50 << 20
"""Bytes."""


NO_PATHS: frozenset[Path] = frozenset()


class WriteProvenance(Struct, frozen=True):
    """Of the files of a change: which have strangers' words in them, which the owner wrote.

    `whole` says that what stood there before is gone.
    """

    foreign: frozenset[Path] = NO_PATHS
    vouched: frozenset[Path] = NO_PATHS
    whole: bool = False


class FileEditor:
    """Shared by every tool that writes, so that their locks and memories are the same."""

    def __init__(
        self,
        places: SessionPaths,
        seen: SeenFiles,
        aside: ThreadRunner,
        syntax: SyntaxChecker | None = None,
        locks: FileLocks | None = None,
        origins: FileProvenance | None = None,
    ) -> None:
        self.origins = origins
        self.syntax = syntax
        self.locks = locks or FileLocks()
        self.places = places
        self.seen = seen
        self.aside = aside

    async def place(self, ctx: ToolContext, name: str, tool: str, content: str) -> Path:
        """The real path of a file that may be written. Raises `ToolError` when it may not be.

        `content` is what a person is shown who decides about it.
        """
        asked = self.places.find(ctx.scope, name)
        closed = self.places.blocked_for(ctx.scope)
        real = await self.aside.run(partial(self.places.guard, asked, closed))
        await require_write_approval(ctx, self.places, real, tool, content)
        return real

    async def whose(
        self, ctx: ToolContext, paths: Collection[Path], text: str, *, whole: bool
    ) -> "WriteProvenance":
        """Of what is about to be written; aside, since a text may be long.

        What tells how things are done must come from the owner's turn, and from nobody else's
        words. `whole` says that nothing is left of what stood there before.
        """
        workspace = await self.aside.run(partial(resolve_or_same, Path(ctx.scope.workspace)))
        if untrusted_workspace(ctx):
            await self.aside.run(partial(self._record_untrusted_work, workspace, paths))
        if await anyio.to_thread.run_sync(ctx.quotes, text):
            return WriteProvenance(foreign=frozenset(paths))
        guides = await self.aside.run(partial(instruction_files_among, paths, workspace))
        if not guides:
            return WriteProvenance()
        sources = await anyio.to_thread.run_sync(ctx.sources, text)
        said = ctx.foreign or sources.strangers or sources.repeated
        if ctx.scope.role is not Role.OWNER or said:
            return WriteProvenance(foreign=guides)
        return WriteProvenance(
            foreign=self._theirs(guides, whole=whole), vouched=guides, whole=whole
        )

    def _record_untrusted_work(self, workspace: Path, paths: Collection[Path]) -> None:
        """Whatever they write there may become what tells how things are done."""
        if self.origins is not None:
            beyond = (one.parent for one in paths if not one.is_relative_to(workspace))
            for folder in dict.fromkeys([workspace, *beyond]):
                self.origins.record_untrusted_work(folder)

    def _theirs(self, guides: Collection[Path], *, whole: bool) -> frozenset[Path]:
        """Those that stay what others wrote, for the greater part."""
        if whole or self.origins is None:
            return NO_PATHS
        return frozenset(path for path in guides if not self.origins.may_instruct(path))

    async def lint(self, lint: LintResult, path: Path, text: str, before: str | None) -> LintResult:
        """What a checker outside says of a file that none of ours knows."""
        if lint.status != "skipped" or lint.output or self.syntax is None:
            return lint
        return await self.syntax.check(path, text, before)

    async def apply(
        self, scope: Scope, changes: Sequence[FileChange], whose: "WriteProvenance | None" = None
    ) -> list[Path]:
        """Write them all, or leave everything as it was; returns the folders that were made.

        Begun, it comes to its end, whoever stops waiting.
        """
        session = scope.session
        work = partial(apply_changes, changes, self.places.blocked_for(scope).forbids)
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
                self._mark(change, whose or WriteProvenance())
        return made

    def _remember(self, session: str, path: Path) -> None:
        try:
            self.seen.note(session, path, path.lstat())
        except OSError:
            # Somebody has moved it since: what is there next is not what we have seen.
            self.seen.forget(session, path)

    def _mark(self, change: FileChange, whose: "WriteProvenance") -> None:
        origins, path = self.origins, change.path
        if origins is None:
            return
        origins.record_write(path, foreign=path in whose.foreign)
        if path in whose.foreign and change.after is not None:
            origins.refuse(path, change.after)
        if path in whose.vouched - whose.foreign and change.after is not None:
            before, trusted = change.before, origins.trusted
            if whose.whole or before is None or trusted.knows(path, before):
                trusted.vouch(path, change.after)


def read_bytes(
    path: Path, forbids: Forbids = forbid_nothing
) -> tuple[bytes, os.stat_result] | None:
    """None when there is no such file. Raises `ToolError` for anything that cannot be edited."""
    try:
        with open_folder(path.parent, forbids) as folder:
            handle = folder.open(path.name)
        with os.fdopen(handle, "rb") as file:
            stat = os.fstat(handle)
            if stat.st_size > MAX_EDITED:
                raise ToolError(
                    f"{path} has {stat.st_size:,} bytes; up to {MAX_EDITED:,} are edited"
                )
            return file.read(MAX_EDITED), stat
    except (FileNotFoundError, NotADirectoryError):
        return None
    except IsADirectoryError as error:
        raise ToolError(f"{path} is a folder, not a file") from error
    except OSError as error:
        raise ToolError(f"{path}: {error.strerror}") from error
