"""Work that is handed on: done, reported once, and never lost."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from msgspec import Raw, structs

from hermes.app.later import Homecoming
from hermes.app.subagents import delegation_parts
from hermes.config.schema import Config
from hermes.config.sections.models import Delegation
from hermes.kit.failpoints import watching
from hermes.kit.ids import new_id
from hermes.kit.plain import headline
from hermes.ports.delegation import Fate, Task
from hermes.ports.matters import Matter, PutMatter
from hermes.ports.model import Request
from hermes.ports.store import Append, ChangeSession, Fence, OpenSession, Parcel, Post, Write
from hermes.ports.tool import ToolContext
from hermes.schema.errors import ModelError, StoreError, UsageError
from hermes.schema.messages import Text, Trust, User, text_of
from hermes.schema.scope import OWNER, Scope
from hermes.schema.sessions import Session, SessionChange, SessionFilter
from hermes.store.sqlite import SqliteStore
from hermes.subagents.child import Budget, Mind, Patience
from hermes.subagents.desk import KIND, RUNNING, Delegations, Parts, Rules, open_delegations
from hermes.testing.clock import FakeClock
from hermes.testing.scripted import Script, Step, says
from talks import HANGS, Talk, talk
from workbench import FakeTool, answer, call

pytestmark = pytest.mark.anyio
SCOPE = Scope("default", "parent", "run_1", "/work", source="cli")


class Mailbox:
    """A `Later` that puts rows into the inbox and remembers whom it rang for."""

    def __init__(self) -> None:
        self.rung: list[str] = []

    def brought(self, scope: Scope, key: str, text: str) -> Sequence[Write]:
        body = Raw(msgspec.json.encode(text))
        return [Post(Parcel(key=key, lane="inbox", topic=scope.session, body=body))]

    def ring(self, scope: Scope) -> None:
        self.rung.append(scope.session)


class House:
    def __init__(self, talking: Talk, clock: FakeClock, rules: Rules) -> None:
        self.store: SqliteStore = talking.store
        self.model = talking.model
        self.planner = talking.planner
        self.clock = clock
        self.mail = Mailbox()
        self.parts = Parts(
            store=self.store, runner=talking.runner, clock=clock, later=self.mail, rules=rules
        )

    async def letters(self) -> list[str]:
        found = await self.store.lanes.claim("inbox", "parent", "me", timedelta(0), 100)
        return [msgspec.json.decode(one.body) for one in found]

    async def brought(self) -> str:
        with anyio.fail_after(60):
            while not self.mail.rung:
                await anyio.wait_all_tasks_blocked()
        (letter,) = await self.letters()
        return letter


@asynccontextmanager
async def house(
    path: Path, *scripts: Script, tools: Sequence[FakeTool] = (), rules: Rules | None = None
) -> AsyncGenerator[tuple[House, Delegations]]:
    clock = FakeClock()
    async with talk(path, *scripts, tools=tools, clock=clock) as talking:
        built = House(talking, clock, rules or Rules())
        with suppress(StoreError):  # it is there when a house is opened again
            await built.store.commit(OpenSession(Session(id="parent", started_at=clock.now())))
        async with open_delegations(built.parts) as delegations:
            yield built, delegations


async def below(built: House) -> list[Session]:
    """The sessions of subagents."""
    found = await built.store.seen_by(OWNER).list(SessionFilter(reviews=True))
    return [digest.session for digest in found if digest.session.parent == "parent"]


async def silent(text: str) -> None:
    """Nobody looks."""


def echo(request: Request) -> Sequence[Step]:
    """Answer with the last line of the task."""
    asked = text_of(request.messages[-1])
    return says(f"did {asked.splitlines()[-1]}")


async def test_each_task_gets_a_session_below_the_one_that_asked(tmp_path: Path) -> None:
    async with house(tmp_path, echo, echo) as (built, delegations):
        tasks = [Task(goal="count", context="in a"), Task(goal="weigh")]
        reports = await delegations.run(SCOPE, tasks, silent)
        assert [(r.fate, r.summary) for r in reports] == [
            (Fate.COMPLETED, "did in a"),
            (Fate.COMPLETED, "did weigh"),
        ]
        found = await below(built)
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
async def test_what_needs_leave_is_done_only_where_the_settings_say_so(
    tmp_path: Path, *, leave: bool, yolo: bool, foreign: bool, free: bool
) -> None:
    heard: list[Scope] = []

    async def act(args: dict[str, object], context: ToolContext) -> str:
        heard.append(context.scope)
        return "ok"

    async with house(
        tmp_path,
        [answer(call("act"))],
        says("done"),
        tools=[FakeTool("act", act)],
        rules=Rules(budget=Budget(leave=leave)),
    ) as (_, delegations):
        scope = structs.replace(SCOPE, yolo=yolo)
        await delegations.run(scope, [Task(goal="act", foreign=foreign)], silent)
    assert [(one.yolo, one.attended) for one in heard] == [(free, False)]


def test_the_setting_reaches_them() -> None:
    config = Config(delegation=Delegation(subagent_auto_approve=True))
    nothing: Any = None
    home = Homecoming(nothing)
    parts = delegation_parts(config, nothing, nothing, FakeClock(), home)
    assert parts.rules.budget.leave
    assert not delegation_parts(Config(), nothing, nothing, FakeClock(), home).rules.budget.leave


def test_the_settings_name_the_toolsets_of_subagents() -> None:
    nothing: Any = None
    home = Homecoming(nothing)
    some = Config(delegation=Delegation(default_toolsets=("file", "of-another-version")))
    left_out = delegation_parts(some, nothing, nothing, FakeClock(), home).rules.budget.without
    assert {"terminal", "process", "todo"} <= left_out
    assert not {"read_file", "patch"} & left_out
    assert not delegation_parts(Config(), nothing, nothing, FakeClock(), home).rules.budget.without


async def test_a_subagent_has_no_tools_that_the_settings_do_not_name(tmp_path: Path) -> None:
    tools = [FakeTool("terminal"), FakeTool("read_file")]
    rules = Rules(budget=Budget(without=frozenset({"terminal", "delegate_task"})))
    async with house(tmp_path, says("Done."), tools=tools, rules=rules) as (built, delegations):
        await delegations.run(SCOPE, [Task(goal="a")], silent)
        (request,) = built.model.requests
        assert [spec.name for spec in request.tools] == ["read_file"]


@pytest.mark.parametrize(
    ("mind", "told"),
    [
        (Mind(), ("large", "den", "high")),
        (Mind(model="small", provider="shed"), ("small", "shed", "high")),
        (Mind(effort="low"), ("large", "den", "low")),
    ],
    ids=["as above", "its own", "its own effort"],
)
async def test_the_model_of_the_session_above_unless_the_settings_say_otherwise(
    tmp_path: Path, mind: Mind, told: tuple[str, str, str]
) -> None:
    rules = Rules(budget=Budget(mind=mind))
    async with house(tmp_path, echo, rules=rules) as (built, delegations):
        chosen = SessionChange(model="large", provider="den", effort="high")
        await built.store.commit(ChangeSession("parent", chosen))
        await delegations.run(SCOPE, [Task(goal="a")], silent)
        (child,) = built.planner.sessions
        assert (child.model, child.provider, child.effort) == told


async def test_no_more_at_once_than_the_rules_say(tmp_path: Path) -> None:
    gate = anyio.Event()

    async def wait(args: dict, context: object) -> str:
        await gate.wait()
        return "ok"

    tool = FakeTool("look", wait)
    scripts: list[Script] = [[answer(call("look"))] for _ in range(5)]

    async with (
        house(
            tmp_path,
            *scripts,
            *(says("done") for _ in range(5)),
            tools=[tool],
            rules=Rules(at_once=2),
        ) as (_, delegations),
        anyio.create_task_group() as group,
    ):
        group.start_soon(delegations.run, SCOPE, [Task(goal=f"{n}") for n in range(5)], silent)
        await anyio.wait_all_tasks_blocked()
        with anyio.fail_after(60):
            while tool.now < 2:
                await anyio.wait_all_tasks_blocked()
        gate.set()
    assert tool.most == 2


async def test_tools_of_the_talking_agent_are_not_a_subagents(tmp_path: Path) -> None:
    names = ["look", "delegate_task", "memory", "send_message", "clarify"]
    async with house(tmp_path, echo, tools=[FakeTool(name) for name in names]) as (built, them):
        await them.run(SCOPE, [Task(goal="x", role="orchestrator")], silent)
        assert [spec.name for spec in built.model.requests[0].tools] == ["look"]


async def test_an_orchestrator_may_hand_on_where_the_rules_let_it(tmp_path: Path) -> None:
    tools = [FakeTool("look"), FakeTool("delegate_task")]
    async with house(tmp_path, echo, tools=tools, rules=Rules(depth=2)) as (built, them):
        (report,) = await them.run(SCOPE, [Task(goal="x", role="orchestrator")], silent)
        assert [spec.name for spec in built.model.requests[0].tools] == ["delegate_task", "look"]
        below = structs.replace(SCOPE, session=report.session, source="subagent")
        assert await them.allowed(SCOPE)
        assert await them.allowed(below)
        built.model.scripts.append(echo)
        (deeper,) = await them.run(below, [Task(goal="y", role="orchestrator")], silent)
        assert [spec.name for spec in built.model.requests[1].tools] == ["look"]
        assert not await them.allowed(structs.replace(below, session=deeper.session))


async def test_trouble_is_reported_with_what_was_said(tmp_path: Path) -> None:
    async with house(tmp_path, [ModelError("no credit left")]) as (_, delegations):
        (report,) = await delegations.run(SCOPE, [Task(goal="x")], silent)
    assert (report.fate, report.summary) == (Fate.FAILED, "")
    assert "no credit left" in report.error


async def test_one_that_does_not_move_is_ended(tmp_path: Path) -> None:
    rules = Rules(budget=Budget(patience=Patience(idle=100)))
    async with house(tmp_path, HANGS, rules=rules) as (built, delegations):
        reports = []

        async def run() -> None:
            reports.extend(await delegations.run(SCOPE, [Task(goal="x")], silent))

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            with anyio.fail_after(60):
                while not built.model.requests:
                    await anyio.wait_all_tasks_blocked()
            await built.clock.advance(201)
        assert [report.fate for report in reports] == [Fate.TIMEOUT]


async def test_work_in_the_background_comes_home_once(tmp_path: Path) -> None:
    async with house(tmp_path, echo, echo) as (built, delegations):
        name = await delegations.dispatch(SCOPE, [Task(goal="a"), Task(goal="b")])
        letter = await built.brought()
        assert name in letter
        assert "2 of 2 completed: “" in letter
        assert "dlg_" not in headline(letter, 200)
        assert letter.index("did a") < letter.index("did b")
        await delegations.recover()
        assert len(await built.letters()) == 1


async def under_way(built: House, count: int = 1) -> None:
    with anyio.fail_after(60):
        while len(built.model.requests) < count:
            await anyio.wait_all_tasks_blocked()


async def at_rest(built: House, delegations: Delegations) -> None:
    with anyio.fail_after(60):
        while delegations.of("parent", ""):
            await anyio.wait_all_tasks_blocked()
    assert not await built.store.matters.find(KIND, only_open=True)


async def test_what_is_stopped_brings_what_was_done_until_then(tmp_path: Path) -> None:
    rules = Rules(at_once=1)
    async with house(tmp_path, echo, HANGS, rules=rules) as (built, delegations):
        await delegations.dispatch(SCOPE, [Task(goal="a"), Task(goal="long work")])
        await under_way(built, 2)
        assert delegations.end_all("another session", "") == 0
        assert delegations.end_all("parent", "") == 1
        letter = await built.brought()
        assert "did a" in letter
        assert "interrupted" in letter
        await at_rest(built, delegations)


async def test_whoever_stops_it_before_anything_came_of_it_hears_no_more(tmp_path: Path) -> None:
    async with house(tmp_path, HANGS) as (built, delegations):
        await delegations.dispatch(SCOPE, [Task(goal="long work")])
        await under_way(built)
        assert delegations.end_all("parent", "") == 1
        await at_rest(built, delegations)
        assert await built.letters() == []


async def test_what_is_stopped_before_its_first_step_does_not_begin(tmp_path: Path) -> None:
    async with house(tmp_path, HANGS) as (built, delegations):
        await delegations.dispatch(SCOPE, [Task(goal="long work")])
        assert delegations.end_all("parent", "") == 1
        await at_rest(built, delegations)
        assert built.model.requests == []


async def test_it_can_be_seen_what_each_one_does(tmp_path: Path) -> None:
    scope = structs.replace(SCOPE, key="chat")
    rules = Rules(at_once=1)
    scripts: list[Script] = [[answer(call("look", where="out"))], HANGS]
    tools = [FakeTool("look")]
    async with house(tmp_path, *scripts, tools=tools, rules=rules) as (built, delegations):
        await delegations.dispatch(scope, [Task(goal="a"), Task(goal="b")])
        await under_way(built, 2)
        (going,) = delegations.of("the one after a reset", "chat")
        assert going.doing[0].startswith("look")
        assert going.doing[1] == "waits for its turn"


async def test_reports_follow_a_conversation_that_moved(tmp_path: Path) -> None:
    async def moved(scope: Scope) -> Scope:
        return structs.replace(scope, session="elsewhere")

    async with (
        house(tmp_path, echo) as (built, _),
        open_delegations(structs.replace(built.parts, present=moved)) as delegations,
    ):
        await delegations.dispatch(SCOPE, [Task(goal="a")])
        await at_rest(built, delegations)
        assert built.mail.rung == ["elsewhere"]


async def test_a_row_that_cannot_be_read_is_in_nobodys_way(tmp_path: Path) -> None:
    async with house(tmp_path, echo) as (built, delegations):
        at, body = built.clock.now(), Raw(b'{"id": 7}')
        odd = Matter(kind=KIND, id="odd", session="s", state=RUNNING, at=at, body=body)
        await built.store.commit(PutMatter(odd, was=""))
        await delegations.dispatch(SCOPE, [Task(goal="a")])
        assert "did a" in await built.brought()
        await delegations.recover()


class Full(SqliteStore):
    """Nothing can be written while `full` is set."""

    full = False

    async def commit(self, *writes: Write, fence: Fence | None = None) -> None:
        if self.full and any(isinstance(one, PutMatter) for one in writes):
            raise StoreError("The disk is full.")
        await super().commit(*writes, fence=fence)


async def test_a_full_disk_costs_neither_the_report_nor_the_profile(tmp_path: Path) -> None:
    async with house(tmp_path, echo) as (built, _):
        store = Full(built.store._engine, built.clock)
        async with open_delegations(structs.replace(built.parts, store=store)) as delegations:
            await delegations.dispatch(SCOPE, [Task(goal="a")])
            store.full = True
            await under_way(built)
            await anyio.wait_all_tasks_blocked()
            assert await built.letters() == []
            store.full = False
            with anyio.fail_after(60):
                while not built.mail.rung:
                    await built.clock.advance(1)
            (letter,) = await built.letters()
            assert "did a" in letter
            assert not delegations.of("parent", "")


class Interrupting(SqliteStore):
    """Somebody gives up waiting while a commit is on its way to the disk."""

    scope: anyio.CancelScope

    async def commit(self, *writes: Write, fence: Fence | None = None) -> None:
        self.scope.cancel()
        await super().commit(*writes, fence=fence)


async def test_a_start_that_is_interrupted_leaves_nothing_under_way(tmp_path: Path) -> None:
    async with house(tmp_path, HANGS) as (built, _):
        store = Interrupting(built.store._engine, built.clock)
        async with open_delegations(structs.replace(built.parts, store=store)) as delegations:
            with anyio.CancelScope() as store.scope:
                await delegations.dispatch(SCOPE, [Task(goal="long work")])
            assert store.scope.cancelled_caught
            # What is on its way to the disk has arrived when something else has.
            await store.leases.hold("s-1", "me", timedelta(minutes=1))
            assert list(await store.matters.find(KIND, only_open=True)) == []
        assert await built.letters() == [], "nobody has ever heard of it"


class Killed(BaseException):
    """As if the process ended here."""


async def killed_at(path: Path, step: str) -> tuple[str, int]:
    """What a later process brings home, and how often the work was begun in all."""

    steps = [step]

    def kill(passed: str) -> None:
        if passed in steps:
            steps.remove(passed)
            raise Killed

    with pytest.RaisesGroup(Killed, allow_unwrapped=True, flatten_subgroups=True):
        async with house(path, echo, echo, echo, echo) as (built, delegations):
            with watching(kill):
                await delegations.dispatch(SCOPE, [Task(goal="a"), Task(goal="b")])
                await built.brought()
    async with house(path) as (built, delegations):
        for matter in await built.store.matters.find("delegation", only_open=True):
            dead = structs.replace(matter, holder="")
            await built.store.commit(PutMatter(dead, was=matter.state))
        await delegations.recover()
        await delegations.recover()
        (letter,) = await built.letters()
        found = await below(built)
        return letter, len(found)


async def test_killed_before_it_began(tmp_path: Path) -> None:
    letter, begun = await killed_at(tmp_path, "delegation.begun")
    assert "0 of 2 completed" in letter
    assert letter.count("lost") == 2
    assert begun == 0


async def test_killed_after_one_reported(tmp_path: Path) -> None:
    letter, begun = await killed_at(tmp_path, "delegation.one_reported")
    assert "did " in letter
    assert begun <= 2


async def test_killed_after_it_was_brought(tmp_path: Path) -> None:
    letter, _ = await killed_at(tmp_path, "delegation.brought")
    assert "2 of 2 completed" in letter


async def test_words_of_strangers_go_along(tmp_path: Path) -> None:
    async with house(tmp_path, echo, echo) as (built, delegations):
        for foreign in (True, False):
            (report,) = await delegations.run(SCOPE, [Task(goal="x", foreign=foreign)], silent)
            rows = await built.store.seen_by(OWNER).messages(report.session)
            asked = rows[0].message
            assert isinstance(asked, User)
            assert asked.trust is (Trust.DATA if foreign else Trust.HOUSE)


async def test_nobody_has_too_much_under_way(tmp_path: Path) -> None:
    rules = Rules(waiting=2, at_once=1)
    async with house(tmp_path, *([HANGS] * 4), rules=rules) as (built, delegations):
        for _ in range(2):
            await delegations.dispatch(SCOPE, [Task(goal="x")])
        with pytest.raises(UsageError, match="under way already"):
            await delegations.dispatch(SCOPE, [Task(goal="x")])
        await delegations.dispatch(structs.replace(SCOPE, principal="else"), [Task(goal="x")])
        with anyio.fail_after(60):
            while len(built.model.requests) < 2:
                await anyio.wait_all_tasks_blocked()
        await anyio.wait_all_tasks_blocked()
        assert len(built.model.requests) == 2, "one at once for each person"


async def test_reports_do_not_begin_work_without_end(tmp_path: Path) -> None:
    async with house(tmp_path, *([echo] * 6), rules=Rules(rounds=2)) as (built, delegations):

        async def said(trust: Trust) -> None:
            words = User(new_id("msg"), (Text("x"),), trust)
            await built.store.commit(Append("parent", "run", words, built.clock.now()))

        await said(Trust.OWNER)
        for _ in range(2):
            await delegations.dispatch(SCOPE, [Task(goal="x")])
            await said(Trust.DATA)
        with pytest.raises(UsageError, match="without a word from a person"):
            await delegations.dispatch(SCOPE, [Task(goal="x")])
        await said(Trust.OWNER)
        await delegations.dispatch(SCOPE, [Task(goal="x")])
