"""What a server says of its tools is data: bounded, looked at, and never taken for instructions."""

import logging
from collections.abc import Sequence
from typing import Any

import mcp_types as types
import msgspec

from hermes.changes.scan import suspicion
from hermes.config.shapes import as_list, as_mapping
from hermes.kit.plain import harmless
from hermes.kit.text import one_line
from hermes.mcp.server import Server, digest
from hermes.schema.tools import Effect, ToolSpec

log = logging.getLogger(__name__)

MOST_TOOLS = 300
MOST_WORDS = 1_500
LARGEST = 16_000
"""Bytes of the parameters of one tool."""
_WORDS = frozenset({"description", "title", "examples", "$comment", "$schema", "$id"})


def specs_of(server: Server, tools: Sequence[types.Tool]) -> dict[str, tuple[str, ToolSpec]]:
    """By the server's own name: a seal that changes with the tool, and what the model is told."""
    found: dict[str, tuple[str, ToolSpec]] = {}
    for tool in tools[:MOST_TOOLS]:
        if not server.takes(tool.name):
            continue
        schema = _schema(server, tool)
        if schema is None:
            log.warning("MCP server %s: %s is left out: too large", server.name, tool.name[:100])
            continue
        reads = bool(tool.annotations and tool.annotations.read_only_hint)
        spec = ToolSpec(
            name=server.named(tool.name),
            description=described(server, tool.name, tool.description or tool.title or ""),
            schema=schema,
            effect=Effect.READ if reads else Effect.OUTSIDE,
            timeout=server.timeout,
            toolset=server.name,
            foreign=True,
            alone=not server.parallel,
        )
        found[tool.name] = digest(server.where, tool.description, tool.input_schema, reads), spec
    if len(tools) > MOST_TOOLS:
        log.warning("MCP server %s has too many tools: %d", server.name, len(tools))
    return found


def described(server: Server, tool: str, words: str) -> str:
    """The server's own words with whose they are; words to the model itself are left out."""
    if why := suspicion(words):
        log.warning("MCP server %s: the description of %s %s", server.name, tool[:100], why)
        words = f"{one_line(tool, 60)} (what the server says of it is left out: it {why})"
    told = harmless(words.strip())[:MOST_WORDS] or one_line(tool, 60)
    return f"{told} [MCP server {server.name}]"


def _schema(server: Server, tool: types.Tool) -> dict[str, Any] | None:
    """Without words where they are too many, or look as if they were meant for the model."""
    schema: dict[str, Any] = {"type": "object", "properties": {}, **tool.input_schema}
    schema.pop("$schema", None)
    if schema["type"] != "object":
        return None
    text = msgspec.json.encode(schema)
    if len(text) <= LARGEST and not suspicion(_words_in(schema)):
        return schema
    log.warning("MCP server %s: parameters of %s without words", server.name, tool.name[:100])
    bare = _bare(schema)
    return bare if len(msgspec.json.encode(bare)) <= LARGEST else None


def _words_in(value: object) -> str:
    if (fields := as_mapping(value)) is not None:
        return "\n\n".join(f"{key}\n\n{_words_in(one)}" for key, one in fields.items())
    if (entries := as_list(value)) is not None:
        return "\n\n".join(map(_words_in, entries))
    return value if isinstance(value, str) else ""


def _bare(value: object, *, names: bool = False) -> Any:
    """Without words for people; `names` are parameters, which may be called like those."""
    if (fields := as_mapping(value)) is not None:
        return {
            key: _bare(one, names=key == "properties" and not names)
            for key, one in fields.items()
            if names or key not in _WORDS
        }
    if (entries := as_list(value)) is not None:
        return [_bare(one) for one in entries]
    return value
