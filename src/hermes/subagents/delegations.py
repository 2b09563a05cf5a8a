"""Hands out work, waits for it or lets it go on in the background, and brings it home once."""

import itertools
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import TaskGroup
from msgspec import Raw, Struct, structs

from hermes.kit.clock import Clock
from hermes.kit.failpoints import failpoint
from hermes.kit.ids import new_id
from hermes.kit.process_identity import process_id
from hermes.kit.retry import Backoff
from hermes.kit.tasks import background_tasks
from hermes.ports.delegation import ReportProgress, Task, TaskReport, TaskStatus
from hermes.ports.followups import Followups
from hermes.ports.records import PutRecord, StateRecord
from hermes.ports.store import Store
from hermes.schema.errors import NotFound, StateConflict, StoreError, UsageError
from hermes.schema.messages import Trust, User
from hermes.schema.scope import OWNER, Scope
from hermes.session.runner import Runner
from hermes.subagents.child import SOURCE, Subagent, SubagentBudget, SubagentModel
from hermes.subagents.messages import MAX_SUMMARY, reports_text

log = logging.getLogger(__name__)

KIND = "delegation"
RETRY = Backoff(base=0.5, cap=30.0)
RUNNING, REPORTED = "running", "brought"
_MAX_DEPTH = 20
_PERSON_TRUST = frozenset({Trust.OWNER, Trust.GUEST})


class DelegationRules(Struct, frozen=True, kw_only=True):
    """`at_once` subagents for one person; `depth` levels below the one who talks with them.

    `waiting` is how much work in the background one person may have under way, `rounds` how
    often a report may lead to more work before a person has said something.
    """

    at_once: int = 3
    waiting: int = 10
    rounds: int = 5
    depth: int = 1
    orchestrators: bool = True
    summary: int = MAX_SUMMARY
    budget: SubagentBudget = SubagentBudget()


class Delegation(Struct, frozen=True, kw_only=True):
    """What is on disk of work in the background; reports are added as they come in."""

    id: str
    scope: Scope
    tasks: tuple[Task, ...]
    reports: tuple[TaskReport | None, ...]


async def unchanged_scope(scope: Scope) -> Scope:
    return scope


class DelegationDeps(Struct, frozen=True, kw_only=True):
    """`present` says where the conversation of a scope goes on by now."""

    store: Store
    runner: Runner
    clock: Clock
    later: Followups
    present: Callable[[Scope], Awaitable[Scope]] = unchanged_scope
    rules: DelegationRules = DelegationRules()


class RunningDelegation:
    """Work that goes on in the background, with the last thing that each task was seen to do."""

    def __init__(self, work: Delegation, began: datetime) -> None:
        self.work = work
        self.began = began
        self.doing = ["waits for its turn"] * len(work.tasks)
        self.stop = anyio.CancelScope()

    def belongs_to(self, session: str, key: str) -> bool:
        """To its session, and after a reset to the one that took its place."""
        scope = self.work.scope
        return scope.session == session or (bool(key) and scope.key == key)


class Delegations:
    """Implements `hermes.ports.delegation.Delegates` for one profile."""

    def __init__(self, parts: DelegationDeps, group: TaskGroup) -> None:
        self._parts = parts
        self._group = group
        self._going: dict[str, RunningDelegation] = {}
        self._limits: dict[tuple[str, int], anyio.CapacityLimiter] = {}

    async def allowed(self, scope: Scope) -> bool:
        return await self._depth(scope) < self._parts.rules.depth

    async def run(
        self, scope: Scope, tasks: Sequence[Task], progress: ReportProgress
    ) -> Sequence[TaskReport]:
        reports: list[TaskReport | None] = [None] * len(tasks)

        async def one(number: int) -> None:
            async def told(text: str) -> None:
                await progress(f"[{number + 1}] {text}")

            reports[number] = await self._child(scope, tasks[number], told)

        await self._all(scope, len(tasks), one)
        return [report for report in reports if report is not None]

    async def dispatch(self, scope: Scope, tasks: Sequence[Task], *, asked: bool = False) -> str:
        """`asked`: a person did so themselves, and not an agent that was at work for them."""
        await self._refuse_too_much(scope)
        if not asked:
            await self._refuse_without_a_person(scope)
        empty = (None,) * len(tasks)
        work = Delegation(id=new_id("dlg"), scope=scope, tasks=tuple(tasks), reports=empty)
        # Whoever waits may give up; a row that is on its way to the disk must find its end.
        with anyio.CancelScope(shield=True):
            await self._parts.store.commit(PutRecord(self._matter(work, RUNNING), was=""))
        failpoint("delegation.begun")
        await self._unless_interrupted(work)
        # From now on it can be stopped, also before it has made its first step.
        going = self._going[work.id] = RunningDelegation(work, self._parts.clock.now())
        self._group.start_soon(self._in_background, going)
        return work.id

    async def _unless_interrupted(self, work: Delegation) -> None:
        """Nobody heard of work whose start was interrupted, so nobody is to hear of its end."""
        try:
            await anyio.lowlevel.checkpoint_if_cancelled()
        except anyio.get_cancelled_exc_class():
            record = structs.replace(self._matter(work, REPORTED), open=False, holder="")
            with anyio.CancelScope(shield=True):
                await self._parts.store.commit(PutRecord(record, was=RUNNING))
            raise

    async def _refuse_too_much(self, scope: Scope) -> None:
        found = await self._parts.store.records.find(KIND, only_open=True)
        works = [work for one in found if (work := read_delegation(one)) is not None]
        mine = sum(work.scope.principal == scope.principal for work in works)
        if mine >= self._parts.rules.waiting:
            raise UsageError(
                f"{mine} pieces of delegated work are under way already.",
                hint="Wait for their reports, or do it directly.",
            )

    async def _refuse_without_a_person(self, scope: Scope) -> None:
        """Reports begin turns by themselves, and those must not begin work without end."""
        try:
            rows = await self._parts.store.archive_for(OWNER).messages(scope.session)
        except NotFound:
            return
        asked = [row.message for row in rows if isinstance(row.message, User)]
        since = itertools.takewhile(lambda user: user.trust not in _PERSON_TRUST, reversed(asked))
        if sum(user.trust is Trust.DATA for user in since) >= self._parts.rules.rounds:
            raise UsageError(
                "Several rounds of delegated work went by without a word from a person.",
                hint="Tell them what came of it and wait for their answer.",
            )

    def of(self, session: str, key: str) -> Sequence[RunningDelegation]:
        """What a session has in the background."""
        return [going for going in self._going.values() if going.belongs_to(session, key)]

    def end_all(self, session: str, key: str) -> int:
        """End it; how many there were."""
        found = self.of(session, key)
        for going in found:
            going.stop.cancel()
        return len(found)

    async def recover(self) -> None:
        """Bring home what a killed process left: finished reports as they are, the rest as lost."""
        for record in await self._parts.store.records.abandoned(KIND):
            if (work := read_delegation(record)) is not None:
                await self._bring(work)

    async def _in_background(self, going: RunningDelegation) -> None:
        with going.stop:
            try:
                await self._work(going)
            except Exception:
                # One person's work is not the profile's end; what came of it is still told.
                log.exception("the delegated work %s broke", going.work.id)
        fate = TaskStatus.INTERRUPTED if going.stop.cancelled_caught else TaskStatus.LOST
        await self._retry_until_stored(going.work, fate)
        self._going.pop(going.work.id, None)

    async def _retry_until_stored(self, work: Delegation, fate: TaskStatus) -> None:
        """A disk that is full or locked for a while must not cost a report."""
        failures = 0
        while True:
            try:
                with anyio.CancelScope(shield=True):
                    return await self._bring(work, fate)
            except StoreError as error:
                failures += 1
                log.warning("the delegated work %s cannot be reported yet: %s", work.id, error)
            await self._parts.clock.sleep(RETRY.delay(failures))

    async def _work(self, going: RunningDelegation) -> None:
        async def one(number: int) -> None:
            async def told(text: str) -> None:
                going.doing[number] = text

            going.doing[number] = "thinks"
            report = await self._child(going.work.scope, going.work.tasks[number], told)
            going.doing[number] = report.fate.value
            reports = (*going.work.reports[:number], report, *going.work.reports[number + 1 :])
            going.work = structs.replace(going.work, reports=reports)
            await self._keep(going.work)
            failpoint("delegation.one_reported")

        await self._all(going.work.scope, len(going.work.tasks), one)

    async def _keep(self, work: Delegation) -> None:
        """Each report as it comes in: a crash loses no more than what was not finished."""
        try:
            with anyio.CancelScope(shield=True):
                record = self._matter(work, RUNNING)
                await self._parts.store.commit(PutRecord(record, was=RUNNING))
        except StoreError as error:
            log.warning("a report of %s is kept in memory alone: %s", work.id, error)

    async def _bring(self, work: Delegation, otherwise: TaskStatus = TaskStatus.LOST) -> None:
        reports = [
            report or TaskReport(goal=task.goal, fate=otherwise)
            for task, report in zip(work.tasks, work.reports, strict=True)
        ]
        text = reports_text(work.id, reports, self._parts.rules.summary)
        done = structs.replace(work, reports=tuple(reports))
        record = structs.replace(self._matter(done, REPORTED), open=False, holder="")
        scope = await self._parts.present(work.scope)
        # Whoever stopped it before anything came of it has heard all that there is to tell.
        quiet = otherwise is TaskStatus.INTERRUPTED and not any(work.reports)
        message = () if quiet else self._parts.later.brought(scope, work.id, text)
        try:
            await self._parts.store.commit(PutRecord(record, was=RUNNING), *message)
        except StateConflict:
            return  # somebody else brought it
        failpoint("delegation.brought")
        if message:
            self._parts.later.ring(scope)

    async def _child(self, scope: Scope, task: Task, progress: ReportProgress) -> TaskReport:
        rules = self._parts.rules
        deeper = await self._depth(scope) + 1
        hands_on = task.role == "orchestrator" and rules.orchestrators and deeper < rules.depth
        child = Subagent(self._parts.runner, self._parts.clock, rules.budget)
        try:
            mind = await self._mind(scope)
            return await child.run(scope, task, progress, mind, hands_on=hands_on)
        except Exception:
            log.exception("a subagent broke")
            return TaskReport(
                goal=task.goal, fate=TaskStatus.FAILED, error="It broke; the log has it."
            )

    async def _mind(self, scope: Scope) -> SubagentModel:
        given = self._parts.rules.budget.mind
        try:
            above = await self._parts.store.archive_for(OWNER).get(scope.session)
        except NotFound:
            return given
        if not given.model:
            given = structs.replace(given, model=above.model, provider=above.provider)
        return given if given.effort else structs.replace(given, effort=above.effort)

    async def _all(self, scope: Scope, count: int, one: Callable[[int], Awaitable[None]]) -> None:
        # Each level has a limit of its own: who waits for those below holds a place above.
        place = (scope.principal, await self._depth(scope))
        limit = self._limits.setdefault(place, anyio.CapacityLimiter(self._parts.rules.at_once))

        async def in_turn(number: int) -> None:
            async with limit:
                await one(number)

        try:
            async with anyio.create_task_group() as group:
                for number in range(count):
                    group.start_soon(in_turn, number)
        finally:
            if not limit.borrowed_tokens and not limit.statistics().tasks_waiting:
                self._limits.pop(place, None)

    async def _depth(self, scope: Scope) -> int:
        """How many subagents stand between this one and a person."""
        archive, depth, session = self._parts.store.archive_for(OWNER), 0, scope.session
        if scope.source != SOURCE:
            return 0
        while depth < _MAX_DEPTH:
            try:
                found = await archive.get(session)
            except NotFound:
                break
            if found.source != SOURCE:
                break
            depth += 1
            if found.parent is None:
                break
            session = found.parent
        return depth

    def _matter(self, work: Delegation, state: str) -> StateRecord:
        return StateRecord(
            kind=KIND,
            id=work.id,
            session=work.scope.session,
            state=state,
            at=self._parts.clock.now(),
            body=Raw(msgspec.json.encode(work)),
            holder=process_id(),
        )


@asynccontextmanager
async def open_delegations(parts: DelegationDeps) -> AsyncGenerator[Delegations]:
    """For as long as the profile is open; leaving it ends what still works."""
    async with background_tasks() as group:
        delegations = Delegations(parts, group)
        group.start_soon(_recover, delegations)
        yield delegations


async def _recover(delegations: Delegations) -> None:
    try:
        await delegations.recover()
    except StoreError as error:
        log.warning("delegated work of an earlier process waits for the next start: %s", error)


def read_delegation(record: StateRecord) -> Delegation | None:
    try:
        return msgspec.json.decode(record.body, type=Delegation)
    except msgspec.DecodeError as error:
        log.warning("the delegated work %s cannot be read: %s", record.id, error)
        return None
