"""Which tools were ever seen to act: a server that calls one a reader later is not believed."""

import logging
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import mcp_types as types
import msgspec

from hermes.kit.files import read_regular_file, write_atomic
from hermes.kit.injection_scan import injection_reason
from hermes.kit.terminal_text import escape_controls, show_invisible_line
from hermes.mcp.parameter_schema import UnusableSchema, copy_schema, texts_in
from hermes.mcp.server_config import ServerConfig, digest, safe_name
from hermes.schema.tools import Effect, ToolSpec

log = logging.getLogger(__name__)

MAX_REMEMBERED = 1_000
"""Names of one server that are remembered; if it has had more, all of its tools ask."""
_MAX_FILE_BYTES = 4_000_000
NamesByServer = Mapping[str, frozenset[str]]


class ActingTools:
    """Names by server. Kept in a file, if there is one, over all starts.

    Where the file cannot be read, every tool asks. Reads and writes it, so it is not for the
    event loop.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._names: NamesByServer | None = {} if path is None else _load_names(path)

    def note(self, server: str, names: Collection[str]) -> None:
        if self._names is None or not self._has_new_names(self._names, server, names):
            return
        if self._path is not None:
            # Another process may have written meanwhile.
            self._names = _load_names(self._path) or self._names
        known = self._names.get(server, frozenset())
        self._names = {
            **self._names,
            server: frozenset(sorted(known.union(names))[: MAX_REMEMBERED + 1]),
        }
        if self._path is not None:
            _save_names(self._path, self._names)

    def has(self, server: str, name: str) -> bool:
        if self._names is None:
            return True
        names = self._names.get(server, frozenset())
        return name in names or len(names) > MAX_REMEMBERED

    def _has_new_names(self, known: NamesByServer, server: str, names: Collection[str]) -> bool:
        ours = known.get(server, frozenset())
        return len(ours) <= MAX_REMEMBERED and not ours.issuperset(names)


def _load_names(path: Path) -> NamesByServer | None:
    try:
        return msgspec.json.decode(
            read_regular_file(path, _MAX_FILE_BYTES), type=dict[str, frozenset[str]]
        )
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError) as error:
        log.warning("%s cannot be read, so every tool of MCP servers asks: %s", path, error)
        return None


def _save_names(path: Path, names: NamesByServer) -> None:
    data = msgspec.json.encode({server: sorted(names[server]) for server in sorted(names)})
    try:
        write_atomic(path, data, mode=0o600)
    except OSError as error:
        log.warning("%s cannot be written: %s", path, error.strerror)


MAX_TOOLS = 300
MAX_DESCRIPTION = 1_500
MAX_NAME = 200
MAX_PARAMETERS = 16_000
"""Bytes of the parameters of one tool."""
MAX_TOTAL_CHARACTERS = 400_000
"""Of all that a server says of its tools."""
MAX_LOGGED = 10
_OTHER_TOOLS = "the rest"
_SCAN_SIZE, _SCAN_OVERLAP = 2_000, 500
"""Others run between two pieces that are looked at; no rule spans more than the overlap."""

ToolSpecs = Mapping[str, tuple[str, ToolSpec]]
"""By the server's own name: a seal that changes with the tool, and what the model is told."""


class ToolListReader:
    """What one server says of its tools, page by page; what is known is not looked at again.

    Takes its time, and reads and writes a file: not for the event loop.
    """

    def __init__(self, server: ServerConfig, acting: ActingTools | None = None) -> None:
        self._server = server
        self._acting = acting or ActingTools()
        self._known: dict[str, ToolSpec | str] = {}
        self._left_out: dict[str, str] = {}
        self._told_of: dict[str, str] = {}
        self.begin()

    def begin(self) -> None:
        """A new list, of which nothing is known but what the last one had."""
        self._before, self._known = self._known, {}
        self._told_of, self._left_out = self._left_out, {}
        self._found: dict[str, tuple[str, ToolSpec]] = {}
        self._acting_names: set[str] = set()
        self._letters = 0

    @property
    def full(self) -> bool:
        seen = len(self._found) + len(self._left_out)
        return seen >= MAX_TOOLS or self._letters > MAX_TOTAL_CHARACTERS

    def take(self, tools: Sequence[types.Tool]) -> None:
        """One page; of a name that comes twice the first counts."""
        for tool in tools:
            if self.full:
                self._left_out[_OTHER_TOOLS] = "it has too many tools"
                return
            if len(tool.name) > MAX_NAME or not tool.name:
                self._left_out[tool.name[:MAX_NAME]] = "its name cannot be used"
            elif self._server.takes(tool.name) and tool.name not in self._found:
                self._try_add(tool)

    def done(self, *, cut: bool = False) -> ToolSpecs:
        """All of it; `cut` says that the server has more pages."""
        if cut:
            self._left_out[_OTHER_TOOLS] = "it has too many tools"
        self._acting.note(self._server.name, self._acting_names)
        news = {name: why for name, why in self._left_out.items() if name not in self._told_of}
        for name, why in [*news.items()][:MAX_LOGGED]:
            shown = show_invisible_line(name, 60)
            log.warning("MCP server %s: %s is left out: %s", self._server.name, shown, why)
        if len(news) > MAX_LOGGED:
            more = len(news) - MAX_LOGGED
            log.warning("MCP server %s: %d more tools are left out", self._server.name, more)
        return self._found

    def _try_add(self, tool: types.Tool) -> None:
        """The boundary to words of strangers: one that we stumble over costs no other."""
        try:
            self._take(tool)
        except Exception:
            log.exception("MCP server %s: a tool cannot be read", self._server.name)
            self._left_out[tool.name] = "it cannot be read"

    def _take(self, tool: types.Tool) -> None:
        words = (tool.description or tool.title or "")[:MAX_DESCRIPTION]
        claims = bool(tool.annotations and tool.annotations.read_only_hint)
        if not claims:
            self._acting_names.add(tool.name)
        try:
            schema = copy_schema(tool.input_schema, words=True)
        except UnusableSchema as error:
            self._left_out[tool.name] = f"it {error}"
            return
        reads = claims and not self._acting.has(self._server.name, tool.name)
        seal = digest(self._server.where, tool.name, words, schema, claims, reads)
        told = self._before.get(seal) or self._known.get(seal)
        if told is None:
            told = self._looked_at(tool.name, words, schema, reads=reads)
        if len(self._known) < 2 * MAX_TOOLS:
            self._known[seal] = told
        if isinstance(told, str):
            self._left_out[tool.name] = told
            return
        self._letters += told.characters
        if self._letters <= MAX_TOTAL_CHARACTERS:
            self._found[tool.name] = seal, told

    def _looked_at(
        self, name: str, words: str, schema: dict[str, Any], *, reads: bool
    ) -> ToolSpec | str:
        if why := injection_reason(safe_name(name).replace("_", " ").replace("-", " ")):
            return f"its name {why}"
        try:
            schema = self._without_instructions(name, schema)
        except UnusableSchema as error:
            return f"it {error}"
        return ToolSpec(
            name=self._server.named(name),
            description=describe_tool(self._server, name, words),
            schema=schema,
            effect=Effect.READ if reads else Effect.OUTSIDE,
            timeout=self._server.longest,
            toolset=self._server.name,
            foreign=True,
            alone=not self._server.parallel,
        )

    def _without_instructions(self, name: str, schema: dict[str, Any]) -> dict[str, Any]:
        """Without words where they are too many, or look as if they were meant for the model."""
        if not _schema_problem(schema):
            return schema
        shown = show_invisible_line(name, 60)
        log.warning("MCP server %s: parameters of %s without words", self._server.name, shown)
        bare = copy_schema(schema, words=False)
        if why := _schema_problem(bare):
            raise UnusableSchema(why)
        return bare


def describe_tool(server: ServerConfig, tool: str, words: str) -> str:
    """The server's own words with whose they are; words to the model itself are left out."""
    words, name = words[:MAX_DESCRIPTION], safe_name(tool)[:60]
    if why := _scan_text(words):
        shown = show_invisible_line(tool, 60)
        log.warning("MCP server %s: the description of %s %s", server.name, shown, why)
        words = f"{name} (what the server says of it is left out: it {why})"
    return f"{escape_controls(words.strip()) or name} [MCP server {server.name}]"


def _schema_problem(schema: dict[str, Any]) -> str:
    if len(msgspec.json.encode(schema)) > MAX_PARAMETERS:
        return "has too large parameters"
    why = _scan_text("\n\n".join(texts_in(schema)))
    return why and f"has parameters of which one {why}"


def _scan_text(text: str) -> str:
    starts = range(0, max(len(text) - _SCAN_OVERLAP, 1), _SCAN_SIZE - _SCAN_OVERLAP)
    return next((why for at in starts if (why := injection_reason(text[at : at + _SCAN_SIZE]))), "")
