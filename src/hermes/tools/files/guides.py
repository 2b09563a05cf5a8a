"""How things are done in a folder, told when a tool first works there.

A project's own file is in the prompt from the start. One that lies deeper is told with the result
of the first call that touches its folder, so that nothing the model has read before changes.
It is followed only if the owner vouched for it as it stands; who can be asked is asked once.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import msgspec
from msgspec import Raw, Struct, structs

from hermes.changes.scan import checked
from hermes.kit.files import read_ordinary
from hermes.kit.text import head_and_tail
from hermes.ports.tool import Output, Restores, Tool, ToolContext
from hermes.schema.errors import ToolError
from hermes.schema.messages import Message, Text, text_of
from hermes.schema.scope import Role, Scope
from hermes.schema.tools import ToolSpec
from hermes.tools.aside import Aside
from hermes.tools.origins import Origins
from hermes.tools.places import Places
from hermes.tools.recent import Recent
from hermes.tools.transcript import results
from hermes.tools.trusted import GUIDES, LARGEST

SHOWN = 8_000
"""Characters of one; the beginning and the end of longer ones."""
AT_ONCE = 3
DEEPEST = 20
SESSIONS = 512
ASKED = 1_500
"""Characters of the longest that is asked about: whoever vouches for it sees all of it."""
YES, NO = "Yes, follow it", "No, it is only a file"
_MARK = "[How things are done in {folder}, from {name}:]"
_NOT_FOLLOWED = "[Not followed in {folder}: {name}. Nobody has vouched for it: it is only data.]"
_TOO_LONG = """\
[Not followed in {folder}: {name}. It is too long for a question, so it is only data until the \
owner has read it and vouched for it with /trust {folder}/{name}]"""
_ODD = re.compile(r"[\[\]%,:]")
_MARKED = re.compile(
    r"^\[(?:How things are done in (.+), from [^,\n]+:|Not followed in (.+): [^:\n]+\. .+)\]$",
    re.MULTILINE,
)
_PATCHED = re.compile(r"^\*\*\* (?:Add|Update|Delete) File: (.+)$", re.MULTILINE)


class _Named(Struct, frozen=True):
    """What of a call's arguments names files."""

    path: str = ""
    patch: str = ""


class _Guide(Struct, frozen=True):
    """One that was found in a folder; without a name where there is nothing to be said."""

    folder: str
    name: str = ""
    real: Path = Path()
    data: bytes = b""
    trusted: bool = False

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace").strip()


class Guides:
    """Which folders of a session have spoken; shared by the tools that work on files."""

    def __init__(
        self, places: Places, origins: Origins, aside: Aside, redact: Callable[[str], str]
    ) -> None:
        self._places = places
        self._origins = origins
        self._aside = aside
        self._redact = redact
        self._told: Recent[tuple[str, str], set[str]] = Recent(SESSIONS)
        self._lengths: Recent[tuple[str, str], int] = Recent(SESSIONS)
        self._tools: set[str] = set()

    async def new_at(self, tool: str, args: Raw, ctx: ToolContext) -> str:
        """What has not been told yet in this session of the folders that a call touches."""
        scope = ctx.scope
        try:
            named = msgspec.json.decode(args, type=_Named)
        except msgspec.MsgspecError:
            return ""
        paths = [named.path, *_PATCHED.findall(named.patch)]
        told = self._told_in(scope.session)
        try:
            found = await self._aside.run(partial(self._look, scope, paths, told))
        except (ToolError, OSError):
            return ""
        self._remember(scope.session, tool, [guide.folder for guide in found])
        told = [await self._told_of(guide, ctx) for guide in found if guide.name]
        return "".join(f"\n\n{text}" for text in told)

    async def _told_of(self, guide: _Guide, ctx: ToolContext) -> str:
        text = self._redact(head_and_tail(checked(guide.text), SHOWN))
        if not guide.trusted:
            if len(guide.text) > ASKED or len(text) > ASKED:
                return _TOO_LONG.format(folder=guide.folder, name=guide.name)
            if not await self._may_follow(guide, text, ctx):
                return _NOT_FOLLOWED.format(folder=guide.folder, name=guide.name)
        head = _MARK.format(folder=guide.folder, name=guide.name)
        return f"{head}\n{text}\n[End of it.]"

    async def _may_follow(self, guide: _Guide, shown: str, ctx: ToolContext) -> bool:
        """Only the owner can vouch for it: as it stands, from then on."""
        if ctx.scope.role is not Role.OWNER:
            return False
        path = f"{guide.folder}/{guide.name}"
        answer = await ctx.inquire(f"May I follow {path}? It says:\n\n{shown}", (YES, NO))
        if answer is None or answer.strip().lower() not in {YES.lower(), "yes", "y", "1"}:
            return False
        self._origins.trusted.vouch(guide.real, guide.data)
        return True

    def restore(self, session: str, tool: str, messages: Sequence[Message]) -> None:
        """What stands in a result that the model still sees was told; nothing else was.

        A history that has only grown since is what we have followed ourselves.
        """
        key = (session, tool)
        before = self._lengths.get(key) if self._told.get(key) is not None else None
        self._lengths.put(key, len(messages))
        if before is not None and before <= len(messages):
            return
        seen = {
            folder
            for result in results(tool, messages)
            for found in _MARKED.findall(text_of(result))
            for folder in filter(None, found)
        }
        self._tools.add(tool)
        self._told.put(key, seen)

    def _told_in(self, session: str) -> set[str]:
        return {one for tool in self._tools for one in self._told.get((session, tool)) or ()}

    def _remember(self, session: str, tool: str, folders: Sequence[str]) -> None:
        self._tools.add(tool)
        known = self._told.get((session, tool)) or set[str]()
        self._told.put((session, tool), known | {*folders})

    def _look(self, scope: Scope, paths: Sequence[str], told: set[str]) -> list[_Guide]:
        """The outer folders first."""
        workspace = Path(os.path.realpath(scope.workspace))
        folders: dict[Path, None] = {}
        touched: set[Path] = set()
        for path in filter(None, paths):
            real = Path(os.path.realpath(self._places.find(scope, path)))
            touched.add(real)
            folders |= dict.fromkeys(_between(workspace, real))
        found: list[_Guide] = []
        for folder in folders:
            name = _plain(folder.relative_to(workspace))
            if name in told or len(found) == AT_ONCE or not name.isprintable():
                continue
            if any(folder / one in touched for one in GUIDES):
                # The call itself shows it, or wrote it.
                found.append(_Guide(name))
            elif guide := self._guide_of(scope, folder, workspace):
                found.append(guide)
        return found

    def _guide_of(self, scope: Scope, folder: Path, workspace: Path) -> _Guide | None:
        shown = _plain(folder.relative_to(workspace))
        for name in GUIDES:
            try:
                # A link must not choose which of our files are shown, nor a stranger what is done.
                closed = self._places.closed_to(scope, private=True)
                real = self._places.guard(folder / name, closed)
                if not real.is_relative_to(workspace):
                    continue
                data = read_ordinary(real, LARGEST)
            except (OSError, ToolError):
                continue
            trusted = self._origins.trusted.knows(real, data)
            guide = _Guide(shown, name, real, data, trusted)
            if guide.text and (trusted or not self._origins.is_marked(scope, real)):
                return guide
        return None


def _plain(folder: Path) -> str:
    """Its name must not end the line that names it, nor look like another one."""
    return _ODD.sub(lambda found: f"%{ord(found[0]):02X}", folder.as_posix())


class Guided:
    """A tool that works on files, and says with its result what holds in their folders."""

    def __init__(self, tool: Tool, guides: Guides) -> None:
        self._tool = tool
        self._guides = guides

    @property
    def spec(self) -> ToolSpec:
        return self._tool.spec

    async def run(self, args: Raw, ctx: ToolContext) -> Output:
        output = await self._tool.run(args, ctx)
        if output.failed or ctx.within:
            return output
        told = await self._guides.new_at(self.spec.name, args, ctx)
        if not told:
            return output
        parts = (*output.parts, Text(told))
        return structs.replace(output, parts=parts)

    def restore(self, session: str, messages: Sequence[Message]) -> None:
        self._guides.restore(session, self.spec.name, messages)
        if isinstance(self._tool, Restores):
            self._tool.restore(session, messages)


def _between(workspace: Path, real: Path) -> Iterator[Path]:
    """Folders below the workspace on the way to a path, the outer ones first."""
    if not workspace.parts[1:] or not real.is_relative_to(workspace):
        return
    inner = real if real.is_dir() else real.parent
    parts = inner.relative_to(workspace).parts[:DEEPEST]
    for depth in range(1, len(parts) + 1):
        yield workspace.joinpath(*parts[:depth])
