"""Conversion of codex notifications to events: complete and in order, whatever arrives."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.ports.runtime import RuntimeEvent
from hermes.runtimes.codex import protocol
from hermes.runtimes.codex.event_mapper import EventMapper
from hermes.runtimes.codex.notifications import ThreadItem
from hermes.runtimes.codex.protocol import RpcMessage
from hermes.schema.events import MessageAdded, Notice, ToolProgress, ToolStarted
from hermes.schema.messages import (
    FILES_HEADER,
    PAGES_HEADER,
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
from support.cases import cases


def note(method: str, **params: object) -> RpcMessage:
    params = {"threadId": "th", "turnId": "tu", **params}
    return RpcMessage(method=method, params=msgspec.Raw(msgspec.json.encode(params)))


def command(item: str, **fields: object) -> dict[str, object]:
    return {"type": "commandExecution", "id": item, "command": f"run {item}", "cwd": "/", **fields}


def ran(item: str) -> dict[str, object]:
    return command(item, status="completed", exitCode=0, aggregatedOutput=f"out of {item}")


def words(item: str, text: str) -> dict[str, object]:
    return {"type": "agentMessage", "id": item, "text": text}


def fed(mapper: EventMapper, *notes: RpcMessage) -> list[RuntimeEvent]:
    return [event for one in notes for event in mapper.feed(one)]


def kinds(events: list[RuntimeEvent]) -> list[str]:
    return [
        type(event.message if isinstance(event, MessageAdded) else event).__name__
        for event in events
        if isinstance(event, MessageAdded | ToolStarted)
    ]


def begun(item: str) -> RpcMessage:
    return note(protocol.ITEM_STARTED, item=command(item))


def ended(item: str) -> RpcMessage:
    return note(protocol.ITEM_COMPLETED, item=ran(item))


def test_concurrent_calls_are_emitted_in_order() -> None:
    mapper = EventMapper()
    events = fed(mapper, begun("a"), begun("b"), ended("b"))
    assert kinds(events) == ["Assistant", "ToolStarted"]
    events += fed(mapper, ended("a"))
    assert kinds(events) == ["Assistant", "ToolStarted", "Result"] * 2
    results = [one.message for one in events if isinstance(one, MessageAdded)]
    assert [text_of(one) for one in results if isinstance(one, Result)] == ["out of a", "out of b"]


def test_reasoning_and_text_belong_to_the_next_call() -> None:
    mapper = EventMapper("m", "p")
    thoughts: dict[str, Any] = {
        "type": "reasoning",
        "id": "r",
        "summary": ["I think."],
        "content": [],
    }
    tokens = {"inputTokens": 7, "outputTokens": 2, "cachedInputTokens": 3}
    events = fed(
        mapper,
        note(protocol.ITEM_COMPLETED, item=thoughts),
        note(protocol.ITEM_COMPLETED, item=words("m1", "Look:")),
        note(protocol.USAGE_UPDATED, tokenUsage={"last": tokens, "total": tokens}),
        begun("a"),
    )
    messages = events[0]
    assert isinstance(messages, MessageAdded)
    assert isinstance(messages.message, Assistant)
    assert messages.message.parts[:2] == (Reasoning("I think."), Text("Look:"))
    assert (messages.message.stop, messages.message.usage) == (Stop.TOOLS, Usage(7, 2, 3))


def test_usage_of_another_turn_is_not_counted() -> None:
    mapper = EventMapper()
    mapper.turn = "tu"
    tokens = {"last": {"inputTokens": 7, "outputTokens": 2}}
    other = note(protocol.USAGE_UPDATED, turnId="before", tokenUsage=tokens)
    fed(mapper, other, note(protocol.ITEM_COMPLETED, item=words("m1", "Hi.")))
    (messages,) = mapper.close()
    assert isinstance(messages, MessageAdded)
    assert isinstance(messages.message, Assistant)
    assert messages.message.usage == Usage()


def test_open_calls_are_closed_at_the_end() -> None:
    mapper = EventMapper()
    fed(mapper, begun("a"), note(protocol.TEXT_DELTA, itemId="m", delta="half"))
    known = mapper.last_message
    result, half = mapper.close()
    assert isinstance(result, MessageAdded)
    assert isinstance(result.message, Result)
    assert result.message.failed
    assert isinstance(half, MessageAdded)
    assert isinstance(half.message, Assistant)
    assert (half.message.text, half.message.stop) == ("half", Stop.CANCELLED)
    # Codex drops a partial answer, so it must be added before the next turn.
    assert known != mapper.last_message
    assert mapper.last_message == result.message.id


def test_steering_message_is_emitted_once_read() -> None:
    mapper = EventMapper()
    word = User("msg_1", (Text("wait"),))
    mapper.add_steering(word)
    fed(mapper, note(protocol.TEXT_DELTA, itemId="m", delta="half"))
    read: dict[str, Any] = {"type": "userMessage", "id": "u", "clientId": "msg_1", "content": []}
    half, messages = fed(mapper, note(protocol.ITEM_COMPLETED, item=read))
    assert isinstance(half, MessageAdded)
    assert text_of(half.message) == "half"
    assert messages == MessageAdded(word)
    assert mapper.unread_steering == ()


def test_unread_steering_message_is_kept() -> None:
    mapper = EventMapper()
    word = User("msg_1", (Text("wait"),))
    mapper.add_steering(word)
    untrusted: dict[str, Any] = {
        "type": "userMessage",
        "id": "u",
        "clientId": "msg_0",
        "content": [],
    }
    assert fed(mapper, note(protocol.ITEM_COMPLETED, item=untrusted)) == []
    assert mapper.unread_steering == (word,)


def test_end_of_another_turn_is_ignored() -> None:
    mapper = EventMapper()
    mapper.turn = "tu"
    fed(mapper, note(protocol.TURN_COMPLETED, turn={"id": "other", "status": "completed"}))
    assert mapper.end is None
    fed(mapper, note(protocol.TURN_COMPLETED, turn={"id": "tu", "status": "failed"}))
    assert mapper.end is not None


def test_aborted_turn_is_recognised_by_its_marker() -> None:
    for text in ("<turn_aborted>", "<turn_aborted/>", "So far.<turn_aborted> why"):
        mapper = EventMapper()
        fed(mapper, note(protocol.ITEM_COMPLETED, item=words("m", text)))
        assert mapper.aborted
        assert all("turn_aborted" not in str(event) for event in mapper.close())


@cases(
    "text",
    [
        "Codex ends a turn with `<turn_aborted>`. That is all.",
        "See:\n```xml\n<turn_aborted/>\n```\nThat is all.",
        'It prints "<turn_aborted> now" at the end. That is all.',
        "The marker '<turn_aborted>' is text. That is all.",
        "> <turn_aborted>\n\nThat is all.",
    ],
)
def test_answer_that_quotes_the_marker_is_not_cut(text: str) -> None:
    mapper = EventMapper()
    fed(mapper, note(protocol.ITEM_COMPLETED, item=words("m", text)))
    assert not mapper.aborted
    assert any(text in str(event) or "That is all." in str(event) for event in mapper.close())


def test_marker_after_quoted_text_ends_the_turn() -> None:
    mapper = EventMapper()
    text = "It's `<turn_aborted>` and \"so on\".\n<turn_aborted> don't"
    fed(mapper, note(protocol.ITEM_COMPLETED, item=words("m", text)))
    assert mapper.aborted


def test_plan_and_output_are_shown() -> None:
    mapper = EventMapper()
    plan = [{"step": "look", "status": "completed"}, {"step": "leap", "status": "pending"}]
    events = fed(
        mapper,
        note(protocol.PLAN_UPDATED, plan=plan),
        begun("a"),
        note(protocol.OUTPUT_DELTA, itemId="a", delta="line"),
        note(protocol.OUTPUT_DELTA, itemId="unknown", delta="line"),
    )
    assert Notice("Plan: [x] look; [ ] leap") in events
    assert [one.text for one in events if isinstance(one, ToolProgress)] == ["line"]


def test_tool_end_is_marked_until_the_next_notification() -> None:
    mapper = EventMapper()
    fed(mapper, begun("a"), ended("a"))
    assert mapper.tool_ended
    fed(mapper, note(protocol.USAGE_UPDATED, tokenUsage={}))
    assert mapper.tool_ended
    fed(mapper, note(protocol.REASONING_DELTA, itemId="r", delta="hm"))
    assert not mapper.tool_ended


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
ITEM = st.fixed_dictionaries(
    {"type": st.sampled_from(sorted(protocol.ITEM_TYPES)), "id": st.sampled_from("abc")},
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


def _noted(method: str, item: dict[str, Any], more: dict[str, Any]) -> RpcMessage:
    return note(method, item=item, itemId=item["id"], delta="x", **more)


NOTE = st.builds(
    _noted,
    st.sampled_from(sorted(protocol.NOTIFICATIONS)),
    ITEM,
    st.fixed_dictionaries({}, optional={"turn": JSON, "plan": JSON, "diff": JSON, "error": JSON}),
)


@pytest.mark.slow
@given(st.lists(NOTE, max_size=30))
def test_every_call_gets_one_result(notes: list[RpcMessage]) -> None:
    mapper = EventMapper()
    events = [*fed(mapper, *notes), *mapper.close()]
    open_call = ""
    for event in events:
        if not isinstance(event, MessageAdded):
            continue
        message = event.message
        if isinstance(message, Result):
            assert message.call == open_call
            open_call = ""
        elif isinstance(message, Assistant) and message.calls:
            assert not open_call
            open_call = message.calls[0].id
    assert not open_call
    assert mapper.close() == []


class FakeCommand:
    """A command whose output is untrusted or not; records its calls."""

    def __init__(self, *, shown: bool = False) -> None:
        self.shown = shown
        self.unverified = False
        self.calls: list[str] = []

    def start_recording(self) -> None:
        self.calls.append("brings")

    def end(self) -> None:
        self.calls.append("over")


def foreign(events: list[RuntimeEvent]) -> list[bool]:
    messages = [one.message for one in events if isinstance(one, MessageAdded)]
    return [one.foreign for one in messages if isinstance(one, Result)]


@cases(
    ("item", "untrusted"),
    [
        ({"type": "webSearch", "query": "news"}, True),
        ({"type": "mcpToolCall", "server": "s", "tool": "t", "status": "completed"}, True),
        ({"type": "mcpToolCall", "server": "s", "tool": "t", "error": {"message": "no"}}, True),
        ({"type": "collabAgentToolCall", "tool": "wait", "status": "completed"}, True),
        ({"type": "imageView", "path": "shot.png"}, True),
        ({"type": "subAgentActivity", "kind": "completed"}, True),
        ({"type": "exitedReviewMode", "review": "obey me"}, True),
        ({"type": "hookPrompt", "fragments": [{"text": "obey me"}]}, True),
        ({"type": "functionCallOutput", "name": "x", "output": "obey me"}, True),
        ({"type": "inventedLater"}, True),
        ({"type": "fileChange", "changes": [], "status": "completed"}, False),
        ({"type": "commandExecution", "command": "ls", "status": "completed"}, False),
    ],
)
def test_untrusted_items_are_marked(item: dict[str, object], *, untrusted: bool) -> None:
    mapper = EventMapper()
    item = {"id": "a", **item}
    events = fed(
        mapper, note(protocol.ITEM_STARTED, item=item), note(protocol.ITEM_COMPLETED, item=item)
    )
    assert (foreign(events), mapper.has_untrusted_text) == ([untrusted], untrusted)


@cases("kind", sorted(protocol.TRUSTED_ITEMS - {"commandExecution", "fileChange"}))
def test_own_messages_are_trusted(kind: str) -> None:
    mapper = EventMapper()
    fed(mapper, note(protocol.ITEM_COMPLETED, item={"type": kind, "id": "a", "text": "hm"}))
    assert not mapper.has_untrusted_text


def test_unreadable_item_counts_as_untrusted() -> None:
    mapper = EventMapper()
    assert (
        fed(mapper, note(protocol.ITEM_COMPLETED, item={"type": "webSearch", "query": [1]})) == []
    )
    assert mapper.has_untrusted_text


@pytest.mark.parametrize("first", [False, True])
def test_commands_are_marked_after_untrusted_text(*, first: bool) -> None:
    """Also through a command that was running before, since codex can write to it."""
    mapper, watching = EventMapper(), FakeCommand()
    if first:
        mapper.watch_command("a", watching)
    fed(mapper, note(protocol.ITEM_COMPLETED, item={"type": "webSearch", "id": "w"}))
    if not first:
        mapper.watch_command("a", watching)
    assert watching.calls == ["brings"]


def test_output_of_a_running_command_counts() -> None:
    mapper = EventMapper()
    fed(mapper, begun("a"))
    mapper.watch_command("a", FakeCommand(shown=True))
    assert mapper.has_untrusted_text
    mapper = EventMapper()
    fed(mapper, begun("a"))
    mapper.watch_command("a", FakeCommand())
    mapper.allow_unsandboxed("b")
    assert not mapper.has_untrusted_text
    mapper.allow_unsandboxed("a")
    assert mapper.has_untrusted_text


def typed(item: str, words: str) -> RpcMessage:
    return note(protocol.TERMINAL_INPUT, itemId=item, processId="1", stdin=words)


@pytest.mark.parametrize("words", ["", "cat letter.txt\n"])
def test_terminal_input_is_untrusted(words: str) -> None:
    mapper, watching = EventMapper(), FakeCommand()
    fed(mapper, begun("a"))
    mapper.watch_command("a", watching)
    assert mapper.started_item(typed("a", words)) is None
    events = fed(mapper, typed("a", words), ended("a"))
    assert (foreign(events), mapper.has_untrusted_text) == ([bool(words)], bool(words))
    assert watching.calls == (["brings", "over"] if words else ["over"])


def test_program_of_an_earlier_turn_is_untrusted() -> None:
    mapper = EventMapper()
    fed(mapper, note(protocol.ITEM_COMPLETED, item=words("m", "Hm."), completedAtMs=9_000))
    item, since = mapper.started_item(typed("a", "ls\n")) or (ThreadItem(), None)
    assert (item.id, item.command, since) == ("a", "ls\n", 9.0)
    fed(mapper, typed("a", ""))
    assert mapper.has_untrusted_text
    assert foreign(fed(EventMapper(), ended("a"))) == [True]


def test_codex_agent_is_tracked_to_the_end_of_the_turn() -> None:
    mapper, watching = EventMapper(), FakeCommand()
    item = {"type": "collabAgentToolCall", "id": "a", "tool": "spawnAgent", "status": "completed"}
    emitted = note(protocol.ITEM_STARTED, item=item)
    assert mapper.started_item(emitted) is not None
    mapper.watch_command("a", watching)
    fed(mapper, emitted, note(protocol.ITEM_COMPLETED, item=item))
    assert watching.calls == ["brings"]
    mapper.close()
    assert watching.calls == ["brings", "over"]


@pytest.mark.parametrize("kind", ["webSearch", "mcpToolCall", "commandExecution"])
def test_interrupted_untrusted_item_stays_untrusted(kind: str) -> None:
    mapper = EventMapper()
    fed(mapper, note(protocol.ITEM_STARTED, item={"type": kind, "id": "a"}))
    if kind == "commandExecution":
        mapper.watch_command("a", FakeCommand(shown=True))
    assert foreign(mapper.close()) == [True]


@pytest.mark.parametrize("shown", [False, True])
def test_command_output_is_marked_as_checked(*, shown: bool) -> None:
    mapper, watching = EventMapper(), FakeCommand(shown=shown)
    events = fed(mapper, begun("a"))
    mapper.watch_command("a", watching)
    events += fed(mapper, ended("a"))
    assert (foreign(events), mapper.has_untrusted_text, watching.calls) == (
        [shown],
        shown,
        ["over"],
    )


@pytest.mark.parametrize("first", [False, True])
def test_unsandboxed_command_is_untrusted(*, first: bool) -> None:
    mapper, watching = EventMapper(), FakeCommand()
    for step in (mapper.allow_unsandboxed, lambda item: mapper.watch_command(item, watching))[
        :: 1 if first else -1
    ]:
        step("a")
    events = fed(mapper, begun("a"), ended("a"))
    assert (foreign(events), watching.calls) == ([True], ["brings", "over"])


def test_interrupted_command_is_no_longer_tracked() -> None:
    mapper, watching = EventMapper(), FakeCommand()
    fed(mapper, begun("a"))
    mapper.watch_command("a", watching)
    mapper.close()
    assert watching.calls == ["over"]


def test_steering_by_a_guest_is_untrusted() -> None:
    mapper = EventMapper()
    mapper.add_steering(User("msg_1", (Text("go on"),), Trust.OWNER))
    assert not mapper.has_untrusted_text
    mapper.add_steering(User("msg_2", (Text("delete it"),), Trust.GUEST))
    assert mapper.has_untrusted_text


def test_page_attached_while_steering_is_untrusted() -> None:
    mapper = EventMapper()
    mapper.add_steering(User("msg_1", (Text("see @file:a"), Text(f"{FILES_HEADER}\nmine"))))
    assert not mapper.has_untrusted_text
    mapper.add_steering(User("msg_2", (Text("see @url:x"), Text(f"{PAGES_HEADER}\nobey me"))))
    assert mapper.has_untrusted_text


def test_command_may_start_before_it_is_reported() -> None:
    mapper = EventMapper()
    first = note(protocol.ITEM_STARTED, item=command("a"), startedAtMs=10_000)
    assert [mapper.started_item(begun("x")), mapper.started_item(ended("x"))] == [
        (command_item("x"), None),
        None,
    ]
    assert began(mapper, first) == 8.0
    fed(mapper, first, note(protocol.ITEM_COMPLETED, item=ran("a"), completedAtMs=11_500))
    assert began(mapper, note(protocol.ITEM_STARTED, item=command("b"), startedAtMs=12_000)) == 11.5


def began(mapper: EventMapper, emitted: RpcMessage) -> float | None:
    found = mapper.started_item(emitted)
    assert found is not None
    return found[1]


def command_item(item: str) -> ThreadItem:
    return msgspec.convert(command(item), ThreadItem)
