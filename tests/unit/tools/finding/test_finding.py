"""Looking for tools by plain words, and when that is needed."""

import msgspec
import pytest
from msgspec import Raw

from hermes.ports.tool import Output, ToolContext
from hermes.schema.errors import ToolError
from hermes.schema.tools import BRIDGE, Effect, ToolSpec
from hermes.tools.finding.narrowing import Room, narrowed
from hermes.tools.finding.ranking import Ranking, words_of
from hermes.tools.finding.tool import ROOM, SEARCH, Hits, Most, ToolCalling, ToolSearch
from many_tools import MANY, NEEDLES, many_specs
from workbench import SCOPE, FakeTool

pytestmark = pytest.mark.anyio


async def _silent(text: str) -> None:
    pass


CTX = ToolContext(SCOPE, "call_1", _silent)


async def search(tool: ToolSearch, **asked: object) -> Hits:
    output = await tool.run(Raw(msgspec.json.encode(asked)), CTX)
    return msgspec.json.decode(text(output), type=Hits)


def text(output: Output) -> str:
    return "".join(getattr(part, "text", "") for part in output.parts)


@pytest.mark.parametrize(("words", "name"), NEEDLES)
def test_plain_words_find_the_right_one_among_many(words: str, name: str) -> None:
    assert next(spec.name for spec in Ranking(many_specs()).best(words, 3)) == name


def test_its_own_name_finds_a_tool_whatever_else_is_called_alike() -> None:
    specs = many_specs()
    ranking = Ranking(specs)
    assert all(ranking.best(spec.name, 1) == [spec] for spec in specs)


def test_words_are_taken_apart_and_lose_their_endings() -> None:
    assert list(words_of("createIssue list_pull-requests of the Größen")) == [
        "creat", "issu", "list", "pull", "request", "größen",
    ]  # fmt: skip


async def test_an_answer_has_what_a_call_needs_and_stays_small() -> None:
    tool = ToolSearch(many_specs(), Most())
    found = await search(tool, query="create an issue")
    assert len(found.tools) == 5
    assert found.searched == MANY
    assert "title" in msgspec.json.encode(found.tools[0].parameters).decode()
    everything = await tool.run(Raw(b'{"query":"item list create get","limit":9999}'), CTX)
    assert len(msgspec.json.decode(text(everything), type=Hits).tools) == 20


async def test_parameters_that_do_not_fit_are_left_out_and_named() -> None:
    wide = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(900)}}
    specs = [ToolSpec(f"wide_{n}", "Does wide things.", wide) for n in range(4)]
    found = await search(ToolSearch(specs, Most()), query="wide things")
    assert [hit.parameters is not msgspec.UNSET for hit in found.tools] == [
        True,
        False,
        False,
        False,
    ]
    assert "exact name" in str(found.note)
    assert len(msgspec.json.encode(found)) < ROOM + 8_000


async def test_nothing_found_says_what_there_is() -> None:
    found = await search(ToolSearch(many_specs(), Most()), query="zzzz qqqq")
    assert found.tools == []
    assert "github (" in str(found.note)
    with pytest.raises(ToolError, match="empty"):
        await search(ToolSearch(many_specs(), Most()), query=" ")


async def test_what_cannot_be_called_is_told() -> None:
    with pytest.raises(ToolError, match="no tool named 'nothing'") as refused:
        await ToolCalling().run(Raw(b'{"name":"nothing","arguments":{}}'), CTX)
    assert SEARCH in refused.value.hint


def offered(count: int) -> dict[str, FakeTool]:
    return {f"tool_{n}": FakeTool(f"tool_{n}", effect=Effect.OUTSIDE) for n in range(count)}


def test_few_tools_are_all_told_of() -> None:
    tools = {**offered(5), "ours": FakeTool("ours")}
    found = narrowed(tools, {"ours"}, 100_000, Room())
    assert found.tools is tools
    assert not found.unlisted


@pytest.mark.parametrize(
    ("window", "room"),
    [
        (100_000, Room(bytes=500)),
        (500, Room()),
        (100_000, Room(always=True)),
    ],
)
def test_too_many_are_looked_for(window: int, room: Room) -> None:
    found = narrowed({**offered(20), "ours": FakeTool("ours")}, {"ours"}, window, room)
    assert found.unlisted == {f"tool_{n}" for n in range(20)}
    assert found.tools.keys() - found.unlisted == {"ours", SEARCH, BRIDGE}
    assert "20 more" in found.tools[SEARCH].spec.description


def test_who_wants_them_all_told_has_them_told() -> None:
    assert not narrowed(offered(500), (), 1_000, Room(never=True)).unlisted


def test_our_own_alone_are_never_looked_for() -> None:
    tools = offered(50)
    assert narrowed(tools, tools.keys(), 100, Room(always=True)).tools is tools
