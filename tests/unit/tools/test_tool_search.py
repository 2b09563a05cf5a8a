"""Searching for tools by plain words, and when that is needed."""

import msgspec
import pytest
from msgspec import Raw

from hermes.ports.tool import ToolContext, ToolOutput
from hermes.schema.errors import ToolError
from hermes.schema.tools import PROXY_TOOL, Effect, ToolSpec
from hermes.tools.tool_search import (
    MAX_ANSWER_BYTES,
    SEARCH_TOOL,
    SearchLimits,
    ToolBudget,
    ToolHits,
    ToolProxy,
    ToolRanking,
    ToolSearch,
    limit_tools,
    stemmed_words,
)
from support.cases import cases
from support.many_tools import SEARCHES, TOOL_COUNT, make_tool_specs
from support.turns import SCOPE, FakeTool


async def _silent(text: str) -> None:
    pass


CTX = ToolContext(SCOPE, "call_1", _silent)


async def search(tool: ToolSearch, **arguments: object) -> ToolHits:
    output = await tool.run(Raw(msgspec.json.encode(arguments)), CTX)
    return msgspec.json.decode(text(output), type=ToolHits)


def text(output: ToolOutput) -> str:
    return "".join(getattr(part, "text", "") for part in output.parts)


@cases(("query", "name"), SEARCHES)
def test_plain_words_find_the_right_tool(query: str, name: str) -> None:
    assert next(spec.name for spec in ToolRanking(make_tool_specs()).best(query, 3)) == name


def test_exact_name_always_ranks_first() -> None:
    specs = make_tool_specs()
    ranking = ToolRanking(specs)
    assert all(ranking.best(spec.name, 1) == [spec] for spec in specs)


def test_words_are_split_and_stemmed() -> None:
    assert list(stemmed_words("createIssue list_pull-requests of the Größen")) == [
        "creat", "issu", "list", "pull", "request", "größen",
    ]  # fmt: skip


async def test_answer_has_parameters_and_stays_small() -> None:
    tool = ToolSearch(make_tool_specs(), SearchLimits())
    found = await search(tool, query="create an issue")
    assert len(found.tools) == 5
    assert found.searched == TOOL_COUNT
    assert "title" in msgspec.json.encode(found.tools[0].parameters).decode()
    everything = await tool.run(Raw(b'{"query":"item list create get","limit":9999}'), CTX)
    assert len(msgspec.json.decode(text(everything), type=ToolHits).tools) == 20


async def test_parameters_that_do_not_fit_are_omitted_with_a_note() -> None:
    wide = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(900)}}
    specs = [ToolSpec(f"wide_{n}", "Does wide things.", wide) for n in range(4)]
    found = await search(ToolSearch(specs, SearchLimits()), query="wide things")
    assert [hit.parameters is not msgspec.UNSET for hit in found.tools] == [
        True,
        False,
        False,
        False,
    ]
    assert "exact name" in str(found.note)
    assert len(msgspec.json.encode(found)) < MAX_ANSWER_BYTES + 8_000


async def test_no_match_lists_the_toolsets() -> None:
    found = await search(ToolSearch(make_tool_specs(), SearchLimits()), query="zzzz qqqq")
    assert found.tools == []
    assert "github (" in str(found.note)
    with pytest.raises(ToolError, match="empty"):
        await search(ToolSearch(make_tool_specs(), SearchLimits()), query=" ")


async def test_unknown_tool_is_reported() -> None:
    with pytest.raises(ToolError, match="unknown tool 'nothing'") as refused:
        await ToolProxy().run(Raw(b'{"name":"nothing","arguments":{}}'), CTX)
    assert SEARCH_TOOL in refused.value.hint


def offered(count: int) -> dict[str, FakeTool]:
    return {f"tool_{n}": FakeTool(f"tool_{n}", effect=Effect.OUTSIDE) for n in range(count)}


def test_few_tools_are_all_listed() -> None:
    tools = {**offered(5), "ours": FakeTool("ours")}
    found = limit_tools(tools, {"ours"}, 100_000, ToolBudget())
    assert found.tools is tools
    assert not found.unlisted


@pytest.mark.parametrize(
    ("window", "room"),
    [
        (100_000, ToolBudget(bytes=500)),
        (500, ToolBudget()),
        (100_000, ToolBudget(always=True)),
    ],
)
def test_too_many_tools_are_searched_for(window: int, room: ToolBudget) -> None:
    found = limit_tools({**offered(20), "ours": FakeTool("ours")}, {"ours"}, window, room)
    assert found.unlisted == {f"tool_{n}" for n in range(20)}
    assert found.tools.keys() - found.unlisted == {"ours", SEARCH_TOOL, PROXY_TOOL}
    assert "20 more" in found.tools[SEARCH_TOOL].spec.description


def test_never_setting_lists_all_tools() -> None:
    assert not limit_tools(offered(500), (), 1_000, ToolBudget(never=True)).unlisted


def test_builtin_tools_are_never_searched_for() -> None:
    tools = offered(50)
    assert limit_tools(tools, tools.keys(), 100, ToolBudget(always=True)).tools is tools
