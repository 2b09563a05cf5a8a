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

from hermes.kit.files import read_regular_file
from hermes.kit.injection_scan import block_injections
from hermes.kit.lru_map import LruMap
from hermes.kit.text import head_and_tail
from hermes.ports.tool import SupportsRestore, Tool, ToolContext, ToolOutput
from hermes.schema.errors import ToolError
from hermes.schema.messages import Message, Text, text_of
from hermes.schema.scope import Role, Scope
from hermes.schema.tools import ToolSpec
from hermes.tools.paths import SessionPaths
from hermes.tools.provenance.file_provenance import FileProvenance
from hermes.tools.provenance.trust_store import INSTRUCTION_FILES, MAX_INSTRUCTIONS
from hermes.tools.thread_runner import ThreadRunner
from hermes.tools.tool_io import earlier_results

MAX_SHOWN = 8_000
"""Characters of one; the beginning and the end of longer ones."""
MAX_PER_CALL = 3
MAX_DEPTH = 20
MAX_SESSIONS = 512
MAX_ASKED = 1_500
"""Characters of the longest that is asked about: whoever vouches for it sees all of it."""
YES, NO = "Yes, follow it", "No, it is only a file"
_HEADER = "[How things are done in {folder}, from {name}:]"
_NOT_FOLLOWED = "[Not followed in {folder}: {name}. Nobody has vouched for it: it is only data.]"
_TOO_LONG = """\
[Not followed in {folder}: {name}. It is too long for a question, so it is only data until the \
owner has read it and vouched for it with /trust {folder}/{name}]"""
_SPECIAL_CHARACTERS = re.compile(r"[\[\]%,:]")
_HEADER_PATTERN = re.compile(
    r"^\[(?:How things are done in (.+), from [^,\n]+:|Not followed in (.+): [^:\n]+\. .+)\]$",
    re.MULTILINE,
)
_PATCHED_FILE = re.compile(r"^\*\*\* (?:Add|Update|Delete) File: (.+)$", re.MULTILINE)


class _PathArguments(Struct, frozen=True):
    """What of a call's arguments names files."""

    path: str = ""
    patch: str = ""


class _InstructionFile(Struct, frozen=True):
    """One that was found in a folder; without a name where there is nothing to be said."""

    folder: str
    name: str = ""
    real: Path = Path()
    data: bytes = b""
    trusted: bool = False

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace").strip()


class FolderInstructions:
    """Which folders of a session have spoken; shared by the tools that work on files."""

    def __init__(
        self,
        places: SessionPaths,
        origins: FileProvenance,
        aside: ThreadRunner,
        redact: Callable[[str], str],
    ) -> None:
        self._places = places
        self._origins = origins
        self._aside = aside
        self._redact = redact
        self._told: LruMap[tuple[str, str], set[str]] = LruMap(MAX_SESSIONS)
        self._lengths: LruMap[tuple[str, str], int] = LruMap(MAX_SESSIONS)
        self._tools: set[str] = set()

    async def new_instructions(self, tool: str, args: Raw, ctx: ToolContext) -> str:
        """What has not been told yet in this session of the folders that a call touches."""
        scope = ctx.scope
        try:
            named = msgspec.json.decode(args, type=_PathArguments)
        except msgspec.MsgspecError:
            return ""
        paths = [named.path, *_PATCHED_FILE.findall(named.patch)]
        told = self._shown_in(scope.session)
        try:
            found = await self._aside.run(partial(self._look, scope, paths, told))
        except (ToolError, OSError):
            return ""
        self._remember(scope.session, tool, [guide.folder for guide in found])
        told = [await self._told_of(guide, ctx) for guide in found if guide.name]
        return "".join(f"\n\n{text}" for text in told)

    async def _told_of(self, guide: _InstructionFile, ctx: ToolContext) -> str:
        text = self._redact(head_and_tail(block_injections(guide.text), MAX_SHOWN))
        if not guide.trusted:
            if len(guide.text) > MAX_ASKED or len(text) > MAX_ASKED:
                return _TOO_LONG.format(folder=guide.folder, name=guide.name)
            if not await self._ask_to_follow(guide, text, ctx):
                return _NOT_FOLLOWED.format(folder=guide.folder, name=guide.name)
        head = _HEADER.format(folder=guide.folder, name=guide.name)
        return f"{head}\n{text}\n[End of it.]"

    async def _ask_to_follow(self, guide: _InstructionFile, shown: str, ctx: ToolContext) -> bool:
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
            for result in earlier_results(tool, messages)
            for found in _HEADER_PATTERN.findall(text_of(result))
            for folder in filter(None, found)
        }
        self._tools.add(tool)
        self._told.put(key, seen)

    def _shown_in(self, session: str) -> set[str]:
        return {one for tool in self._tools for one in self._told.get((session, tool)) or ()}

    def _remember(self, session: str, tool: str, folders: Sequence[str]) -> None:
        self._tools.add(tool)
        known = self._told.get((session, tool)) or set[str]()
        self._told.put((session, tool), known | {*folders})

    def _look(self, scope: Scope, paths: Sequence[str], told: set[str]) -> list[_InstructionFile]:
        """The outer folders first."""
        workspace = Path(os.path.realpath(scope.workspace))
        folders: dict[Path, None] = {}
        touched: set[Path] = set()
        for path in filter(None, paths):
            real = Path(os.path.realpath(self._places.find(scope, path)))
            touched.add(real)
            folders |= dict.fromkeys(_folders_between(workspace, real))
        found: list[_InstructionFile] = []
        for folder in folders:
            name = _escape_name(folder.relative_to(workspace))
            if name in told or len(found) == MAX_PER_CALL or not name.isprintable():
                continue
            if any(folder / one in touched for one in INSTRUCTION_FILES):
                # The call itself shows it, or wrote it.
                found.append(_InstructionFile(name))
            elif guide := self._instructions_in(scope, folder, workspace):
                found.append(guide)
        return found

    def _instructions_in(
        self, scope: Scope, folder: Path, workspace: Path
    ) -> _InstructionFile | None:
        shown = _escape_name(folder.relative_to(workspace))
        for name in INSTRUCTION_FILES:
            try:
                # A link must not choose which of our files are shown, nor a stranger what is done.
                closed = self._places.blocked_for(scope, private=True)
                real = self._places.guard(folder / name, closed)
                if not real.is_relative_to(workspace):
                    continue
                data = read_regular_file(real, MAX_INSTRUCTIONS)
            except (OSError, ToolError):
                continue
            trusted = self._origins.trusted.knows(real, data)
            guide = _InstructionFile(shown, name, real, data, trusted)
            if guide.text and (trusted or not self._origins.is_known_untrusted(scope, real)):
                return guide
        return None


def _escape_name(folder: Path) -> str:
    """Its name must not end the line that names it, nor look like another one."""
    return _SPECIAL_CHARACTERS.sub(lambda found: f"%{ord(found[0]):02X}", folder.as_posix())


class InstructedTool:
    """A tool that works on files, and says with its result what holds in their folders."""

    def __init__(self, tool: Tool, guides: FolderInstructions) -> None:
        self._tool = tool
        self._guides = guides

    @property
    def spec(self) -> ToolSpec:
        return self._tool.spec

    async def run(self, args: Raw, ctx: ToolContext) -> ToolOutput:
        output = await self._tool.run(args, ctx)
        if output.failed or ctx.within:
            return output
        told = await self._guides.new_instructions(self.spec.name, args, ctx)
        if not told:
            return output
        parts = (*output.parts, Text(told))
        return structs.replace(output, parts=parts)

    def restore(self, session: str, messages: Sequence[Message]) -> None:
        self._guides.restore(session, self.spec.name, messages)
        if isinstance(self._tool, SupportsRestore):
            self._tool.restore(session, messages)


def _folders_between(workspace: Path, real: Path) -> Iterator[Path]:
    """Folders below the workspace on the way to a path, the outer ones first."""
    if not workspace.parts[1:] or not real.is_relative_to(workspace):
        return
    inner = real if real.is_dir() else real.parent
    parts = inner.relative_to(workspace).parts[:MAX_DEPTH]
    for depth in range(1, len(parts) + 1):
        yield workspace.joinpath(*parts[:depth])
