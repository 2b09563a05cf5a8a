"""Words of strangers in a turn are known to tools and go along with every wish."""

from typing import Any

import pytest
from msgspec import structs

from hermes.agent.strangers import Strangers
from hermes.agent.turn import run_turn
from hermes.ports.counsel import Reaching, Ruling, Wish
from hermes.ports.sink import Emit
from hermes.ports.tool import ToolContext
from hermes.schema.messages import Trust
from hermes.schema.scope import Scope
from hermes.testing.scripted import ScriptedModel, says
from workbench import Ear, FakeTool, answer, call, plan_for, result, user

pytestmark = pytest.mark.anyio


class Listener:
    """A counsel that allows everything, and remembers what was wished."""

    def __init__(self) -> None:
        self.wishes: list[Wish] = []

    async def rule(self, scope: Scope, wish: Wish, tell: Emit) -> Ruling:
        self.wishes.append(wish)
        return Ruling(allowed=True)

    async def inquire(self, scope: Scope, text: str, choices: object, tell: Emit) -> str | None:
        return None


async def _act(args: dict[str, Any], context: ToolContext) -> str:
    await context.ask(Wish(tool="act", action="x", reaching=Reaching.OPEN))
    return f"foreign: {context.foreign}"


def web() -> FakeTool:
    tool = FakeTool("web")
    tool.spec = structs.replace(tool.spec, foreign=True)
    return tool


async def wished(trust: Trust, *calls: str) -> list[bool]:
    scripts = [[answer(call(name))] for name in calls]
    counsel = Listener()
    model = ScriptedModel(*scripts, says("done"))
    plan = structs.replace(
        plan_for(model, web(), FakeTool("look"), FakeTool("act", _act)), counsel=counsel
    )
    await run_turn(plan, [structs.replace(user(), trust=trust)], Ear())
    return [one.foreign for one in counsel.wishes]


async def test_who_speaks_decides_at_first() -> None:
    assert await wished(Trust.OWNER, "act") == [False]
    assert await wished(Trust.HOUSE, "act") == [False]
    assert await wished(Trust.GUEST, "act") == [True]
    assert await wished(Trust.DATA, "act") == [True]


async def test_then_what_tools_bring() -> None:
    assert await wished(Trust.OWNER, "look", "act", "web", "act", "look", "act") == [
        False, True, True,
    ]  # fmt: skip


def test_a_turn_that_goes_on_remembers() -> None:
    tools = {"web": web(), "look": FakeTool("look")}
    one = call("web", id="c1")
    past = [user("before"), answer(one), result("c1")]
    note = structs.replace(user("go on"), trust=Trust.HOUSE)
    for history, heard in (
        ([*past, note], True),
        ([*past, user("something else"), note], False),
        ([structs.replace(user("hi"), trust=Trust.GUEST), note], True),
        ([], False),
    ):
        strangers = Strangers(tools)
        strangers.recall(history)
        assert strangers.heard is heard
