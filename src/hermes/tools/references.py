"""Expand references such as `@file:notes.md` and `@diff` in a message, attached as data.

Files are read as they are now, under the rules of the file tools: what no tool may open is not
attached either.
"""

import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from hermes.config.home import Home
from hermes.config.sections.general import WebsiteBlocklist
from hermes.kit.files import read_regular_file
from hermes.kit.text import fenced, head_and_tail, plural
from hermes.ports.sandbox import ProcessSpec, Sandbox
from hermes.schema.errors import HermesError, ToolError, UsageError
from hermes.schema.messages import FILES_HEADER, PAGES_HEADER, UNVERIFIED_HEADER, Media, Text
from hermes.schema.scope import Scope
from hermes.tools.paths import SessionPaths

if TYPE_CHECKING:
    from hermes.tools.provenance.file_provenance import FileProvenance

MAX_REFERENCES = 10
MAX_REFERENCE_CHARACTERS = 50_000
"""Limit for one reference; the total is four times as much."""
_MAX_TOTAL_CHARACTERS = 4 * MAX_REFERENCE_CHARACTERS
_MAX_BYTES = 8_000_000
_MAX_ENTRIES = 300
_MAX_COMMITS = 50
_TIMEOUT = 15.0
_REFERENCE = re.compile(
    r"(?<![\w@/])@(?:(file|folder|git|url):(\"[^\"\n]+\"|[^\s\"]+)|(diff|staged)(?![\w:]))"
)
_LINE_RANGE = re.compile(r"(.+?):(\d{1,9})(?:-(\d{1,9}))?")
_HEADERS = {
    "url": PAGES_HEADER,
    "git": UNVERIFIED_HEADER,
    "diff": FILES_HEADER,
    "staged": FILES_HEADER,
}
_NO_CHANGES = "(no changes)"
_DIFF = ("diff", "--no-ext-diff", "--no-textconv")
_GIT_OPTIONS = ("--no-pager", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")


class Reference(Struct, frozen=True):
    """A reference as written, its kind and its target."""

    written: str
    kind: str
    what: str = ""


class ReferenceSources(Struct, frozen=True, kw_only=True):
    """Where references are read from, and what is allowed."""

    paths: SessionPaths
    sandbox: Sandbox
    git: str | None  # its path, if installed
    path: str
    redact: Callable[[str], str]
    provenance: "Callable[[], FileProvenance] | None" = None  # says who wrote a file
    allow_internal: bool = False  # URLs may be inside this machine's network
    allow_internal_redirects: bool = False  # redirects may lead there, too
    blocked_sites: Callable[[], Collection[str]] = frozenset  # blocked sites


def find_references(text: str) -> list[Reference]:
    """Each reference once, in order, without trailing punctuation."""
    found: dict[str, Reference] = {}
    for match in _REFERENCE.finditer(text):
        kind, what = match[1] or match[3], (match[2] or "").strip('"')
        quoted = (match[2] or "").startswith('"')
        what = what if quoted else what.rstrip(".,;:!?)]}'")
        written = f"@{kind}:{what}" if what else f"@{kind}"
        if what or kind in {"diff", "staged"}:
            found.setdefault(written, Reference(written, kind, what))
    return list(found.values())


class References:
    def __init__(self, sources: ReferenceSources) -> None:
        self._sources = sources

    async def expand(self, parts: Sequence[Text | Media], scope: Scope) -> tuple[Text | Media, ...]:
        """Append the content of each reference, or the reason why it cannot be attached."""
        text = "\n".join(part.text for part in parts if isinstance(part, Text))
        references = find_references(text)
        if not references:
            return tuple(parts)
        # The header says who wrote a text, so each kind gets its own block.
        blocks: dict[str, list[str]] = {FILES_HEADER: [], UNVERIFIED_HEADER: [], PAGES_HEADER: []}
        room = _MAX_TOTAL_CHARACTERS
        for reference in references[:MAX_REFERENCES]:
            limit = min(MAX_REFERENCE_CHARACTERS, room)
            attached, block = await self._block(reference, scope, limit)
            room -= min(len(block), room)
            blocks[self._header(reference, scope) if attached else FILES_HEADER].append(block)
        if len(references) > MAX_REFERENCES:
            left = plural(len(references) - MAX_REFERENCES, "reference")
            blocks[FILES_HEADER].append(f"({left} more: not attached.)")
        found = (Text("\n\n".join([head, *some])) for head, some in blocks.items() if some)
        return (*parts, *found)

    async def changes(self, scope: Scope, path: str) -> str:
        """Return everything that differs from the last commit, and the names of new files.

        Raises `ToolError`, and `UsageError` for a path that is not in the repository.
        """
        only = ("--", path) if path else ()
        if path:
            await self._check_inside(scope, only)
        try:
            changed = await self._git(scope, *_DIFF, "HEAD", *only)
        except ToolError:
            # A repository without commits.
            changed = await self._git(scope, *_DIFF, *only)
        added = await self._git(scope, "ls-files", "--others", "--exclude-standard", *only)
        parts = [] if changed == _NO_CHANGES else [changed]
        if added != _NO_CHANGES:
            parts.append("New files:\n" + "\n".join(f"+ {name}" for name in added.splitlines()))
        if path and not parts and await self._git(scope, "ls-files", *only) == _NO_CHANGES:
            raise UsageError(f"No file in this repository matches {path!r}.")
        return "\n\n".join(parts)

    async def _check_inside(self, scope: Scope, only: Sequence[str]) -> None:
        await self._git(scope, "rev-parse", "--git-dir")
        try:
            await self._git(scope, "ls-files", *only)
        except ToolError as error:
            raise UsageError(f"{only[-1]} is outside this repository.") from error

    def _header(self, reference: Reference, scope: Scope) -> str:
        """The header: whether the owner wrote it, as far as known."""
        if header := _HEADERS.get(reference.kind):
            return header
        if self._sources.provenance is None:
            return FILES_HEADER
        origins, places = self._sources.provenance(), self._sources.paths
        path = places.resolve(scope, reference.what)
        if not path.exists() and (lines := _LINE_RANGE.fullmatch(reference.what)):
            path = places.resolve(scope, lines[1])
        path = path.resolve()
        is_unverified = origins.is_unverified_location if path.is_dir() else origins.is_unverified
        return UNVERIFIED_HEADER if is_unverified(scope, path) else FILES_HEADER

    async def _block(self, reference: Reference, scope: Scope, room: int) -> tuple[bool, str]:
        """Whether it could be attached, and the text."""
        try:
            if room <= 0:
                raise ToolError("the attachments are already too long")
            text = head_and_tail(self._sources.redact(await self._read(reference, scope)), room)
        except (HermesError, OSError) as error:
            reason = (error.strerror or "") if isinstance(error, OSError) else str(error)
            return False, f"{reference.written}: not attached: {reason.rstrip('.')}."
        return True, f"{reference.written}\n{fenced(text)}"

    async def _read(self, reference: Reference, scope: Scope) -> str:
        match reference.kind:
            case "file":
                return self._file(reference.what, scope)
            case "folder":
                return self._folder(reference.what, scope)
            case "diff":
                return await self._git(scope, *_DIFF)
            case "staged":
                return await self._git(scope, *_DIFF, "--cached")
            case "git":
                return await self._commits(reference.what, scope)
            case _:
                return await self._page(reference.what)

    async def _page(self, url: str) -> str:
        from hermes.tools.web_pages import PageReader  # noqa: PLC0415 - loads an HTTP client

        sources = self._sources
        pages = PageReader(
            allow_internal=sources.allow_internal,
            allow_internal_redirects=sources.allow_internal_redirects,
            blocked_sites=sources.blocked_sites(),
        )
        return await pages.read(url)

    def _file(self, what: str, scope: Scope) -> str:
        path, first, last = what, 1, None
        lines = _LINE_RANGE.fullmatch(what)
        if lines and not self._sources.paths.resolve(scope, what).exists():
            path, first = lines[1], int(lines[2])
            last = int(lines[3]) if lines[3] else first
        real = self._allowed(path, scope)
        data = read_regular_file(real, _MAX_BYTES)
        if b"\0" in data[:8_000]:
            raise ToolError("it is not a text file")
        text = data.decode("utf-8", "replace")
        if lines and last is not None:
            return "\n".join(text.splitlines()[max(first, 1) - 1 : last])
        return text

    def _folder(self, what: str, scope: Scope) -> str:
        real = self._allowed(what, scope)
        if not real.is_dir():
            raise ToolError("it is not a folder")
        lines: list[str] = []
        for entry in sorted(real.iterdir()):
            lines.append(f"{entry.name}/" if entry.is_dir() else entry.name)
            if entry.is_dir() and not entry.is_symlink() and not entry.name.startswith("."):
                inside = sorted(entry.iterdir())
                lines += [f"  {path.name}{'/' if path.is_dir() else ''}" for path in inside]
            if len(lines) > _MAX_ENTRIES:
                return "\n".join([*lines[:_MAX_ENTRIES], "(and more)"])
        return "\n".join(lines) or "(empty)"

    def _allowed(self, what: str, scope: Scope) -> Path:
        places = self._sources.paths
        return places.guard(places.resolve(scope, what), places.blocked_for(scope, private=True))

    async def _commits(self, what: str, scope: Scope) -> str:
        count = int(what) if what.isascii() and what.isdigit() else 0
        if not 1 <= count <= _MAX_COMMITS:
            raise ToolError(f"@git takes a number of commits, up to {_MAX_COMMITS}")
        return await self._git(
            scope, "log", f"-{count}", "--patch", "--stat", "--no-ext-diff", "--no-textconv"
        )

    async def _git(self, scope: Scope, *args: str) -> str:
        if self._sources.git is None:
            raise ToolError("git is not installed")
        spec = ProcessSpec(
            argv=(self._sources.git, *_GIT_OPTIONS, *args),
            cwd=scope.workspace,
            env={"PATH": self._sources.path, "LC_ALL": "C.UTF-8", "GIT_CONFIG_NOSYSTEM": "1",
                 "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_TERMINAL_PROMPT": "0"},
            timeout=_TIMEOUT,
            keep=4 * MAX_REFERENCE_CHARACTERS,
        )  # fmt: skip
        result = await self._sources.sandbox.run(spec)
        output = result.output.decode("utf-8", "replace").strip()
        if result.exit_code:
            raise ToolError(f"git failed: {output[:200] or 'no output'}")
        return output or _NO_CHANGES


def blocked_sites(rules: WebsiteBlocklist, home: Home) -> frozenset[str]:
    """Blocked host names from the settings and from files with one name per line.

    Raises `ToolError` if a file cannot be read, since it is unknown what it blocks.
    """
    if not rules.enabled:
        return frozenset()
    lines = [*rules.domains]
    for name in rules.shared_files:
        path = home.root / Path(name).expanduser()
        try:
            lines += read_regular_file(path, _MAX_BYTES).decode("utf-8-sig", "replace").splitlines()
        except (HermesError, OSError) as error:
            raise ToolError(f"cannot read a list of security.website_blocklist: {path}") from error
    return frozenset(name for line in lines for name in _ascii_names(_site_name(line)) if name)


def _site_name(line: str) -> str:
    """The host name of a URL, a host with a port, or `*.example.org`."""
    name = line.partition("#")[0].strip().lower()
    name = name.rpartition("://")[2].partition("/")[0]
    if name.startswith("["):
        return name[1:].partition("]")[0]
    # More than one colon: an IPv6 address.
    name = name.partition(":")[0] if name.count(":") == 1 else name
    return name.removeprefix("*.").strip(".")


def _ascii_names(name: str) -> Collection[str]:
    """The name as it appears in URLs, under both IDNA standards."""
    if name.isascii():
        return (name,)
    labels = (
        part if part.isascii() else f"xn--{part.encode('punycode').decode()}"
        for part in name.split(".")
    )
    try:
        old = name.encode("idna").decode()
    except UnicodeError:
        # Not a valid host name.
        old = ""
    return (".".join(labels), old)
