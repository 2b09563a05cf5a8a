"""Calls made through the proxy tool."""

import pytest
from msgspec import Raw, structs

from hermes.agent.answers import unwrap_call
from hermes.ports.tool import ToolContext
from hermes.schema.events import ToolStarted
from hermes.schema.messages import Assistant, Result, ToolCall, text_of
from hermes.schema.tools import PROXY_TOOL, Effect
from hermes.testing.scripted_model import answer_script
from support.cases import cases
from support.turns import FakeTool, assistant_message, run_scripted_turn, tool_call

TOOLS = {name: FakeTool(name) for name in (PROXY_TOOL, "look")}


def carried(args: bytes) -> ToolCall:
    return unwrap_call(ToolCall("c1", PROXY_TOOL, Raw(args)), TOOLS)


@cases(
    ("written", "args"),
    [
        (b'{"name":"look","arguments":{"at": 1}}', b'{"at":1}'),
        (b'{"name":"look","arguments":"{\\"at\\": 1}"}', b'{"at":1}'),
        (b'{"name":"look","arguments":null}', b"{}"),
        (b'{"name":"look","arguments":""}', b"{}"),
        (b'{"name":"look"}', b"{}"),
        (b'{"name":"look","arguments":[1]}', b"[1]"),
        (b'{"name":"look","arguments":{\n\n"at": 1, "at": 2}}', b'{"at":2}'),
    ],
)
def test_proxied_call_is_unwrapped(written: bytes, args: bytes) -> None:
    found = carried(written)
    assert (found.id, found.name, bytes(found.args)) == ("c1", "look", args)


UNREADABLE = [
    b'"{},\\"name\\":\\"terminal\\",\\"args\\":{\\"command\\":\\"ls\\"}"',
    b'"{\\n\\ndata: {}"',
    b'"not json"',
    b'"[1]"',
    b'"\\"{}\\""',
    b'{"at":1e999999}',
    b'{"at":%b}' % (b"9" * 5_000),
    b'"%b"' % (b"[" * 3_000),
    b"[" * 900 + b"1e999" + b"]" * 900,
    b'{"at":"\xff"}',
    b'"{\\"at\\":1e999}"',
]


@pytest.mark.parametrize("written", UNREADABLE)
async def test_unreadable_proxied_call_is_not_run_and_reported(written: bytes) -> None:
    call = ToolCall("c1", PROXY_TOOL, Raw(b'{"name":"look","arguments":%b}' % written))
    found = unwrap_call(call, TOOLS)
    assert (found.name, bytes(found.args)) == ("look", b"{}")
    assert found.broken
    look = FakeTool("look")
    _, recorder = await run_scripted_turn(
        [assistant_message(call)], answer_script("Done."), tools=[look, FakeTool(PROXY_TOOL)]
    )
    assert look.asked == []
    assert not [event for event in recorder.events if isinstance(event, ToolStarted)]
    (result,) = recorder.results
    assert result.failed
    assert "nothing was run" in text_of(result)


@cases(
    "written",
    [b'{"name":"nothing"}', b'{"name":"tool_call"}', b'{"name":1}', b"{}", b"[]", b'"look"'],
)
def test_call_without_a_proxied_call_is_unchanged(written: bytes) -> None:
    assert carried(written).name == PROXY_TOOL


def test_without_the_proxy_tool_nothing_is_unwrapped() -> None:
    call = tool_call(PROXY_TOOL, name="look")
    assert unwrap_call(call, {"look": FakeTool("look")}) is call


async def test_turn_runs_the_unwrapped_call_and_stores_the_original() -> None:
    act, bridge = FakeTool("act", effect=Effect.OUTSIDE), FakeTool(PROXY_TOOL)
    call = tool_call(PROXY_TOOL, name="act", arguments={"at": 1})
    model, recorder = await run_scripted_turn(
        [assistant_message(call)], answer_script("Done."), tools=[act, bridge]
    )
    assert act.asked == [{"at": 1}]
    assert bridge.asked == []
    started = [event for event in recorder.events if isinstance(event, ToolStarted)]
    assert [(one.call.id, one.call.name, one.effect) for one in started] == [
        (call.id, "act", Effect.OUTSIDE)
    ]
    sent = model.requests[1].messages[1]
    assert isinstance(sent, Assistant)
    assert sent.calls == [call]


async def test_untrusted_results_are_detected_through_the_proxy() -> None:
    flags: list[bool] = []

    async def listens(args: dict[str, object], ctx: ToolContext) -> str:
        flags.append(ctx.foreign)
        return "heard"

    page = FakeTool("page")
    page.spec = structs.replace(page.spec, foreign=True)
    tools = [page, FakeTool(PROXY_TOOL), FakeTool("listen", listens)]
    _, recorder = await run_scripted_turn(
        [assistant_message(tool_call("listen"))],
        [assistant_message(tool_call(PROXY_TOOL, name="page"))],
        [assistant_message(tool_call("listen"))],
        answer_script("Done."),
        tools=tools,
    )
    assert flags == [False, True]
    assert all(isinstance(one, Result) and text_of(one) for one in recorder.results)
