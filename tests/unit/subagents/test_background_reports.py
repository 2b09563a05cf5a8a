"""Background delegations are reported once, also when stopped, killed or not stored."""

from datetime import timedelta

import anyio
import msgspec
import pytest
from msgspec import structs

from hermes.kit.failpoints import watch_failpoints
from hermes.kit.ids import new_id
from hermes.kit.terminal_text import headline
from hermes.ports.delegation import DelegationWrite, Task, TaskStatus
from hermes.ports.store import AppendMessage, Fence, Write
from hermes.schema.errors import StoreError, UsageError
from hermes.schema.messages import Text, Trust, User
from hermes.schema.scope import Address, InheritedLimits, Role, Scope
from hermes.store.memory import MemoryDatabase
from hermes.store.sqlite import SqliteStore
from hermes.subagents.delegations import (
    DelegationRules,
)
from hermes.testing.scripted_model import Script
from support.conversation import HANGING_SCRIPT
from support.delegations import (
    SCOPE,
    delegation_harness,
    echo_task,
    ignore_progress,
    open_delegations,
    subagent_sessions,
    wait_for_requests,
    wait_until_settled,
)
from support.polling import pause
from support.turns import FakeTool, assistant_message, tool_call


async def test_background_work_is_reported_once() -> None:
    async with delegation_harness(echo_task, echo_task) as (built, delegations):
        name = await delegations.dispatch(SCOPE, [Task(goal="a"), Task(goal="b")])
        message = await built.next_report()
        assert name in message
        assert "2 of 2 completed: “" in message
        assert "dlg_" not in headline(message, 200)
        assert message.index("did a") < message.index("did b")
        await delegations.recover()
        assert len(await built.inbox_texts()) == 1


async def test_work_of_a_session_without_messages_is_done() -> None:
    """The session is stored with its first message."""
    async with delegation_harness(echo_task) as (built, delegations):
        await delegations.dispatch(structs.replace(SCOPE, session="not stored"), [Task(goal="a")])
        with anyio.fail_after(60):
            while not built.followups.woken:
                await pause()
        (item,) = await built.store.queues.waiting("inbox", 10)
        assert "1 of 1 completed" in msgspec.json.decode(item.body)


async def test_stopped_work_reports_partial_results() -> None:
    rules = DelegationRules(concurrent=1)
    async with delegation_harness(echo_task, HANGING_SCRIPT, rules=rules) as (
        built,
        delegations,
    ):
        await delegations.dispatch(SCOPE, [Task(goal="a"), Task(goal="long work")])
        await wait_for_requests(built, 2)
        assert delegations.end_all("another session", "") == 0
        assert delegations.end_all("parent", "") == 1
        message = await built.next_report()
        assert "did a" in message
        assert "interrupted" in message
        await wait_until_settled(built, delegations)


async def test_work_stopped_without_results_is_not_reported() -> None:
    async with delegation_harness(HANGING_SCRIPT) as (built, delegations):
        await delegations.dispatch(SCOPE, [Task(goal="long work")])
        await wait_for_requests(built)
        assert delegations.end_all("parent", "") == 1
        await wait_until_settled(built, delegations)
        assert await built.inbox_texts() == []


async def test_work_stopped_before_its_first_step_does_not_start() -> None:
    async with delegation_harness(HANGING_SCRIPT) as (built, delegations):
        await delegations.dispatch(SCOPE, [Task(goal="long work")])
        assert delegations.end_all("parent", "") == 1
        await wait_until_settled(built, delegations)
        assert built.model.requests == []


async def test_activity_of_each_task_is_visible() -> None:
    scope = structs.replace(SCOPE, key="chat")
    rules = DelegationRules(concurrent=1)
    scripts: list[Script] = [[assistant_message(tool_call("look", where="out"))], HANGING_SCRIPT]
    tools = [FakeTool("look")]
    async with delegation_harness(*scripts, tools=tools, rules=rules) as (
        built,
        delegations,
    ):
        await delegations.dispatch(scope, [Task(goal="a"), Task(goal="b")])
        await wait_for_requests(built, 2)
        (going,) = delegations.running_in("the one after a reset", "chat")
        assert going.activity == ["look out", "waiting"]


async def test_reported_task_does_not_count_as_running() -> None:
    rules = DelegationRules(concurrent=1)
    async with delegation_harness(echo_task, HANGING_SCRIPT, rules=rules) as (built, delegations):
        await delegations.dispatch(SCOPE, [Task(goal="a"), Task(goal="b")])
        await wait_for_requests(built, 2)
        (going,) = delegations.running_in("parent", "")
        assert [going.state_of(0), going.state_of(1)] == [TaskStatus.COMPLETED, None]
        assert not delegations.ended_in("parent", "")
        delegations.end_all("parent", "")
        await wait_until_settled(built, delegations)
        (ended,) = delegations.ended_in("parent", "")
        assert [ended.state_of(0), ended.state_of(1)] == [
            TaskStatus.COMPLETED, TaskStatus.INTERRUPTED,
        ]  # fmt: skip
        assert not delegations.ended_in("another", "")


async def test_report_follows_a_moved_conversation() -> None:
    async def moved(scope: Scope) -> Scope:
        return structs.replace(scope, session="elsewhere")

    async with (
        delegation_harness(echo_task) as (built, _),
        open_delegations(structs.replace(built.deps, current_scope=moved)) as delegations,
    ):
        await delegations.dispatch(SCOPE, [Task(goal="a")])
        await wait_until_settled(built, delegations)
        assert built.followups.woken == ["elsewhere"]


async def test_undecodable_record_is_ignored() -> None:
    async with delegation_harness(echo_task) as (built, delegations):
        await built.store._engine.execute(
            "INSERT INTO delegations (id, session, holder, scope, tasks, reports)"
            " VALUES ('odd', 's', '', x'7b', x'5b5d', x'5b5d')",
            {},
        )
        await delegations.dispatch(SCOPE, [Task(goal="a")])
        assert "did a" in await built.next_report()
        await delegations.recover()


class FullStore(SqliteStore):
    """Fails every write while `full` is set."""

    full = False

    async def commit(self, *writes: Write, fence: Fence | None = None) -> None:
        if self.full and any(isinstance(one, DelegationWrite) for one in writes):
            raise StoreError("The disk is full.")
        await super().commit(*writes, fence=fence)


async def test_full_disk_loses_no_report() -> None:
    async with delegation_harness(echo_task) as (built, _):
        store = FullStore(built.store._engine, built.clock)
        async with open_delegations(structs.replace(built.deps, store=store)) as delegations:
            await delegations.dispatch(SCOPE, [Task(goal="a")])
            store.full = True
            await wait_for_requests(built)
            await anyio.wait_all_tasks_blocked()
            assert await built.inbox_texts() == []
            store.full = False
            with anyio.fail_after(60):
                while not built.followups.woken:
                    await built.clock.advance(1)
            (message,) = await built.inbox_texts()
            assert "did a" in message
            assert not delegations.running_in("parent", "")


class InterruptingStore(SqliteStore):
    """Cancels the caller while a commit is in progress."""

    scope: anyio.CancelScope

    async def commit(self, *writes: Write, fence: Fence | None = None) -> None:
        self.scope.cancel()
        await super().commit(*writes, fence=fence)


async def test_cancelled_start_leaves_no_open_work() -> None:
    async with delegation_harness(HANGING_SCRIPT) as (built, _):
        store = InterruptingStore(built.store._engine, built.clock)
        async with open_delegations(structs.replace(built.deps, store=store)) as delegations:
            with anyio.CancelScope() as store.scope:
                await delegations.dispatch(SCOPE, [Task(goal="long work")])
            assert store.scope.cancelled_caught
            # A pending write has been stored once a later one has.
            await store.leases.hold("s-1", "me", timedelta(minutes=1))
            assert list(await store.delegations.running()) == []
        assert await built.inbox_texts() == [], "nobody has ever heard of it"


class Killed(BaseException):
    """Simulates the end of the process."""


async def kill_at(database: MemoryDatabase, step: str) -> tuple[str, int]:
    """Return what a later process reports, and how often the work was started."""

    steps = [step]

    def kill(passed: str) -> None:
        if passed in steps:
            steps.remove(passed)
            raise Killed

    with pytest.RaisesGroup(Killed, allow_unwrapped=True, flatten_subgroups=True):
        async with delegation_harness(
            echo_task, echo_task, echo_task, echo_task, database=database
        ) as (built, delegations):
            with watch_failpoints(kill):
                await delegations.dispatch(SCOPE, [Task(goal="a"), Task(goal="b")])
                await built.next_report()
    async with delegation_harness(database=database) as (built, delegations):
        # Its worker ended with its store.
        await delegations.recover()
        await delegations.recover()
        (message,) = await built.inbox_texts()
        found = await subagent_sessions(built)
        return message, len(found)


async def test_killed_before_start(database: MemoryDatabase) -> None:
    message, started = await kill_at(database, "delegation.begun")
    assert "0 of 2 completed, 2 lost: “" in message
    assert message.count("lost") == 3
    assert started == 0


async def test_inherited_limits_survive_a_restart(database: MemoryDatabase) -> None:
    place, queued = (
        Address("test", "1"),
        InheritedLimits(platform="test", tools=("delegate_task", "todo")),
    )
    started = structs.replace(
        SCOPE, address=place, role=Role.MEMBER, principal="test:member", bounds=queued
    )
    async with delegation_harness(HANGING_SCRIPT, database=database) as (built, delegations):
        await delegations.dispatch(started, [Task(goal="long work")])
        await wait_for_requests(built)
        assert built.planner.scopes[0].bounds == queued
    async with delegation_harness(echo_task, database=database) as (built, delegations):
        (work,) = await built.store.delegations.running()
        assert work.scope == started
        await delegations.run(work.scope, work.tasks, ignore_progress)
        (again,) = built.planner.scopes
        assert (again.bounds, again.role, again.address) == (queued, Role.MEMBER, None)
        await built.clock.advance(0)
        (message,) = await built.inbox_texts()
        assert "lost" in message
        assert len(built.planner.scopes) == 1, "nothing of it is begun by itself"


async def test_killed_after_one_reported(database: MemoryDatabase) -> None:
    message, started = await kill_at(database, "delegation.one_reported")
    assert "did " in message
    assert started <= 2


async def test_killed_after_reporting(database: MemoryDatabase) -> None:
    message, _ = await kill_at(database, "delegation.result_stored")
    assert "2 of 2 completed" in message


async def test_reports_do_not_delegate_endlessly() -> None:
    async with delegation_harness(*([echo_task] * 6), rules=DelegationRules(max_rounds=2)) as (
        built,
        delegations,
    ):

        async def said(trust: Trust) -> None:
            words = User(new_id("msg"), (Text("x"),), trust)
            await built.store.commit(AppendMessage("parent", "run", words, built.clock.now()))

        await said(Trust.OWNER)
        for _ in range(2):
            await delegations.dispatch(SCOPE, [Task(goal="x")])
            await said(Trust.DATA)
        with pytest.raises(UsageError, match="without a message from a person"):
            await delegations.dispatch(SCOPE, [Task(goal="x")])
        await said(Trust.OWNER)
        await delegations.dispatch(SCOPE, [Task(goal="x")])
