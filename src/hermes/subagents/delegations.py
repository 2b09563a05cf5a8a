"""Delegate tasks to subagents, in the foreground or background, and deliver each report once."""

import itertools
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup
from msgspec import Struct, structs

from hermes.kit.clock import Clock
from hermes.kit.failpoints import failpoint
from hermes.kit.ids import new_id
from hermes.kit.retry import Backoff
from hermes.ports.delegation import (
    AddDelegation,
    ChangeDelegation,
    CloseDelegation,
    Delegation,
    ReportProgress,
    Task,
    TaskReport,
    TaskStatus,
)
from hermes.ports.message_sender import Followups
from hermes.ports.store import Store
from hermes.schema.errors import NotFound, StateConflict, StoreError, UsageError
from hermes.schema.messages import Trust, User
from hermes.schema.scope import OWNER, Scope
from hermes.schema.sessions import Session
from hermes.session.runner import Runner
from hermes.subagents.child import Subagent, SubagentBudget, SubagentModel
from hermes.subagents.messages import MAX_SUMMARY, SUBAGENT, reports_text

log = logging.getLogger(__name__)

RETRY = Backoff(base=0.5, cap=30.0)
_MAX_DEPTH = 20
_MAX_ENDED = 20
"""Maximum ended delegations that are still listed."""
_PERSON_TRUST = frozenset({Trust.OWNER, Trust.GUEST})


class DelegationRules(Struct, frozen=True, kw_only=True):
    """Limits: `concurrent` subagents per person, `depth` levels below the agent that talks to them.

    `max_background`: background delegations per person. `max_rounds`: how often reports may lead to
    further delegations without a message from a person.
    """

    concurrent: int = 3
    max_background: int = 10
    max_rounds: int = 5
    depth: int = 1
    allow_orchestrators: bool = True
    summary: int = MAX_SUMMARY
    budget: SubagentBudget = SubagentBudget()


async def unchanged_scope(scope: Scope) -> Scope:
    return scope


class DelegationDeps(Struct, frozen=True, kw_only=True):
    """`current_scope` returns the scope in which a conversation continues now."""

    store: Store
    runner: Runner
    clock: Clock
    followups: Followups
    current_scope: Callable[[Scope], Awaitable[Scope]] = unchanged_scope
    rules: DelegationRules = DelegationRules()


class BackgroundDelegation:
    """A background delegation and the last activity of each task."""

    def __init__(self, work: Delegation, began: datetime) -> None:
        self.work = work
        self.started = began
        self.ended: datetime | None = None
        self.unfinished = TaskStatus.LOST
        """How tasks without a report ended."""
        self.activity = ["waiting"] * len(work.tasks)
        self.stop = anyio.CancelScope()

    def belongs_to(self, session: str, key: str) -> bool:
        """Whether it belongs to the session or, after a reset, to its successor."""
        scope = self.work.scope
        return scope.session == session or (bool(key) and scope.key == key)

    def state_of(self, number: int) -> TaskStatus | None:
        """How the task ended, or None while it runs."""
        report = self.work.reports[number]
        if report is not None:
            return report.fate
        return self.unfinished if self.ended is not None else None


class Delegations:
    """Implements `hermes.ports.delegation` for one profile."""

    def __init__(self, deps: DelegationDeps, group: TaskGroup) -> None:
        self._deps = deps
        self._group = group
        self._running: dict[str, BackgroundDelegation] = {}
        self._ended: deque[BackgroundDelegation] = deque(maxlen=_MAX_ENDED)
        self._limits: dict[tuple[str, int], anyio.CapacityLimiter] = {}

    async def may_delegate(self, scope: Scope) -> bool:
        return await self._depth(scope) < self._deps.rules.depth

    async def run(
        self, scope: Scope, tasks: Sequence[Task], progress: ReportProgress
    ) -> Sequence[TaskReport]:
        reports: list[TaskReport | None] = [None] * len(tasks)

        async def run_task(index: int) -> None:
            async def report_progress(text: str) -> None:
                await progress(f"[{index + 1}] {text}")

            reports[index] = await self._child(scope, tasks[index], report_progress)

        await self._all(scope, len(tasks), run_task)
        return [report for report in reports if report is not None]

    async def dispatch(
        self, scope: Scope, tasks: Sequence[Task], *, requested: bool = False
    ) -> str:
        """Start tasks in the background; `requested` if a person requested it directly."""
        await self._check_background_limit(scope)
        if not requested:
            await self._check_rounds(scope)
        empty = (None,) * len(tasks)
        work = Delegation(
            id=new_id("dlg"),
            scope=scope,
            tasks=tuple(tasks),
            reports=empty,
            holder=self._deps.store.workers.own,
        )
        # Shielded: a cancelled caller must not leave a row without its task.
        with anyio.CancelScope(shield=True):
            await self._deps.store.commit(AddDelegation(work))
        failpoint("delegation.begun")
        await self._close_if_cancelled(work)
        # Registered now, so that it can be stopped even before its first step.
        running = self._running[work.id] = BackgroundDelegation(work, self._deps.clock.now())
        self._group.start_soon(self._in_background, running)
        return work.id

    async def _close_if_cancelled(self, work: Delegation) -> None:
        """Close the record if the start was cancelled, without a report."""
        try:
            await anyio.lowlevel.checkpoint_if_cancelled()
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self._deps.store.commit(CloseDelegation(work.id))
            raise

    async def _check_background_limit(self, scope: Scope) -> None:
        works = await self._deps.store.delegations.running()
        own = sum(work.scope.principal == scope.principal for work in works)
        if own >= self._deps.rules.max_background:
            raise UsageError(
                f"{own} delegations are already running.",
                hint="Wait for their reports, or do it directly.",
            )

    async def _check_rounds(self, scope: Scope) -> None:
        """Reports start turns automatically, which must not start delegations endlessly."""
        try:
            rows = await self._deps.store.archive_for(OWNER).messages(scope.session)
        except NotFound:
            return
        questions = [row.message for row in rows if isinstance(row.message, User)]
        since = itertools.takewhile(
            lambda user: user.trust not in _PERSON_TRUST, reversed(questions)
        )
        if sum(user.trust is Trust.DATA for user in since) >= self._deps.rules.max_rounds:
            raise UsageError(
                "Several rounds of delegation have passed without a message from a person.",
                hint="Report the results and wait for an answer.",
            )

    @property
    def running(self) -> Sequence[BackgroundDelegation]:
        """The running delegations of all sessions."""
        return list(self._running.values())

    def running_in(self, session: str, key: str) -> Sequence[BackgroundDelegation]:
        """Return the session's running delegations."""
        return [running for running in self.running if running.belongs_to(session, key)]

    def ended_in(self, session: str, key: str) -> Sequence[BackgroundDelegation]:
        """Return the session's delegations that recently ended in this process."""
        return [ended for ended in self._ended if ended.belongs_to(session, key)]

    def end_all(self, session: str, key: str) -> int:
        """Stop the session's delegations and return their number."""
        found = self.running_in(session, key)
        for running in found:
            running.stop.cancel()
        return len(found)

    async def recover(self) -> None:
        """Report what a dead process left: finished reports as they are, the rest as lost."""
        for work in await self._deps.store.delegations.abandoned():
            await self._report(work)

    async def _in_background(self, running: BackgroundDelegation) -> None:
        with running.stop:
            try:
                await self._work(running)
            except Exception:
                # Must not affect the profile; the results so far are still reported.
                log.exception("delegation %s failed", running.work.id)
        if running.stop.cancelled_caught:
            running.unfinished = TaskStatus.INTERRUPTED
        await self._retry_until_stored(running.work, running.unfinished)
        running.ended = self._deps.clock.now()
        self._running.pop(running.work.id, None)
        self._ended.append(running)

    async def _retry_until_stored(self, work: Delegation, status: TaskStatus) -> None:
        """Retry until stored: a full or locked disk must not lose a report."""
        failures = 0
        while True:
            try:
                with anyio.CancelScope(shield=True):
                    return await self._report(work, status)
            except StoreError as error:
                failures += 1
                log.warning("delegation %s cannot be reported yet: %s", work.id, error)
            await self._deps.clock.sleep(RETRY.delay(failures))

    async def _work(self, running: BackgroundDelegation) -> None:
        async def run_task(number: int) -> None:
            async def report_progress(text: str) -> None:
                running.activity[number] = text

            running.activity[number] = "thinking"
            task = running.work.tasks[number]
            report = await self._child(running.work.scope, task, report_progress)
            running.activity[number] = report.fate.value
            reports = (*running.work.reports[:number], report, *running.work.reports[number + 1 :])
            running.work = structs.replace(running.work, reports=reports)
            await self._store_reports(running.work)
            failpoint("delegation.one_reported")

        await self._all(running.work.scope, len(running.work.tasks), run_task)

    async def _store_reports(self, work: Delegation) -> None:
        """Store each report as it arrives, so that a crash loses only unfinished tasks."""
        try:
            with anyio.CancelScope(shield=True):
                await self._deps.store.commit(ChangeDelegation(work))
        except StoreError as error:
            log.warning("a report of %s could not be stored yet: %s", work.id, error)

    async def _report(self, work: Delegation, unfinished: TaskStatus = TaskStatus.LOST) -> None:
        reports = [
            report or TaskReport(goal=task.goal, fate=unfinished)
            for task, report in zip(work.tasks, work.reports, strict=True)
        ]
        text = reports_text(work.id, reports, self._deps.rules.summary)
        scope = await self._deps.current_scope(work.scope)
        # Stopped by the user without any result: there is nothing to report.
        silent = unfinished is TaskStatus.INTERRUPTED and not any(work.reports)
        message = () if silent else self._deps.followups.rows(scope, work.id, text)
        try:
            await self._deps.store.commit(CloseDelegation(work.id), *message)
        except StateConflict:
            return  # already reported by another process
        failpoint("delegation.result_stored")
        if message:
            self._deps.followups.wake(scope)

    async def _child(self, scope: Scope, task: Task, progress: ReportProgress) -> TaskReport:
        rules = self._deps.rules
        depth = await self._depth(scope) + 1
        may_delegate = (
            task.role == "orchestrator" and rules.allow_orchestrators and depth < rules.depth
        )
        child = Subagent(self._deps.runner, self._deps.clock, rules.budget)
        try:
            parent = await self._stored_session(scope)
            model = self._model(parent)
            return await child.run(
                scope, task, progress, model, parent=parent, may_delegate=may_delegate
            )
        except Exception:
            log.exception("a subagent failed")
            error = "Internal error; see the log."
            return TaskReport(goal=task.goal, fate=TaskStatus.FAILED, error=error)

    async def _stored_session(self, scope: Scope) -> Session | None:
        """The session of the work; None in a chat without a message yet."""
        try:
            return await self._deps.store.archive_for(OWNER).get(scope.session)
        except NotFound:
            return None

    def _model(self, parent: Session | None) -> SubagentModel:
        model = self._deps.rules.budget.model
        if parent is None:
            return model
        if not model.model:
            model = structs.replace(model, model=parent.model, provider=parent.provider)
        return model if model.effort else structs.replace(model, effort=parent.effort)

    async def _all(
        self, scope: Scope, count: int, run_task: Callable[[int], Awaitable[None]]
    ) -> None:
        # Each level has its own limit, because parents hold a slot while they wait.
        level = (scope.principal, await self._depth(scope))
        limit = self._limits.setdefault(level, anyio.CapacityLimiter(self._deps.rules.concurrent))

        async def in_turn(number: int) -> None:
            async with limit:
                await run_task(number)

        try:
            async with anyio.create_task_group() as group:
                for number in range(count):
                    group.start_soon(in_turn, number)
        finally:
            if not limit.borrowed_tokens and not limit.statistics().tasks_waiting:
                self._limits.pop(level, None)

    async def _depth(self, scope: Scope) -> int:
        """Return how many subagents are between this one and a person."""
        depth, session = 0, scope.session if scope.source == SUBAGENT else None
        while session is not None and depth < _MAX_DEPTH:
            try:
                found = await self._deps.store.archive_for(OWNER).get(session)
            except NotFound:
                break
            if found.source != SUBAGENT:
                break
            depth, session = depth + 1, found.parent
        return depth
