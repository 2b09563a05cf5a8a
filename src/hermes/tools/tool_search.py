"""Offer tools that do not fit the request: search them with BM25 and call them through a proxy."""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, structs

from hermes.kit.text import one_line
from hermes.ports.tool import Tool, ToolContext, ToolOutput
from hermes.schema.errors import ToolError
from hermes.schema.tools import PROXY_TOOL, Effect, ToolSpec
from hermes.tools.tool_io import Arguments, encode_result

_WORD = re.compile(r"[^\W_]+")
_CAMEL_CASE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_ENDINGS = (("ies", "y"), ("ing", ""), ("ed", ""), ("es", ""), ("s", ""), ("e", ""))
_STOP_WORDS = frozenset(
    _WORD.findall(
        "a an and are at by can do for from how i in into is it me my of on or please some that "
        "the this to tool use want what which with you"
    )
)
_IN_NAME, _IN_SET, _IN_TEXT = 4.0, 2.0, 1.0
_PREFIX_WEIGHT = 0.5
"""Weight of a word that matches only by prefix."""
_MIN_PREFIX = 4
_SATURATION, _BY_LENGTH = 1.2, 0.5


def stemmed_words(text: str) -> Iterator[str]:
    """Yield lower-case word stems, without stop words."""
    for found in _WORD.finditer(_CAMEL_CASE.sub(" ", text)):
        word = found.group().lower()
        if word not in _STOP_WORDS:
            yield _stem(word)


def _stem(word: str) -> str:
    for ending, replacement in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word.removesuffix(ending) + replacement
    return word


class ToolRanking:
    """BM25 ranking of a fixed set of tools."""

    def __init__(self, specs: Sequence[ToolSpec]) -> None:
        self._specs = specs
        self._weights = [_word_weights(spec) for spec in specs]
        lengths = [sum(weight.values()) for weight in self._weights]
        mean = sum(lengths) / max(len(lengths), 1)
        self._length_norm = [
            1 - _BY_LENGTH + _BY_LENGTH * length / (mean or 1) for length in lengths
        ]
        seen = Counter(word for weight in self._weights for word in weight)
        self._rarity = {
            word: math.log(1 + (len(specs) - count + 0.5) / (count + 0.5))
            for word, count in seen.items()
        }

    def best(self, query: str, limit: int) -> list[ToolSpec]:
        """Return the best tools first; a tool named exactly like the query always leads."""
        query_words = [
            dict(self._similar_words(word)) for word in dict.fromkeys(stemmed_words(query))
        ]
        exact = query.strip().casefold()
        scores = [
            (spec.name.casefold() == exact, self._score(query_words, number), spec.name, spec)
            for number, spec in enumerate(self._specs)
        ]
        found = [score for score in scores if score[0] or score[1] > 0]
        found.sort(key=lambda one: (not one[0], -one[1], one[2]))
        return [spec for *_, spec in found[:limit]]

    def _similar_words(self, word: str) -> Iterator[tuple[str, float]]:
        """Yield the known words a query word may mean, with their weights."""
        if word in self._rarity:
            yield word, 1.0
        for known in self._rarity if len(word) >= _MIN_PREFIX else ():
            is_prefix = known.startswith(word) or word.startswith(known)
            if is_prefix and known != word and len(known) >= _MIN_PREFIX:
                yield known, _PREFIX_WEIGHT

    def _score(self, query_words: Sequence[Mapping[str, float]], number: int) -> float:
        """Score one tool; of several meanings of a query word the best counts."""
        weights, room = self._weights[number], _SATURATION * self._length_norm[number]
        total = 0.0
        for alike in query_words:
            total += max(
                (
                    share * self._rarity[known] * weights[known] * (_SATURATION + 1)
                    / (weights[known] + room)
                    for known, share in alike.items()
                    if known in weights
                ),
                default=0.0,
            )  # fmt: skip
        return total


def _word_weights(spec: ToolSpec) -> dict[str, float]:
    weights: dict[str, float] = {}
    named: dict[str, object] = spec.schema.get("properties") or {}
    fields = [
        (spec.name, _IN_NAME),
        (spec.toolset, _IN_SET),
        (spec.description, _IN_TEXT),
        (" ".join(named), _IN_TEXT),
    ]
    for text, weight in fields:
        for word in stemmed_words(text):
            weights[word] = weights.get(word, 0.0) + weight
    return weights


SEARCH_TOOL = "tool_search"
MAX_ANSWER_BYTES = 24_000
"""Bytes of one answer; hits beyond it are listed without parameters."""
MAX_DESCRIPTION = 600
MAX_TOOLSETS = 300


class SearchArgs(Struct, frozen=True, forbid_unknown_fields=True):
    query: Annotated[str, Meta(max_length=1000)]
    limit: Annotated[int, Meta(ge=0)] = 0


class CallArgs(Struct, frozen=True):
    name: str
    arguments: dict[str, Any] = {}


class ToolHit(Struct, frozen=True, kw_only=True):
    name: str
    description: str
    parameters: dict[str, Any] | UnsetType = UNSET


class ToolHits(Struct, frozen=True, kw_only=True):
    tools: list[ToolHit]
    searched: int
    note: str | UnsetType = UNSET


class SearchLimits(Struct, frozen=True, kw_only=True):
    """Number of results per search: default and maximum."""

    default: int = 5
    maximum: int = 20


class ToolSearch:
    def __init__(self, specs: Sequence[ToolSpec], limits: SearchLimits) -> None:
        self._specs = specs
        self._limits = limits
        self._arguments = Arguments(SEARCH_TOOL, SearchArgs)
        spec = self._arguments.spec(__file__, Effect.READ, timeout=30.0)
        more = f"There are {len(specs)} more: {_toolset_counts(specs)}."
        self.spec = structs.replace(spec, description=f"{spec.description} {more}")

    @cached_property
    def _ranking(self) -> ToolRanking:
        return ToolRanking(self._specs)

    async def run(self, args: Raw, ctx: ToolContext) -> ToolOutput:
        arguments = self._arguments.decode(args)
        if not arguments.query.strip():
            raise ToolError(f"{SEARCH_TOOL}: `query` is empty; say what you want to do.")
        limit = min(arguments.limit or self._limits.default, self._limits.maximum)
        hits = [
            ToolHit(
                name=spec.name,
                description=one_line(spec.description, MAX_DESCRIPTION),
                parameters=spec.schema,
            )
            for spec in self._ranking.best(arguments.query, max(limit, 1))
        ]
        found = _within_answer(hits)
        answer = ToolHits(tools=found, searched=len(self._specs), note=self._note(found) or UNSET)
        return ToolOutput.text(encode_result(answer), shown=", ".join(hit.name for hit in found))

    def _note(self, found: Sequence[ToolHit]) -> str:
        if not found:
            return f"No match. Try other words. Available: {_toolset_counts(self._specs)}."
        if any(hit.parameters is UNSET for hit in found):
            return "For parameters that are not shown, search for the exact name."
        return ""


class ToolProxy:
    """Only reports unknown names: calls to existing tools are unwrapped before they get here."""

    def __init__(self) -> None:
        self._arguments = Arguments(PROXY_TOOL, CallArgs)
        self.spec = self._arguments.spec(__file__, Effect.READ, timeout=30.0)

    async def run(self, args: Raw, ctx: ToolContext) -> ToolOutput:
        arguments = self._arguments.decode(args)
        shown = one_line(arguments.name, 80)
        raise ToolError(
            f"{PROXY_TOOL}: unknown tool {shown!r}.",
            hint=f"Look for it with {SEARCH_TOOL} and use the exact name.",
        )


def _within_answer(hits: Sequence[ToolHit]) -> list[ToolHit]:
    """Return all hits, dropping parameters beyond the size limit except for the best hit."""
    room = MAX_ANSWER_BYTES
    found: list[ToolHit] = []
    for hit in hits:
        size = len(msgspec.json.encode(hit))
        if found and size > room:
            found.append(structs.replace(hit, parameters=UNSET))
            continue
        room -= size
        found.append(hit)
    return found


def _toolset_counts(specs: Sequence[ToolSpec]) -> str:
    """Summarize where the tools come from: `github (40), calendar (12)`."""
    counted = Counter(spec.toolset or "others" for spec in specs)
    named = sorted(counted.items(), key=lambda one: (-one[1], one[0]))
    return one_line(", ".join(f"{name} ({count})" for name, count in named), MAX_TOOLSETS)


BYTES_PER_TOKEN = 4
_TOOL_OVERHEAD = 60
"""Estimated bytes per tool in a request besides its texts."""


class ToolBudget(Struct, frozen=True, kw_only=True):
    """When tools of others are listed to the model, and when they must be searched for.

    `always` and `never` force searching or listing; otherwise tools of others may take `share` of
    the context window, and all tools together `bytes`.
    """

    always: bool = False
    never: bool = False
    share: float = 0.1
    bytes: int = 24_000
    search_limits: SearchLimits = SearchLimits()


class OfferedTools(Struct, frozen=True):
    """All callable tools, and which of them are not listed to the model."""

    tools: Mapping[str, Tool]
    unlisted: frozenset[str] = frozenset()


def limit_tools(
    tools: Mapping[str, Tool], builtin: Collection[str], window: int, budget: ToolBudget
) -> OfferedTools:
    others = [tool.spec for name, tool in sorted(tools.items()) if name not in builtin]
    if (
        not others
        or budget.never
        or not (budget.always or _exceeds_budget(tools, others, window, budget))
    ):
        return OfferedTools(tools)
    search, proxy = ToolSearch(others, budget.search_limits), ToolProxy()
    return OfferedTools(
        {**tools, SEARCH_TOOL: search, PROXY_TOOL: proxy}, frozenset(spec.name for spec in others)
    )


def _exceeds_budget(
    tools: Mapping[str, Tool], others: Collection[ToolSpec], window: int, budget: ToolBudget
) -> bool:
    total = sum(_spec_bytes(tool.spec) for tool in tools.values())
    share = window * BYTES_PER_TOKEN * budget.share
    return total > budget.bytes or sum(map(_spec_bytes, others)) > share


def _spec_bytes(spec: ToolSpec) -> int:
    text = len(spec.name) + len(spec.description.encode())
    return text + len(msgspec.json.encode(spec.schema)) + _TOOL_OVERHEAD
