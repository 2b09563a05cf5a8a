"""Change files on disk: one writer per file, all or nothing, and never over a stranger's edit."""

import os
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path

import anyio
from msgspec import Struct

from hermes.kit.files import advice
from hermes.ports.tool import ToolContext
from hermes.schema.errors import ToolError
from hermes.schema.scope import Role, Scope
from hermes.tools.aside import Aside
from hermes.tools.files.lint import Lint
from hermes.tools.files.locks import Locks
from hermes.tools.files.permission import may_write
from hermes.tools.files.replacing import Change, replace_all
from hermes.tools.files.seen import Seen
from hermes.tools.files.syntax import Syntax
from hermes.tools.files.ways import Forbids, forbids_nothing, opened
from hermes.tools.guidance import guides_among
from hermes.tools.origins import Origins
from hermes.tools.places import Places
from hermes.tools.terminal.foreign import others_in
from hermes.tools.touched import real

__all__ = ["Change", "Editor", "read_bytes"]

MAX_EDITED = 50 << 20
"""Bytes."""


NONE: frozenset[Path] = frozenset()


class Whose(Struct, frozen=True):
    """Of the files of a change: which have strangers' words in them, which the owner wrote.

    `whole` says that what stood there before is gone.
    """

    foreign: frozenset[Path] = NONE
    vouched: frozenset[Path] = NONE
    whole: bool = False


class Editor:
    """Shared by every tool that writes, so that their locks and memories are the same."""

    def __init__(
        self,
        places: Places,
        seen: Seen,
        aside: Aside,
        syntax: Syntax | None = None,
        locks: Locks | None = None,
        origins: Origins | None = None,
    ) -> None:
        self.origins = origins
        self.syntax = syntax
        self.locks = locks or Locks()
        self.places = places
        self.seen = seen
        self.aside = aside

    async def place(self, ctx: ToolContext, name: str, tool: str, content: str) -> Path:
        """The real path of a file that may be written. Raises `ToolError` when it may not be.

        `content` is what a person is shown who decides about it.
        """
        asked = self.places.find(ctx.scope, name)
        closed = self.places.closed_to(ctx.scope)
        real = await self.aside.run(partial(self.places.guard, asked, closed))
        await may_write(ctx, self.places, real, tool, content)
        return real

    async def whose(
        self, ctx: ToolContext, paths: Collection[Path], text: str, *, whole: bool
    ) -> "Whose":
        """Of what is about to be written; aside, since a text may be long.

        What tells how things are done must come from the owner's turn, and from nobody else's
        words. `whole` says that nothing is left of what stood there before.
        """
        workspace = await self.aside.run(partial(real, Path(ctx.scope.workspace)))
        if others_in(ctx):
            await self.aside.run(partial(self._note_others, workspace, paths))
        if await anyio.to_thread.run_sync(ctx.quotes, text):
            return Whose(foreign=frozenset(paths))
        guides = await self.aside.run(partial(guides_among, paths, workspace))
        if not guides:
            return Whose()
        sources = await anyio.to_thread.run_sync(ctx.sources, text)
        said = ctx.foreign or sources.strangers or sources.repeated
        if ctx.scope.role is not Role.OWNER or said:
            return Whose(foreign=guides)
        return Whose(foreign=self._theirs(guides, whole=whole), vouched=guides, whole=whole)

    def _note_others(self, workspace: Path, paths: Collection[Path]) -> None:
        """Whatever they write there may become what tells how things are done."""
        if self.origins is not None:
            beyond = (one.parent for one in paths if not one.is_relative_to(workspace))
            for folder in dict.fromkeys([workspace, *beyond]):
                self.origins.others_at_work(folder)

    def _theirs(self, guides: Collection[Path], *, whole: bool) -> frozenset[Path]:
        """Those that stay what others wrote, for the greater part."""
        if whole or self.origins is None:
            return NONE
        return frozenset(path for path in guides if not self.origins.may_speak(path))

    async def lint(self, lint: Lint, path: Path, text: str, before: str | None) -> Lint:
        """What a checker outside says of a file that none of ours knows."""
        if lint.status != "skipped" or lint.output or self.syntax is None:
            return lint
        return await self.syntax.check(path, text, before)

    async def apply(
        self, scope: Scope, changes: Sequence[Change], whose: "Whose | None" = None
    ) -> list[Path]:
        """Write them all, or leave everything as it was; returns the folders that were made.

        Begun, it comes to its end, whoever stops waiting.
        """
        session = scope.session
        work = partial(replace_all, changes, self.places.closed_to(scope).forbids)
        try:
            made = await anyio.to_thread.run_sync(work)
        except OSError as error:
            message = f"nothing was changed: {error.filename}: {error.strerror}"
            raise ToolError(message, hint=advice(error)) from error
        for change in changes:
            if change.after is None:
                self.seen.forget(session, change.path)
            else:
                self._remember(session, change.path)
                self._mark(change, whose or Whose())
        return made

    def _remember(self, session: str, path: Path) -> None:
        try:
            self.seen.note(session, path, path.lstat())
        except OSError:
            # Somebody has moved it since: what is there next is not what we have seen.
            self.seen.forget(session, path)

    def _mark(self, change: Change, whose: "Whose") -> None:
        origins, path = self.origins, change.path
        if origins is None:
            return
        origins.wrote(path, foreign=path in whose.foreign)
        if path in whose.foreign and change.after is not None:
            origins.refuse(path, change.after)
        if path in whose.vouched - whose.foreign and change.after is not None:
            before, trusted = change.before, origins.trusted
            if whose.whole or before is None or trusted.knows(path, before):
                trusted.vouch(path, change.after)


def read_bytes(
    path: Path, forbids: Forbids = forbids_nothing
) -> tuple[bytes, os.stat_result] | None:
    """None when there is no such file. Raises `ToolError` for anything that cannot be edited."""
    try:
        with opened(path.parent, forbids) as folder:
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
