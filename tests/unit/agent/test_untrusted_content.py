"""Tools and approvals know whether a turn contains untrusted content."""

from typing import Any

from msgspec import structs

from hermes.agent.provenance import UntrustedContent
from hermes.agent.turn import run_turn
from hermes.ports.approvals import ApprovalRequest, Decision, Isolation
from hermes.ports.tool import ToolContext
from hermes.ports.turn import Emit
from hermes.schema.messages import Trust
from hermes.schema.scope import Scope
from hermes.testing.scripted_model import ScriptedModel, answer_script
from support.turns import (
    EventRecorder,
    FakeTool,
    assistant_message,
    make_plan,
    tool_call,
    tool_result,
    user_message,
)


class Listener:
    """Allows everything and records the requests."""

    def __init__(self) -> None:
        self.wishes: list[ApprovalRequest] = []

    async def decide(self, scope: Scope, request: ApprovalRequest, emit: Emit) -> Decision:
        self.wishes.append(request)
        return Decision(allowed=True)

    async def ask_person(self, scope: Scope, text: str, choices: object, emit: Emit) -> str | None:
        return None


async def _act(args: dict[str, Any], context: ToolContext) -> str:
    await context.request_approval(ApprovalRequest(tool="act", action="x", reaching=Isolation.OPEN))
    return f"foreign: {context.foreign}"


def web() -> FakeTool:
    tool = FakeTool("web")
    tool.spec = structs.replace(tool.spec, foreign=True)
    return tool


async def wished(trust: Trust, *calls: str) -> list[bool]:
    scripts = [[assistant_message(tool_call(name))] for name in calls]
    counsel = Listener()
    model = ScriptedModel(*scripts, answer_script("done"))
    plan = structs.replace(
        make_plan(model, web(), FakeTool("look"), FakeTool("act", _act)), approvals=lambda: counsel
    )
    await run_turn(plan, [structs.replace(user_message(), trust=trust)], EventRecorder())
    return [one.foreign for one in counsel.wishes]


async def test_sender_role_decides_at_first() -> None:
    assert await wished(Trust.OWNER, "act") == [False]
    assert await wished(Trust.PROGRAM, "act") == [False]
    assert await wished(Trust.GUEST, "act") == [True]
    assert await wished(Trust.DATA, "act") == [True]


async def test_untrusted_tool_result_marks_the_turn() -> None:
    assert await wished(Trust.OWNER, "look", "act", "web", "act", "look", "act") == [
        False, True, True,
    ]  # fmt: skip


def test_resumed_turn_remembers_untrusted_content() -> None:
    tools = {"web": web(), "look": FakeTool("look")}
    one = tool_call("web", id="c1")
    past = [user_message("before"), assistant_message(one), tool_result("c1")]
    note = structs.replace(user_message("go on"), trust=Trust.PROGRAM)
    for history, is_foreign in (
        ([*past, note], True),
        ([*past, user_message("something else"), note], False),
        ([structs.replace(user_message("hi"), trust=Trust.GUEST), note], True),
        ([], False),
    ):
        strangers = UntrustedContent(tools)
        strangers.resume(history)
        assert strangers.present is is_foreign
