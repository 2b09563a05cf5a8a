"""The tools `tool_search`, which finds others, and `tool_call`, which calls what was found."""

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, structs

from hermes.kit.text import one_line
from hermes.ports.tool import Output, ToolContext
from hermes.schema.errors import ToolError
from hermes.schema.tools import BRIDGE, Effect, ToolSpec
from hermes.tools.arguments import Arguments, description, result
from hermes.tools.finding.ranking import Ranking

SEARCH = "tool_search"
ROOM = 24_000
"""Bytes of one answer; what does not fit is told without its parameters."""
MOST_WORDS = 600
MOST_SETS = 300
_PLACE = Path(__file__).parent


class SearchArgs(Struct, frozen=True, forbid_unknown_fields=True):
    query: Annotated[str, Meta(max_length=1000)]
    limit: Annotated[int, Meta(ge=0)] = 0


class CallArgs(Struct, frozen=True):
    name: str
    arguments: dict[str, Any] = {}


class Hit(Struct, frozen=True, kw_only=True):
    name: str
    description: str
    parameters: dict[str, Any] | UnsetType = UNSET


class Hits(Struct, frozen=True, kw_only=True):
    tools: list[Hit]
    searched: int
    note: str | UnsetType = UNSET


class Most(Struct, frozen=True, kw_only=True):
    """How many tools one search brings when nothing is said, and at most."""

    usual: int = 5
    most: int = 20


class ToolSearch:
    def __init__(self, specs: Sequence[ToolSpec], most: Most) -> None:
        self._specs = specs
        self._most = most
        self._arguments = Arguments(SEARCH, SearchArgs)
        told = description(f"{_PLACE}/{SEARCH}")
        self.spec = ToolSpec(
            SEARCH,
            f"{told} There are {len(specs)} more: {_sets(specs)}.",
            self._arguments.schema,
            Effect.READ,
            timeout=30.0,
        )

    @cached_property
    def _ranking(self) -> Ranking:
        return Ranking(self._specs)

    async def run(self, args: Raw, ctx: ToolContext) -> Output:
        asked = self._arguments.decode(args)
        if not asked.query.strip():
            raise ToolError(f"{SEARCH}: `query` is empty; say what you want to do.")
        most = min(asked.limit or self._most.usual, self._most.most)
        found = _fitting([_hit(spec) for spec in self._ranking.best(asked.query, max(most, 1))])
        answer = Hits(tools=found, searched=len(self._specs), note=self._note(found) or UNSET)
        return Output.text(result(answer), shown=", ".join(hit.name for hit in found))

    def _note(self, found: Sequence[Hit]) -> str:
        if not found:
            return f"Nothing fits these words. Try others; there is: {_sets(self._specs)}."
        if any(hit.parameters is UNSET for hit in found):
            return "For parameters that are not shown, search for the exact name."
        return ""


class ToolCalling:
    """What is called through it is taken out before; only what cannot be called comes here."""

    def __init__(self) -> None:
        self._arguments = Arguments(BRIDGE, CallArgs)
        self.spec = ToolSpec(
            BRIDGE,
            description(f"{_PLACE}/{BRIDGE}"),
            self._arguments.schema,
            Effect.READ,
            timeout=30.0,
        )

    async def run(self, args: Raw, ctx: ToolContext) -> Output:
        asked = self._arguments.decode(args)
        shown = one_line(asked.name, 80)
        raise ToolError(
            f"{BRIDGE}: there is no tool named {shown!r}.",
            hint=f"Look for it with {SEARCH} and use the exact name.",
        )


def _hit(spec: ToolSpec) -> Hit:
    return Hit(
        name=spec.name,
        description=one_line(spec.description, MOST_WORDS),
        parameters=spec.schema,
    )


def _fitting(hits: Sequence[Hit]) -> list[Hit]:
    """All of them, and parameters as long as there is room; those of the best in any case."""
    room = ROOM
    found: list[Hit] = []
    for hit in hits:
        size = len(msgspec.json.encode(hit))
        if found and size > room:
            found.append(structs.replace(hit, parameters=UNSET))
            continue
        room -= size
        found.append(hit)
    return found


def _sets(specs: Sequence[ToolSpec]) -> str:
    """`github (40), calendar (12)`: where they come from, for who wonders whether to look."""
    counted = Counter(spec.toolset or "others" for spec in specs)
    named = sorted(counted.items(), key=lambda one: (-one[1], one[0]))
    return one_line(", ".join(f"{name} ({count})" for name, count in named), MOST_SETS)
