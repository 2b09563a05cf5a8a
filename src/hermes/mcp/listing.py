"""What a server says of its tools is data: bounded, looked at, and never taken for instructions."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import mcp_types as types
import msgspec

from hermes.changes.scan import suspicion
from hermes.kit.plain import harmless, visible_line
from hermes.mcp.acting import Acting
from hermes.mcp.parameters import Unfit, copied, texts_in
from hermes.mcp.server import Server, digest, plain
from hermes.schema.tools import Effect, ToolSpec

log = logging.getLogger(__name__)

MOST_TOOLS = 300
MOST_WORDS = 1_500
LONGEST_NAME = 200
LARGEST = 16_000
"""Bytes of the parameters of one tool."""
MOST_LETTERS = 400_000
"""Of all that a server says of its tools."""
MOST_NAMED = 10
_REST = "the rest"
_PIECE, _OVERLAP = 2_000, 500
"""Others run between two pieces that are looked at; no rule spans more than the overlap."""

Specs = Mapping[str, tuple[str, ToolSpec]]
"""By the server's own name: a seal that changes with the tool, and what the model is told."""


class Listing:
    """What one server says of its tools, page by page; what is known is not looked at again.

    Takes its time, and reads and writes a file: not for the event loop.
    """

    def __init__(self, server: Server, acting: Acting | None = None) -> None:
        self._server = server
        self._acting = acting or Acting()
        self._known: dict[str, ToolSpec | str] = {}
        self._left_out: dict[str, str] = {}
        self._told_of: dict[str, str] = {}
        self.begin()

    def begin(self) -> None:
        """A new list, of which nothing is known but what the last one had."""
        self._before, self._known = self._known, {}
        self._told_of, self._left_out = self._left_out, {}
        self._found: dict[str, tuple[str, ToolSpec]] = {}
        self._acts: set[str] = set()
        self._letters = 0

    @property
    def full(self) -> bool:
        seen = len(self._found) + len(self._left_out)
        return seen >= MOST_TOOLS or self._letters > MOST_LETTERS

    def take(self, tools: Sequence[types.Tool]) -> None:
        """One page; of a name that comes twice the first counts."""
        for tool in tools:
            if self.full:
                self._left_out[_REST] = "it has too many tools"
                return
            if len(tool.name) > LONGEST_NAME or not tool.name:
                self._left_out[tool.name[:LONGEST_NAME]] = "its name cannot be used"
            elif self._server.takes(tool.name) and tool.name not in self._found:
                self._take_if_it_can_be(tool)

    def done(self, *, cut: bool = False) -> Specs:
        """All of it; `cut` says that the server has more pages."""
        if cut:
            self._left_out[_REST] = "it has too many tools"
        self._acting.note(self._server.name, self._acts)
        news = {name: why for name, why in self._left_out.items() if name not in self._told_of}
        for name, why in [*news.items()][:MOST_NAMED]:
            shown = visible_line(name, 60)
            log.warning("MCP server %s: %s is left out: %s", self._server.name, shown, why)
        if len(news) > MOST_NAMED:
            more = len(news) - MOST_NAMED
            log.warning("MCP server %s: %d more tools are left out", self._server.name, more)
        return self._found

    def _take_if_it_can_be(self, tool: types.Tool) -> None:
        """The boundary to words of strangers: one that we stumble over costs no other."""
        try:
            self._take(tool)
        except Exception:
            log.exception("MCP server %s: a tool cannot be read", self._server.name)
            self._left_out[tool.name] = "it cannot be read"

    def _take(self, tool: types.Tool) -> None:
        words = (tool.description or tool.title or "")[:MOST_WORDS]
        claims = bool(tool.annotations and tool.annotations.read_only_hint)
        if not claims:
            self._acts.add(tool.name)
        try:
            schema = copied(tool.input_schema, words=True)
        except Unfit as error:
            self._left_out[tool.name] = f"it {error}"
            return
        reads = claims and not self._acting.has(self._server.name, tool.name)
        seal = digest(self._server.where, tool.name, words, schema, claims, reads)
        told = self._before.get(seal) or self._known.get(seal)
        if told is None:
            told = self._looked_at(tool.name, words, schema, reads=reads)
        if len(self._known) < 2 * MOST_TOOLS:
            self._known[seal] = told
        if isinstance(told, str):
            self._left_out[tool.name] = told
            return
        self._letters += told.characters
        if self._letters <= MOST_LETTERS:
            self._found[tool.name] = seal, told

    def _looked_at(
        self, name: str, words: str, schema: dict[str, Any], *, reads: bool
    ) -> ToolSpec | str:
        if why := suspicion(plain(name).replace("_", " ").replace("-", " ")):
            return f"its name {why}"
        try:
            schema = self._without_orders(name, schema)
        except Unfit as error:
            return f"it {error}"
        return ToolSpec(
            name=self._server.named(name),
            description=described(self._server, name, words),
            schema=schema,
            effect=Effect.READ if reads else Effect.OUTSIDE,
            timeout=self._server.longest,
            toolset=self._server.name,
            foreign=True,
            alone=not self._server.parallel,
        )

    def _without_orders(self, name: str, schema: dict[str, Any]) -> dict[str, Any]:
        """Without words where they are too many, or look as if they were meant for the model."""
        if not _trouble_in(schema):
            return schema
        shown = visible_line(name, 60)
        log.warning("MCP server %s: parameters of %s without words", self._server.name, shown)
        bare = copied(schema, words=False)
        if why := _trouble_in(bare):
            raise Unfit(why)
        return bare


def described(server: Server, tool: str, words: str) -> str:
    """The server's own words with whose they are; words to the model itself are left out."""
    words, name = words[:MOST_WORDS], plain(tool)[:60]
    if why := _suspicion(words):
        shown = visible_line(tool, 60)
        log.warning("MCP server %s: the description of %s %s", server.name, shown, why)
        words = f"{name} (what the server says of it is left out: it {why})"
    return f"{harmless(words.strip()) or name} [MCP server {server.name}]"


def _trouble_in(schema: dict[str, Any]) -> str:
    if len(msgspec.json.encode(schema)) > LARGEST:
        return "has too large parameters"
    why = _suspicion("\n\n".join(texts_in(schema)))
    return why and f"has parameters of which one {why}"


def _suspicion(text: str) -> str:
    starts = range(0, max(len(text) - _OVERLAP, 1), _PIECE - _OVERLAP)
    return next((why for at in starts if (why := suspicion(text[at : at + _PIECE]))), "")
