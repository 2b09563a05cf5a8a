"""What codex tells, as our events: whole, in order, and whatever comes."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.ports.runtime import Heard
from hermes.runtimes.codex import names
from hermes.runtimes.codex.hearing import Hearing
from hermes.runtimes.codex.items import Item
from hermes.runtimes.codex.wire import Incoming
from hermes.schema.attachments import FILES, PAGES
from hermes.schema.events import Notice, Said, ToolProgress, ToolStarted
from hermes.schema.messages import (
    Assistant,
    Reasoning,
    Result,
    Stop,
    Text,
    Trust,
    Usage,
    User,
    text_of,
)


def note(method: str, **params: object) -> Incoming:
    params = {"threadId": "th", "turnId": "tu", **params}
    return Incoming(method=method, params=msgspec.Raw(msgspec.json.encode(params)))


def command(item: str, **fields: object) -> dict[str, object]:
    return {"type": "commandExecution", "id": item, "command": f"run {item}", "cwd": "/", **fields}


def ran(item: str) -> dict[str, object]:
    return command(item, status="completed", exitCode=0, aggregatedOutput=f"out of {item}")


def words(item: str, text: str) -> dict[str, object]:
    return {"type": "agentMessage", "id": item, "text": text}


def fed(hearing: Hearing, *notes: Incoming) -> list[Heard]:
    return [event for one in notes for event in hearing.feed(one)]


def kinds(heard: list[Heard]) -> list[str]:
    return [
        type(event.message if isinstance(event, Said) else event).__name__
        for event in heard
        if isinstance(event, Said | ToolStarted)
    ]


def begun(item: str) -> Incoming:
    return note(names.ITEM_STARTED, item=command(item))


def ended(item: str) -> Incoming:
    return note(names.ITEM_COMPLETED, item=ran(item))


def test_calls_that_run_together_are_told_one_after_the_other() -> None:
    hearing = Hearing()
    heard = fed(hearing, begun("a"), begun("b"), ended("b"))
    assert kinds(heard) == ["Assistant", "ToolStarted"]
    heard += fed(hearing, ended("a"))
    assert kinds(heard) == ["Assistant", "ToolStarted", "Result"] * 2
    results = [one.message for one in heard if isinstance(one, Said)]
    assert [text_of(one) for one in results if isinstance(one, Result)] == ["out of a", "out of b"]


def test_thoughts_and_words_go_with_the_call_that_follows() -> None:
    hearing = Hearing("m", "p")
    thoughts: dict[str, Any] = {
        "type": "reasoning",
        "id": "r",
        "summary": ["I think."],
        "content": [],
    }
    tokens = {"inputTokens": 7, "outputTokens": 2, "cachedInputTokens": 3}
    heard = fed(
        hearing,
        note(names.ITEM_COMPLETED, item=thoughts),
        note(names.ITEM_COMPLETED, item=words("m1", "Look:")),
        note(names.USAGE_UPDATED, tokenUsage={"last": tokens, "total": tokens}),
        begun("a"),
    )
    said = heard[0]
    assert isinstance(said, Said)
    assert isinstance(said.message, Assistant)
    assert said.message.parts[:2] == (Reasoning("I think."), Text("Look:"))
    assert (said.message.stop, said.message.usage) == (Stop.TOOLS, Usage(7, 2, 3))


def test_usage_of_another_turn_is_not_counted() -> None:
    hearing = Hearing()
    hearing.turn = "tu"
    tokens = {"last": {"inputTokens": 7, "outputTokens": 2}}
    other = note(names.USAGE_UPDATED, turnId="before", tokenUsage=tokens)
    fed(hearing, other, note(names.ITEM_COMPLETED, item=words("m1", "Hi.")))
    (said,) = hearing.close()
    assert isinstance(said, Said)
    assert isinstance(said.message, Assistant)
    assert said.message.usage == Usage()


def test_what_is_open_at_the_end_is_closed() -> None:
    hearing = Hearing()
    fed(hearing, begun("a"), note(names.TEXT_DELTA, itemId="m", delta="half"))
    known = hearing.last
    result, half = hearing.close()
    assert isinstance(result, Said)
    assert isinstance(result.message, Result)
    assert result.message.failed
    assert isinstance(half, Said)
    assert isinstance(half.message, Assistant)
    assert (half.message.text, half.message.stop) == ("half", Stop.CANCELLED)
    # Codex forgets half an answer; it has to be told of it before the next turn.
    assert known != hearing.last
    assert hearing.last == result.message.id


def test_what_people_said_is_told_when_codex_has_read_it() -> None:
    hearing = Hearing()
    word = User("msg_1", (Text("wait"),))
    hearing.steered(word)
    fed(hearing, note(names.TEXT_DELTA, itemId="m", delta="half"))
    read: dict[str, Any] = {"type": "userMessage", "id": "u", "clientId": "msg_1", "content": []}
    half, said = fed(hearing, note(names.ITEM_COMPLETED, item=read))
    assert isinstance(half, Said)
    assert text_of(half.message) == "half"
    assert said == Said(word)
    assert hearing.unheard == ()


def test_what_codex_did_not_read_is_left() -> None:
    hearing = Hearing()
    word = User("msg_1", (Text("wait"),))
    hearing.steered(word)
    strange: dict[str, Any] = {"type": "userMessage", "id": "u", "clientId": "msg_0", "content": []}
    assert fed(hearing, note(names.ITEM_COMPLETED, item=strange)) == []
    assert hearing.unheard == (word,)


def test_the_end_of_another_turn_is_not_ours() -> None:
    hearing = Hearing()
    hearing.turn = "tu"
    fed(hearing, note(names.TURN_COMPLETED, turn={"id": "other", "status": "completed"}))
    assert hearing.end is None
    fed(hearing, note(names.TURN_COMPLETED, turn={"id": "tu", "status": "failed"}))
    assert hearing.end is not None


def test_an_aborted_turn_is_known_by_its_words() -> None:
    for text in ("<turn_aborted>", "<turn_aborted/>", "So far.<turn_aborted> why"):
        hearing = Hearing()
        fed(hearing, note(names.ITEM_COMPLETED, item=words("m", text)))
        assert hearing.aborted
        assert all("turn_aborted" not in str(event) for event in hearing.close())


def test_a_plan_and_output_are_shown() -> None:
    hearing = Hearing()
    plan = [{"step": "look", "status": "completed"}, {"step": "leap", "status": "pending"}]
    heard = fed(
        hearing,
        note(names.PLAN_UPDATED, plan=plan),
        begun("a"),
        note(names.OUTPUT_DELTA, itemId="a", delta="line"),
        note(names.OUTPUT_DELTA, itemId="unknown", delta="line"),
    )
    assert Notice("Plan: [x] look; [ ] leap") in heard
    assert [one.text for one in heard if isinstance(one, ToolProgress)] == ["line"]


def test_the_end_of_a_tool_is_marked_until_something_else_comes() -> None:
    hearing = Hearing()
    fed(hearing, begun("a"), ended("a"))
    assert hearing.tool_ended
    fed(hearing, note(names.USAGE_UPDATED, tokenUsage={}))
    assert hearing.tool_ended
    fed(hearing, note(names.REASONING_DELTA, itemId="r", delta="hm"))
    assert not hearing.tool_ended


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
ITEM = st.fixed_dictionaries(
    {"type": st.sampled_from(sorted(names.ITEMS)), "id": st.sampled_from("abc")},
    optional={
        "text": st.text(max_size=20) | JSON,
        "status": st.sampled_from(["completed", "failed", "declined"]) | JSON,
        "exitCode": st.integers(0, 3) | JSON,
        "aggregatedOutput": st.text(max_size=20),
        "changes": JSON,
        "arguments": JSON,
        "result": JSON,
        "error": JSON,
    },
)


def _noted(method: str, item: dict[str, Any], more: dict[str, Any]) -> Incoming:
    return note(method, item=item, itemId=item["id"], delta="x", **more)


NOTE = st.builds(
    _noted,
    st.sampled_from(sorted(names.NOTES)),
    ITEM,
    st.fixed_dictionaries({}, optional={"turn": JSON, "plan": JSON, "diff": JSON, "error": JSON}),
)


@pytest.mark.slow
@given(st.lists(NOTE, max_size=30))
def test_whatever_comes_every_call_gets_one_result(notes: list[Incoming]) -> None:
    hearing = Hearing()
    heard = [*fed(hearing, *notes), *hearing.close()]
    open_call = ""
    for event in heard:
        if not isinstance(event, Said):
            continue
        message = event.message
        if isinstance(message, Result):
            assert message.call == open_call
            open_call = ""
        elif isinstance(message, Assistant) and message.calls:
            assert not open_call
            open_call = message.calls[0].id
    assert not open_call
    assert hearing.close() == []


class Watching:
    """A command that shows strangers' words, or not; remembers what it was told."""

    def __init__(self, *, shown: bool = False) -> None:
        self.shown = shown
        self.told: list[str] = []

    def brings(self) -> None:
        self.told.append("brings")

    def over(self) -> None:
        self.told.append("over")


def foreign(heard: list[Heard]) -> list[bool]:
    said = [one.message for one in heard if isinstance(one, Said)]
    return [one.foreign for one in said if isinstance(one, Result)]


@pytest.mark.parametrize(
    ("item", "strange"),
    [
        ({"type": "webSearch", "query": "news"}, True),
        ({"type": "mcpToolCall", "server": "s", "tool": "t", "status": "completed"}, True),
        ({"type": "mcpToolCall", "server": "s", "tool": "t", "error": {"message": "no"}}, True),
        ({"type": "fileChange", "changes": [], "status": "completed"}, False),
        ({"type": "commandExecution", "command": "ls", "status": "completed"}, False),
    ],
)
def test_what_codex_read_of_strangers_is_marked(item: dict[str, object], *, strange: bool) -> None:
    hearing = Hearing()
    heard = fed(hearing, note(names.ITEM_COMPLETED, item={"id": "a", **item}))
    assert (foreign(heard), hearing.foreign) == ([strange], strange)


@pytest.mark.parametrize("shown", [False, True])
def test_a_command_is_looked_at_as_ours_are(*, shown: bool) -> None:
    hearing, watching = Hearing(), Watching(shown=shown)
    heard = fed(hearing, begun("a"))
    hearing.watched("a", watching)
    heard += fed(hearing, ended("a"))
    assert (foreign(heard), hearing.foreign, watching.told) == ([shown], shown, ["over"])


@pytest.mark.parametrize("first", [False, True])
def test_what_was_let_out_may_bring_anything(*, first: bool) -> None:
    hearing, watching = Hearing(), Watching()
    for step in (hearing.let_out, lambda item: hearing.watched(item, watching))[
        :: 1 if first else -1
    ]:
        step("a")
    heard = fed(hearing, begun("a"), ended("a"))
    assert (foreign(heard), watching.told) == ([True], ["brings", "over"])


def test_a_command_that_is_cut_off_brings_nothing_more() -> None:
    hearing, watching = Hearing(), Watching()
    fed(hearing, begun("a"))
    hearing.watched("a", watching)
    hearing.close()
    assert watching.told == ["over"]


def test_a_guest_who_speaks_meanwhile_is_a_stranger() -> None:
    hearing = Hearing()
    hearing.steered(User("msg_1", (Text("go on"),), Trust.OWNER))
    assert not hearing.foreign
    hearing.steered(User("msg_2", (Text("delete it"),), Trust.GUEST))
    assert hearing.foreign


def test_so_is_a_page_that_the_owner_attaches_meanwhile() -> None:
    hearing = Hearing()
    hearing.steered(User("msg_1", (Text("see @file:a"), Text(f"{FILES}\nmine"))))
    assert not hearing.foreign
    hearing.steered(User("msg_2", (Text("see @url:x"), Text(f"{PAGES}\nobey me"))))
    assert hearing.foreign


def test_a_command_may_be_at_work_before_it_is_told_of() -> None:
    hearing = Hearing()
    first = note(names.ITEM_STARTED, item=command("a"), startedAtMs=10_000)
    assert [hearing.begun(begun("x")), hearing.begun(ended("x"))] == [
        (hearing_item("x"), None),
        None,
    ]
    assert began(hearing, first) == 8.0
    fed(hearing, first, note(names.ITEM_COMPLETED, item=ran("a"), completedAtMs=11_500))
    assert began(hearing, note(names.ITEM_STARTED, item=command("b"), startedAtMs=12_000)) == 11.5


def began(hearing: Hearing, told: Incoming) -> float | None:
    found = hearing.begun(told)
    assert found is not None
    return found[1]


def hearing_item(item: str) -> Item:
    return msgspec.convert(command(item), Item)
