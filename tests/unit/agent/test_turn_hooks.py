"""Hooks see every tool call and the start and end of a turn."""

from contextlib import suppress
from typing import Any

import anyio
import pytest
from msgspec import Raw, structs

from hermes.agent.plan import RuntimePlan
from hermes.agent.turn import run_turn
from hermes.ports.runtime import EmitRuntimeEvent, RuntimeRequest, TurnEnd
from hermes.ports.tool import ToolContext
from hermes.schema.errors import ToolError
from hermes.schema.events import MessageAdded, Outcome, RunEnded, ToolStarted
from hermes.schema.messages import Result, Trust, User, text_of
from hermes.schema.scope import Scope
from hermes.schema.tools import Effect
from hermes.testing.scripted_model import ScriptedModel, ScriptStep, answer_script
from support.turns import (
    SCOPE,
    EventRecorder,
    FakeTool,
    GatedBody,
    assistant_message,
    make_plan,
    tool_call,
    user_message,
)


class Guard:
    """Blocks the given tools and records everything."""

    def __init__(self, *forbidden: str, context: str = "") -> None:
        self.forbidden = forbidden
        self.context = context
        self.notes: list[tuple[object, ...]] = []
        self.hangs = False

    async def before_tool(self, scope: Scope, tool: str, args: Raw) -> str:
        self.notes.append(("before", tool, bytes(args)))
        return f"{tool} is forbidden." if tool in self.forbidden else ""

    async def after_tool(
        self, scope: Scope, tool: str, args: Raw, result: str, *, failed: bool
    ) -> None:
        self.notes.append(("after", tool, result, failed))

    async def turn_started(self, scope: Scope, text: str, *, new: bool) -> str:
        self.notes.append(("asked", text, new))
        return self.context

    async def turn_ended(self, scope: Scope, outcome: Outcome) -> None:
        self.notes.append(("ended", outcome))
        if self.hangs:
            await anyio.sleep_forever()

    def warnings(self) -> list[str]:
        return []


async def run(
    guard: Guard, *tools: FakeTool, script: tuple[list[ScriptStep], ...]
) -> EventRecorder:
    recorder = EventRecorder()
    plan = structs.replace(make_plan(ScriptedModel(*script), *tools), hooks=guard)
    await run_turn(plan, [user_message("go", id="m1")], recorder)
    return recorder


async def test_blocked_call_is_not_started_and_the_model_reads_why() -> None:
    guard, act = Guard("act"), FakeTool("act", effect=Effect.OUTSIDE)
    recorder = await run(
        guard, act, script=([assistant_message(tool_call("act", x=1))], answer_script("ok"))
    )
    assert act.asked == []
    assert not [event for event in recorder.events if isinstance(event, ToolStarted)]
    messages = [event.message for event in recorder.events if isinstance(event, MessageAdded)]
    (result,) = [message for message in messages if isinstance(message, Result)]
    assert result.failed
    assert text_of(result) == "act is forbidden."
    assert guard.notes == [
        ("asked", "go", True),
        ("before", "act", b'{"x":1}'),
        ("ended", Outcome.DONE),
    ]


async def _fail(args: dict[str, Any], context: ToolContext) -> str:
    raise ToolError("It broke.")


async def test_hooks_get_the_result_of_a_call() -> None:
    guard = Guard()
    tools = [FakeTool("look"), FakeTool("act", _fail, effect=Effect.WRITE)]
    calls = assistant_message(tool_call("look"), tool_call("act"), tool_call("nothing"))
    await run(guard, *tools, script=([calls], answer_script("ok")))
    after = [one for one in guard.notes if one[0] == "after"]
    assert after == [("after", "look", "did {}", False), ("after", "act", "It broke.", True)]


async def test_nested_tool_call_passes_the_hooks() -> None:
    """The same goes for calls by programs and servers."""

    async def program(args: dict[str, Any], context: ToolContext) -> str:
        with suppress(ToolError):
            await context.call_tool("break", Raw(b"{}"))
        looked = await context.call_tool("look", Raw(b"{}"))
        try:
            await context.call_tool("act", Raw(b'{"y":2}'))
        except ToolError as error:
            return f"{text_of(Result('', '', looked.parts))} {error}"
        return "nobody minded"

    guard, act = Guard("act"), FakeTool("act")
    tools = [FakeTool("look"), act, FakeTool("program", program), FakeTool("break", _fail)]
    await run(
        guard, *tools, script=([assistant_message(tool_call("program"))], answer_script("ok"))
    )
    assert act.asked == []
    assert guard.notes[1:-1] == [
        ("before", "program", b"{}"),
        ("before", "break", b"{}"),
        ("after", "break", "It broke.", True),
        ("before", "look", b"{}"),
        ("after", "look", "did {}", False),
        ("before", "act", b'{"y":2}'),
        ("after", "program", "did {} act is forbidden.", False),
    ]


class Elsewhere:
    """A runtime that calls one of our tools."""

    name = "elsewhere"

    def __init__(self) -> None:
        self.came: list[Result] = []

    async def run(self, runtime_request: RuntimeRequest, emit: EmitRuntimeEvent) -> TurnEnd:
        self.came.append(await runtime_request.run_tool(tool_call("act")))
        await emit(MessageAdded(assistant_message("Good.")))
        return TurnEnd(Outcome.DONE)

    async def close(self) -> None:
        """Nothing is open."""


async def test_runtime_tool_call_passes_the_hooks() -> None:
    guard, act, runtime = Guard("act", context="It rains."), FakeTool("act"), Elsewhere()
    plan = RuntimePlan(scope=SCOPE, runtime=runtime, system="Hi.", tools={"act": act}, hooks=guard)
    recorder = EventRecorder()
    await run_turn(plan, [user_message("go")], recorder)
    assert act.asked == []
    assert [text_of(one) for one in runtime.came] == ["act is forbidden."]
    assert [one[0] for one in guard.notes] == ["asked", "before", "ended"]
    assert recorder.texts[1].endswith("It rains.")


async def test_hook_context_is_added_as_data() -> None:
    guard = Guard(context="It rains.")
    recorder = await run(guard, script=(answer_script("Take an umbrella."),))
    messages = [event.message for event in recorder.events if isinstance(event, MessageAdded)]
    assert isinstance(messages[1], User)
    assert messages[1].trust is Trust.DATA
    assert text_of(messages[1]).endswith("It rains.")


@pytest.mark.slow
async def test_cancelled_turn_does_not_wait_for_hooks() -> None:
    guard, gates, recorder = Guard(), GatedBody(), EventRecorder()
    guard.hangs = True
    model = ScriptedModel([assistant_message(tool_call("look", gate="1"))], answer_script("ok"))
    plan = structs.replace(make_plan(model, FakeTool("look", gates)), hooks=guard)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(run_turn, plan, [user_message("go")], recorder)
            await gates.reached("1")
            group.cancel_scope.cancel()
    assert guard.notes[-1] == ("ended", Outcome.CANCELLED)
    assert isinstance(recorder.events[-1], RunEnded)
