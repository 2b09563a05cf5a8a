"""Read a server's tool list, and remember which tools were ever announced as acting.

If a server later declares such a tool read-only, that is ignored.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import mcp_types as types
import msgspec

from hermes.kit.files import read_regular_file, write_atomic
from hermes.kit.injection_scan import injection_reason
from hermes.kit.json_errors import JSON_ERRORS
from hermes.kit.terminal_text import escape_controls, show_invisible_line
from hermes.mcp.parameter_schema import UnusableSchema, copy_schema, texts_in
from hermes.mcp.server_config import ServerConfig, digest, safe_name
from hermes.schema.tools import Effect, ToolSpec

log = logging.getLogger(__name__)

MAX_REMEMBERED = 1_000
"""Names remembered per server; if it had more, all of its tools need an approval."""
_MAX_FILE_BYTES = 4_000_000
NamesByServer = Mapping[str, frozenset[str]]


class ActingTools:
    """Names of acting tools by server, stored in a file if one is given.

    If the file cannot be read, every tool needs an approval. Does file I/O: not for the event loop.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._names: NamesByServer | None = {} if path is None else _load_names(path)

    def note(self, server: str, names: Collection[str]) -> None:
        if self._names is None:
            return
        known = self._names.get(server, frozenset())
        if len(known) > MAX_REMEMBERED or known.issuperset(names):
            return
        if self._path is not None:
            # Another process may have written since.
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


def _load_names(path: Path) -> NamesByServer | None:
    try:
        return msgspec.json.decode(
            read_regular_file(path, _MAX_FILE_BYTES), type=dict[str, frozenset[str]]
        )
    except FileNotFoundError:
        return {}
    except (OSError, *JSON_ERRORS) as error:
        log.warning("cannot read %s, so all MCP tools need approval: %s", path, error)
        return None


def _save_names(path: Path, names: NamesByServer) -> None:
    data = msgspec.json.encode({server: sorted(names[server]) for server in sorted(names)})
    try:
        write_atomic(path, data, mode=0o600)
    except OSError as error:
        log.warning("cannot write %s: %s", path, error.strerror)


MAX_TOOLS = 300
MAX_DESCRIPTION = 1_500
MAX_NAME = 200
MAX_PARAMETERS = 16_000
"""Bytes of the parameters of one tool."""
MAX_TOTAL_CHARACTERS = 400_000
"""Characters of all descriptions of a server."""
MAX_LOGGED = 10
_OTHER_TOOLS = "the rest"
_SCAN_SIZE, _SCAN_OVERLAP = 2_000, 500
"""Texts are scanned in pieces to let other threads run; no rule spans more than the overlap."""

ToolSpecs = Mapping[str, tuple[str, ToolSpec]]
"""By the server's name of the tool: a seal that changes with the tool, and its spec."""


class ToolListReader:
    """Reads one server's tool list page by page; known tools are not checked again.

    Slow, with file I/O: not for the event loop.
    """

    def __init__(self, server: ServerConfig, acting: ActingTools | None = None) -> None:
        self._server = server
        self._acting = acting or ActingTools()
        self._known: dict[str, ToolSpec | str] = {}
        self._left_out: dict[str, str] = {}
        self._logged: dict[str, str] = {}
        self.start()

    def start(self) -> None:
        """Start a new list; tools of the last one are not checked again."""
        self._before, self._known = self._known, {}
        self._logged, self._left_out = self._left_out, {}
        self._found: dict[str, tuple[str, ToolSpec]] = {}
        self._acting_names: set[str] = set()
        self._characters = 0

    @property
    def full(self) -> bool:
        seen = len(self._found) + len(self._left_out)
        return seen >= MAX_TOOLS or self._characters > MAX_TOTAL_CHARACTERS

    def add_page(self, tools: Sequence[types.Tool]) -> None:
        """Add one page; of duplicate names the first counts."""
        for tool in tools:
            if self.full:
                self._left_out[_OTHER_TOOLS] = "it has too many tools"
                return
            if len(tool.name) > MAX_NAME or not tool.name:
                self._left_out[tool.name[:MAX_NAME]] = "its name is empty or too long"
            elif self._server.is_enabled(tool.name) and tool.name not in self._found:
                self._try_add(tool)

    def finish(self, *, cut: bool = False) -> ToolSpecs:
        """Finish the list; `cut` means that the server has more pages."""
        if cut:
            self._left_out[_OTHER_TOOLS] = "it has too many tools"
        self._acting.note(self._server.name, self._acting_names)
        new = {name: reason for name, reason in self._left_out.items() if name not in self._logged}
        for name, reason in [*new.items()][:MAX_LOGGED]:
            shown = show_invisible_line(name, 60)
            log.warning("MCP server %s: skipped %s: %s", self._server.name, shown, reason)
        if len(new) > MAX_LOGGED:
            more = len(new) - MAX_LOGGED
            log.warning("MCP server %s: skipped %d more tools", self._server.name, more)
        return self._found

    def _try_add(self, tool: types.Tool) -> None:
        """Add a tool; one that cannot be processed does not affect the others."""
        try:
            self._take(tool)
        except Exception:
            log.exception("MCP server %s: a tool cannot be read", self._server.name)
            self._left_out[tool.name] = "it cannot be read"

    def _take(self, tool: types.Tool) -> None:
        if tool.execution and tool.execution.task_support == "required":
            self._left_out[tool.name] = "it can only be called as a task, which is not supported"
            return
        text = (tool.description or tool.title or "")[:MAX_DESCRIPTION]
        claims = bool(tool.annotations and tool.annotations.read_only_hint)
        if not claims:
            self._acting_names.add(tool.name)
        try:
            schema = copy_schema(tool.input_schema, annotations=True)
        except UnusableSchema as error:
            self._left_out[tool.name] = f"it {error}"
            return
        reads = claims and not self._acting.has(self._server.name, tool.name)
        seal = digest(self._server.address, tool.name, text, schema, claims, reads)
        spec = self._before.get(seal) or self._known.get(seal)
        if spec is None:
            spec = self._build_spec(tool.name, text, schema, reads=reads)
        if len(self._known) < 2 * MAX_TOOLS:
            self._known[seal] = spec
        if isinstance(spec, str):
            self._left_out[tool.name] = spec
            return
        self._characters += spec.characters
        if self._characters <= MAX_TOTAL_CHARACTERS:
            self._found[tool.name] = seal, spec

    def _build_spec(
        self, name: str, text: str, schema: dict[str, Any], *, reads: bool
    ) -> ToolSpec | str:
        if reason := injection_reason(safe_name(name).replace("_", " ").replace("-", " ")):
            return f"its name {reason}"
        try:
            schema = self._without_instructions(name, schema)
        except UnusableSchema as error:
            return f"it {error}"
        return ToolSpec(
            name=self._server.tool_name(name),
            description=describe_tool(self._server, name, text),
            schema=schema,
            effect=Effect.READ if reads else Effect.OUTSIDE,
            timeout=self._server.max_call_seconds,
            toolset=self._server.toolset,
            foreign=True,
            alone=not self._server.parallel,
        )

    def _without_instructions(self, name: str, schema: dict[str, Any]) -> dict[str, Any]:
        """Drop descriptions that are too long or look like instructions to the model."""
        if not _schema_problem(schema):
            return schema
        shown = show_invisible_line(name, 60)
        log.warning(
            "MCP server %s: dropped descriptions of parameters of %s", self._server.name, shown
        )
        bare = copy_schema(schema, annotations=False)
        if reason := _schema_problem(bare):
            raise UnusableSchema(reason)
        return bare


def describe_tool(server: ServerConfig, tool: str, text: str) -> str:
    """Add the server's name to its description; drop one that looks like instructions."""
    text, name = text[:MAX_DESCRIPTION], safe_name(tool)[:60]
    if reason := _scan_text(text):
        shown = show_invisible_line(tool, 60)
        log.warning("MCP server %s: the description of %s %s", server.name, shown, reason)
        text = f"{name} (its description is left out: it {reason})"
    return f"{escape_controls(text.strip()) or name} [MCP server {server.name}]"


def _schema_problem(schema: dict[str, Any]) -> str:
    if len(msgspec.json.encode(schema)) > MAX_PARAMETERS:
        return "has parameters that are too large"
    reason = _scan_text("\n\n".join(texts_in(schema)))
    return reason and f"has a parameter that {reason}"


def _scan_text(text: str) -> str:
    starts = range(0, max(len(text) - _SCAN_OVERLAP, 1), _SCAN_SIZE - _SCAN_OVERLAP)
    return next(
        (reason for at in starts if (reason := injection_reason(text[at : at + _SCAN_SIZE]))), ""
    )
