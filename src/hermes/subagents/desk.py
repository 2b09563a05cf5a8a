"""Hands out work, waits for it or lets it go on in the background, and brings it home once."""

import itertools
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import TaskGroup
from msgspec import Raw, Struct, structs

from hermes.kit.clock import Clock
from hermes.kit.failpoints import passing
from hermes.kit.holder import this_process
from hermes.kit.ids import new_id
from hermes.kit.tasks import beside
from hermes.ports.delegation import Fate, Progress, Report, Task
from hermes.ports.later import Later
from hermes.ports.matters import Matter, PutMatter
from hermes.ports.store import Store
from hermes.schema.errors import NotFound, Overtaken, StoreError, UsageError
from hermes.schema.messages import Trust, User
from hermes.schema.scope import OWNER, Scope
from hermes.session.runner import Runner
from hermes.subagents.child import SOURCE, Budget, Child
from hermes.subagents.words import SUMMARY, reports_text

log = logging.getLogger(__name__)

KIND = "delegation"
RUNNING, BROUGHT = "running", "brought"
_DEEPEST = 20
_PEOPLE = frozenset({Trust.OWNER, Trust.GUEST})


class Rules(Struct, frozen=True, kw_only=True):
    """`at_once` subagents for one person; `depth` levels below the one who talks with them.

    `waiting` is how much work in the background one person may have under way, `rounds` how
    often a report may lead to more work before a person has said something.
    """

    at_once: int = 3
    waiting: int = 10
    rounds: int = 5
    depth: int = 1
    orchestrators: bool = True
    summary: int = SUMMARY
    budget: Budget = Budget()


class Delegation(Struct, frozen=True, kw_only=True):
    """What is on disk of work in the background; reports are added as they come in."""

    id: str
    scope: Scope
    tasks: tuple[Task, ...]
    reports: tuple[Report | None, ...]


class Parts(Struct, frozen=True, kw_only=True):
    store: Store
    runner: Runner
    clock: Clock
    later: Later
    rules: Rules = Rules()


class Delegations:
    """Implements `hermes.ports.delegation.Delegates` for one profile."""

    def __init__(self, parts: Parts, group: TaskGroup) -> None:
        self._parts = parts
        self._group = group
        self._going: dict[str, tuple[str, anyio.CancelScope]] = {}
        self._limits: dict[tuple[str, int], anyio.CapacityLimiter] = {}

    async def allowed(self, scope: Scope) -> bool:
        return await self._depth(scope) < self._parts.rules.depth

    async def run(
        self, scope: Scope, tasks: Sequence[Task], progress: Progress
    ) -> Sequence[Report]:
        reports: list[Report | None] = [None] * len(tasks)

        async def one(number: int) -> None:
            async def told(text: str) -> None:
                await progress(f"[{number + 1}] {text}")

            reports[number] = await self._child(scope, tasks[number], told)

        await self._all(scope, len(tasks), one)
        return [report for report in reports if report is not None]

    async def dispatch(self, scope: Scope, tasks: Sequence[Task]) -> str:
        await self._refuse_too_much(scope)
        await self._refuse_without_a_person(scope)
        empty = (None,) * len(tasks)
        work = Delegation(id=new_id("dlg"), scope=scope, tasks=tuple(tasks), reports=empty)
        # Whoever waits may give up; a row that is on its way to the disk must find its end.
        with anyio.CancelScope(shield=True):
            await self._parts.store.commit(PutMatter(self._matter(work, RUNNING), was=""))
        passing("delegation.begun")
        await self._unless_interrupted(work)
        scope_of_work = anyio.CancelScope()
        # From now on it can be stopped, also before it has made its first step.
        self._going[work.id] = (scope.session, scope_of_work)
        self._group.start_soon(self._in_background, work, scope_of_work)
        return work.id

    async def _unless_interrupted(self, work: Delegation) -> None:
        """Nobody heard of work whose start was interrupted, so nobody is to hear of its end."""
        try:
            await anyio.lowlevel.checkpoint_if_cancelled()
        except anyio.get_cancelled_exc_class():
            matter = structs.replace(self._matter(work, BROUGHT), open=False, holder="")
            with anyio.CancelScope(shield=True):
                await self._parts.store.commit(PutMatter(matter, was=RUNNING))
            raise

    async def _refuse_too_much(self, scope: Scope) -> None:
        found = await self._parts.store.matters.find(KIND, only_open=True)
        works = (msgspec.json.decode(one.body, type=Delegation) for one in found)
        mine = sum(work.scope.principal == scope.principal for work in works)
        if mine >= self._parts.rules.waiting:
            raise UsageError(
                f"{mine} pieces of delegated work are under way already.",
                hint="Wait for their reports, or do it directly.",
            )

    async def _refuse_without_a_person(self, scope: Scope) -> None:
        """Reports begin turns by themselves, and those must not begin work without end."""
        try:
            rows = await self._parts.store.seen_by(OWNER).messages(scope.session)
        except NotFound:
            return
        asked = [row.message for row in rows if isinstance(row.message, User)]
        since = itertools.takewhile(lambda user: user.trust not in _PEOPLE, reversed(asked))
        if sum(user.trust is Trust.DATA for user in since) >= self._parts.rules.rounds:
            raise UsageError(
                "Several rounds of delegated work went by without a word from a person.",
                hint="Tell them what came of it and wait for their answer.",
            )

    def stop(self, session: str) -> int:
        """End what a session has in the background; how many there were."""
        found = [scope for owner, scope in self._going.values() if owner == session]
        for scope in found:
            scope.cancel()
        return len(found)

    async def recover(self) -> None:
        """Bring home what a killed process left: finished reports as they are, the rest as lost."""
        for matter in await self._parts.store.matters.abandoned(KIND):
            work = msgspec.json.decode(matter.body, type=Delegation)
            await self._bring(work)

    async def _in_background(self, work: Delegation, scope: anyio.CancelScope) -> None:
        with scope:
            work = await self._work(work)
        self._going.pop(work.id, None)
        if scope.cancelled_caught:
            with anyio.CancelScope(shield=True):
                found = await self._parts.store.matters.get(KIND, work.id)
                if found is not None:
                    work = msgspec.json.decode(found.body, type=Delegation)
                await self._bring(work, Fate.INTERRUPTED)
            return
        await self._bring(work)

    async def _work(self, work: Delegation) -> Delegation:
        async def one(number: int) -> None:
            nonlocal work
            report = await self._child(work.scope, work.tasks[number], _silently)
            reports = (*work.reports[:number], report, *work.reports[number + 1 :])
            work = structs.replace(work, reports=reports)
            # Kept as it comes in, so that a crash loses no more than what was not finished.
            with anyio.CancelScope(shield=True):
                await self._parts.store.commit(PutMatter(self._matter(work, RUNNING), was=RUNNING))
            passing("delegation.one_reported")

        await self._all(work.scope, len(work.tasks), one)
        return work

    async def _bring(self, work: Delegation, otherwise: Fate = Fate.LOST) -> None:
        reports = [
            report or Report(goal=task.goal, fate=otherwise)
            for task, report in zip(work.tasks, work.reports, strict=True)
        ]
        text = reports_text(work.id, reports, self._parts.rules.summary)
        done = structs.replace(work, reports=tuple(reports))
        matter = structs.replace(self._matter(done, BROUGHT), open=False, holder="")
        letter = self._parts.later.brought(work.scope, work.id, text)
        try:
            await self._parts.store.commit(PutMatter(matter, was=RUNNING), *letter)
        except Overtaken:
            return  # somebody else brought it
        passing("delegation.brought")
        self._parts.later.ring(work.scope)

    async def _child(self, scope: Scope, task: Task, progress: Progress) -> Report:
        rules = self._parts.rules
        deeper = await self._depth(scope) + 1
        hands_on = task.role == "orchestrator" and rules.orchestrators and deeper < rules.depth
        child = Child(self._parts.runner, self._parts.clock, rules.budget)
        try:
            return await child.run(scope, task, progress, hands_on=hands_on)
        except Exception:
            log.exception("a subagent broke")
            return Report(goal=task.goal, fate=Fate.FAILED, error="It broke; the log has it.")

    async def _all(self, scope: Scope, count: int, one: Callable[[int], Awaitable[None]]) -> None:
        # Each level has a limit of its own: who waits for those below holds a place above.
        place = (scope.principal, await self._depth(scope))
        limit = self._limits.setdefault(place, anyio.CapacityLimiter(self._parts.rules.at_once))

        async def in_turn(number: int) -> None:
            async with limit:
                await one(number)

        async with anyio.create_task_group() as group:
            for number in range(count):
                group.start_soon(in_turn, number)

    async def _depth(self, scope: Scope) -> int:
        """How many subagents stand between this one and a person."""
        archive, depth, session = self._parts.store.seen_by(OWNER), 0, scope.session
        if scope.source != SOURCE:
            return 0
        while depth < _DEEPEST:
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

    def _matter(self, work: Delegation, state: str) -> Matter:
        return Matter(
            kind=KIND,
            id=work.id,
            session=work.scope.session,
            state=state,
            at=self._parts.clock.now(),
            body=Raw(msgspec.json.encode(work)),
            holder=this_process(),
        )


@asynccontextmanager
async def open_delegations(parts: Parts) -> AsyncGenerator[Delegations]:
    """For as long as the profile is open; leaving it ends what still works."""
    async with beside() as group:
        delegations = Delegations(parts, group)
        group.start_soon(_recovered, delegations)
        yield delegations


async def _recovered(delegations: Delegations) -> None:
    try:
        await delegations.recover()
    except StoreError as error:
        log.warning("delegated work of an earlier process waits for the next start: %s", error)


async def _silently(text: str) -> None:
    pass
