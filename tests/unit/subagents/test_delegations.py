"""Delegation: sessions, tools, models and limits of subagents."""

from typing import Any

import anyio
import pytest
from msgspec import structs

from hermes.app.followup_router import FollowupRouter
from hermes.app.subagents import delegation_deps
from hermes.bus.memory import MemoryBus
from hermes.config.schema import Config
from hermes.config.sections.models import Delegation
from hermes.ports.delegation import Task, TaskStatus
from hermes.ports.store import ChangeSession
from hermes.ports.tool import ToolContext
from hermes.schema.errors import ModelError, UsageError
from hermes.schema.messages import Trust, User
from hermes.schema.scope import OWNER, Scope
from hermes.schema.sessions import SessionChange
from hermes.subagents.child import SubagentBudget, SubagentModel, SubagentTimeouts
from hermes.subagents.delegations import DelegationRules
from hermes.testing.clock import FakeClock
from hermes.testing.scripted_model import Script, answer_script
from support.conversation import HANGING_SCRIPT
from support.delegations import (
    SCOPE,
    delegation_harness,
    echo_task,
    ignore_progress,
    subagent_sessions,
)
from support.polling import pause
from support.turns import FakeTool, assistant_message, tool_call


async def test_each_task_gets_a_child_session() -> None:
    async with delegation_harness(echo_task, echo_task) as (built, delegations):
        tasks = [Task(goal="count", context="in a"), Task(goal="weigh")]
        reports = await delegations.run(SCOPE, tasks, ignore_progress)
        assert [(r.fate, r.summary) for r in reports] == [
            (TaskStatus.COMPLETED, "did in a"),
            (TaskStatus.COMPLETED, "did weigh"),
        ]
        found = await subagent_sessions(built)
        assert {session.source for session in found} == {"subagent"}
        assert {session.id for session in found} == {report.session for report in reports}


@pytest.mark.parametrize(
    ("leave", "yolo", "foreign", "free"),
    [
        (False, False, False, False),
        (True, False, False, True),
        (True, False, True, False),
        (False, True, False, True),
    ],
)
async def test_auto_approval_follows_the_settings(
    *, leave: bool, yolo: bool, foreign: bool, free: bool
) -> None:
    received: list[Scope] = []

    async def act(args: dict[str, object], context: ToolContext) -> str:
        received.append(context.scope)
        return "ok"

    async with delegation_harness(
        [assistant_message(tool_call("act"))],
        answer_script("done"),
        tools=[FakeTool("act", act)],
        rules=DelegationRules(budget=SubagentBudget(auto_approve=leave)),
    ) as (_, delegations):
        scope = structs.replace(SCOPE, yolo=yolo)
        await delegations.run(scope, [Task(goal="act", foreign=foreign)], ignore_progress)
    assert [(one.yolo, one.attended) for one in received] == [(free, False)]


def test_auto_approve_setting_is_used() -> None:
    config = Config(delegation=Delegation(subagent_auto_approve=True))
    nothing: Any = None
    home = FollowupRouter(nothing, MemoryBus())
    parts = delegation_deps(config, nothing, nothing, FakeClock(), home)
    assert parts.rules.budget.auto_approve
    assert not delegation_deps(
        Config(), nothing, nothing, FakeClock(), home
    ).rules.budget.auto_approve


def test_toolsets_of_subagents_are_configurable() -> None:
    nothing: Any = None
    home = FollowupRouter(nothing, MemoryBus())
    some = Config(delegation=Delegation(default_toolsets=("file", "of-another-version")))
    left_out = delegation_deps(
        some, nothing, nothing, FakeClock(), home
    ).rules.budget.excluded_tools
    assert {"terminal", "process", "todo"} <= left_out
    assert not {"read_file", "patch"} & left_out
    assert not delegation_deps(
        Config(), nothing, nothing, FakeClock(), home
    ).rules.budget.excluded_tools


async def test_subagent_only_has_configured_tools() -> None:
    tools = [FakeTool("terminal"), FakeTool("read_file")]
    rules = DelegationRules(
        budget=SubagentBudget(excluded_tools=frozenset({"terminal", "delegate_task"}))
    )
    async with delegation_harness(answer_script("Done."), tools=tools, rules=rules) as (
        built,
        delegations,
    ):
        await delegations.run(SCOPE, [Task(goal="a")], ignore_progress)
        (request,) = built.model.requests
        assert [spec.name for spec in request.tools] == ["read_file"]


@pytest.mark.parametrize(
    ("mind", "expected"),
    [
        (SubagentModel(), ("large", "den", "high")),
        (SubagentModel(model="small", provider="shed"), ("small", "shed", "high")),
        (SubagentModel(effort="low"), ("large", "den", "low")),
    ],
    ids=["as above", "its own", "its own effort"],
)
async def test_parent_model_is_used_unless_configured(
    mind: SubagentModel, expected: tuple[str, str, str]
) -> None:
    rules = DelegationRules(budget=SubagentBudget(model=mind))
    async with delegation_harness(echo_task, rules=rules) as (built, delegations):
        chosen = SessionChange(model="large", provider="den", effort="high")
        await built.store.commit(ChangeSession("parent", chosen))
        await delegations.run(SCOPE, [Task(goal="a")], ignore_progress)
        (child,) = built.planner.sessions
        assert (child.model, child.provider, child.effort) == expected


async def test_concurrent_subagents_are_limited() -> None:
    gate = anyio.Event()

    async def wait(args: dict, context: object) -> str:
        await gate.wait()
        return "ok"

    tool = FakeTool("look", wait)
    scripts: list[Script] = [[assistant_message(tool_call("look"))] for _ in range(5)]

    async with (
        delegation_harness(
            *scripts,
            *(answer_script("done") for _ in range(5)),
            tools=[tool],
            rules=DelegationRules(concurrent=2),
        ) as (_, delegations),
        anyio.create_task_group() as group,
    ):
        group.start_soon(
            delegations.run, SCOPE, [Task(goal=f"{n}") for n in range(5)], ignore_progress
        )
        await anyio.wait_all_tasks_blocked()
        with anyio.fail_after(60):
            while tool.now < 2:
                await pause()
        gate.set()
    assert tool.most == 2


async def test_blocked_tools_are_not_offered() -> None:
    names = ["look", "delegate_task", "memory", "send_message", "clarify"]
    async with delegation_harness(echo_task, tools=[FakeTool(name) for name in names]) as (
        built,
        them,
    ):
        await them.run(SCOPE, [Task(goal="x", role="orchestrator")], ignore_progress)
        assert [spec.name for spec in built.model.requests[0].tools] == ["look"]


async def test_orchestrator_may_delegate_when_allowed() -> None:
    tools = [FakeTool("look"), FakeTool("delegate_task")]
    async with delegation_harness(echo_task, tools=tools, rules=DelegationRules(depth=2)) as (
        built,
        them,
    ):
        (report,) = await them.run(SCOPE, [Task(goal="x", role="orchestrator")], ignore_progress)
        assert [spec.name for spec in built.model.requests[0].tools] == ["delegate_task", "look"]
        below = structs.replace(SCOPE, session=report.session, source="subagent")
        assert await them.may_delegate(SCOPE)
        assert await them.may_delegate(below)
        built.model.scripts.append(echo_task)
        (deeper,) = await them.run(below, [Task(goal="y", role="orchestrator")], ignore_progress)
        assert [spec.name for spec in built.model.requests[1].tools] == ["look"]
        assert not await them.may_delegate(structs.replace(below, session=deeper.session))


async def test_failure_is_reported_with_the_last_text() -> None:
    async with delegation_harness([ModelError("no credit left")]) as (_, delegations):
        (report,) = await delegations.run(SCOPE, [Task(goal="x")], ignore_progress)
    assert (report.fate, report.summary) == (TaskStatus.FAILED, "")
    assert "no credit left" in report.error


async def test_stalled_subagent_is_ended() -> None:
    rules = DelegationRules(budget=SubagentBudget(timeouts=SubagentTimeouts(idle=100)))
    async with delegation_harness(HANGING_SCRIPT, rules=rules) as (built, delegations):
        reports = []

        async def run() -> None:
            reports.extend(await delegations.run(SCOPE, [Task(goal="x")], ignore_progress))

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            with anyio.fail_after(60):
                while not built.model.requests:
                    await pause()
            await built.clock.advance(201)
        assert [report.fate for report in reports] == [TaskStatus.TIMEOUT]


async def test_untrusted_task_stays_untrusted() -> None:
    async with delegation_harness(echo_task, echo_task) as (built, delegations):
        for foreign in (True, False):
            (report,) = await delegations.run(
                SCOPE, [Task(goal="x", foreign=foreign)], ignore_progress
            )
            rows = await built.store.archive_for(OWNER).messages(report.session)
            question = rows[0].message
            assert isinstance(question, User)
            assert question.trust is (Trust.DATA if foreign else Trust.PROGRAM)


async def test_background_delegations_are_limited_per_user() -> None:
    rules = DelegationRules(max_background=2, concurrent=1)
    async with delegation_harness(*([HANGING_SCRIPT] * 4), rules=rules) as (
        built,
        delegations,
    ):
        for _ in range(2):
            await delegations.dispatch(SCOPE, [Task(goal="x")])
        with pytest.raises(UsageError, match="delegations are already running"):
            await delegations.dispatch(SCOPE, [Task(goal="x")])
        await delegations.dispatch(structs.replace(SCOPE, principal="else"), [Task(goal="x")])
        with anyio.fail_after(60):
            while len(built.model.requests) < 2:
                await pause()
        await anyio.wait_all_tasks_blocked()
        assert len(built.model.requests) == 2, "one at once for each person"
