"""Run one subagent: a child session, one turn and a report."""

from collections.abc import Callable, Sequence
from functools import partial

import anyio
from msgspec import Struct

from hermes.kit.clock import Clock
from hermes.kit.ids import new_id, new_session_id
from hermes.ports.delegation import ReportProgress, Task, TaskReport, TaskStatus
from hermes.ports.store import Write
from hermes.schema.call_label import call_label
from hermes.schema.errors import HermesError
from hermes.schema.events import Event, MessageAdded, Outcome, RunEnded, ToolStarted
from hermes.schema.messages import Assistant, Message, Result, Text, Trust, User, final_text
from hermes.schema.scope import InheritedLimits, Scope, policy_platform
from hermes.schema.sessions import Session
from hermes.session.followed_run import RunReading
from hermes.session.runner import Runner
from hermes.session.turn_request import TurnRequest
from hermes.subagents.messages import SUBAGENT, task_text

BLOCKED_TOOLS = frozenset(
    {"clarify", "memory", "skill_manage", "send_message", "execute_code", "cronjob"}
)
"""Tools reserved for the agent that talks to a person."""
DELEGATE_TOOL = "delegate_task"
_STATUS_OF_OUTCOME = {
    Outcome.DONE: TaskStatus.COMPLETED,
    Outcome.EXHAUSTED: TaskStatus.COMPLETED,
    Outcome.CANCELLED: TaskStatus.INTERRUPTED,
    Outcome.FAILED: TaskStatus.FAILED,
}


class SubagentTimeouts(Struct, frozen=True, kw_only=True):
    """Seconds without activity, within one tool, and in total (0: unlimited)."""

    idle: float = 450.0
    in_a_tool: float = 1200.0
    total: float = 0.0


class SubagentModel(Struct, frozen=True, kw_only=True):
    """Model and effort of a subagent; empty fields use the settings."""

    model: str = ""
    provider: str = ""
    effort: str = ""


class SubagentBudget(Struct, frozen=True, kw_only=True):
    """A subagent's limits.

    `auto_approve` approves actions that a person would be asked about, because no one can answer.
    Without a model in `model`, the parent session's is used.
    """

    steps: int = 50
    timeouts: SubagentTimeouts = SubagentTimeouts()
    auto_approve: bool = False
    model: SubagentModel = SubagentModel()
    excluded_tools: frozenset[str] = frozenset()


class Subagent:
    """Runs once. Its transcript is in its session, whatever happens to the report."""

    def __init__(self, runner: Runner, clock: Clock, budget: SubagentBudget) -> None:
        self._runner = runner
        self._clock = clock
        self._budget = budget
        self._messages: list[Message] = []
        self._ended: RunEnded | None = None
        self._in_tool: set[str] = set()
        self._activity = anyio.Event()
        self._timed_out = False

    async def run(
        self,
        scope: Scope,
        task: Task,
        progress: ReportProgress,
        model: SubagentModel,
        *,
        parent: Session | None,
        may_delegate: bool,
    ) -> TaskReport:
        session = Session(
            id=new_session_id(self._clock.now()),
            started_at=self._clock.now(),
            source=SUBAGENT,
            principal=scope.principal,
            parent=None if parent is None else parent.id,
            cwd=scope.workspace,
            model=model.model,
            provider=model.provider,
            effort=model.effort,
        )
        trust = Trust.DATA if task.foreign else Trust.PROGRAM
        turn = TurnRequest(
            session=session,
            message=User(new_id("msg"), (Text(task_text(task)),), trust),
            new=True,
            role=scope.role,
            source=SUBAGENT,
            async_delivery=False,
            excluded_tools=self._excluded_tools(may_delegate=may_delegate),
            steps=self._budget.steps,
            # Tasks that contain untrusted content are never auto-approved.
            yolo=scope.yolo or (self._budget.auto_approve and not task.foreign),
            inherited_limits=scope.bounds or InheritedLimits(platform=policy_platform(scope)),
        )
        began = self._clock.monotonic()
        failure = await self._run_watched(turn, progress)
        return self._report(task, session.id, self._clock.monotonic() - began, failure)

    def _excluded_tools(self, *, may_delegate: bool) -> frozenset[str]:
        excluded = BLOCKED_TOOLS | self._budget.excluded_tools
        return excluded - {DELEGATE_TOOL} if may_delegate else excluded | {DELEGATE_TOOL}

    async def _run_watched(self, turn: TurnRequest, progress: ReportProgress) -> str:
        """Run the turn until it ends or stalls; return the error that prevented it, or ""."""
        failure, stop = "", anyio.CancelScope()
        async with anyio.create_task_group() as group:
            group.start_soon(self._watch, stop)
            reader = _ProgressReader(self._on_event, progress)
            reading = RunReading(reader, self._runner.bus, turn.run)
            try:
                await reading.follow(partial(self._runner.run, turn, reading), stop)
            except HermesError as error:
                failure = error.sentence
            group.cancel_scope.cancel()
        return failure

    async def _watch(self, scope: anyio.CancelScope) -> None:
        timeouts, began = self._budget.timeouts, self._clock.monotonic()
        while not self._timed_out:
            self._activity = anyio.Event()
            limit = timeouts.in_a_tool if self._in_tool else timeouts.idle
            if timeouts.total:
                limit = min(limit, began + timeouts.total - self._clock.monotonic())
            self._timed_out = not await self._event_within(max(limit, 0.0))
        scope.cancel()

    async def _event_within(self, seconds: float) -> bool:
        alive = self._activity
        async with anyio.create_task_group() as group:

            async def moved() -> None:
                await alive.wait()
                group.cancel_scope.cancel()

            group.start_soon(moved)
            await self._clock.sleep(seconds)
            group.cancel_scope.cancel()
        return alive.is_set()

    def _on_event(self, event: Event) -> None:
        self._activity.set()
        match event:
            case MessageAdded(message):
                self._messages.append(message)
                if isinstance(message, Result):
                    self._in_tool.discard(message.call)
            case ToolStarted(call):
                self._in_tool.add(call.id)
            case RunEnded():
                self._ended = event
            case _:
                pass

    def _report(self, task: Task, session: str, seconds: float, failure: str) -> TaskReport:
        ended, answer = self._ended, _final_answer(self._messages)
        status = _STATUS_OF_OUTCOME[ended.outcome] if ended is not None else TaskStatus.FAILED
        if self._timed_out:
            status = TaskStatus.TIMEOUT
        error = failure or (ended.reason if ended and ended.outcome is not Outcome.DONE else "")
        return TaskReport(
            goal=task.goal,
            fate=status,
            summary=answer,
            error="Ended after too long without activity." if self._timed_out else error,
            session=session,
            seconds=round(seconds, 1),
            steps=ended.steps if ended is not None else 0,
        )


class _ProgressReader(Struct):
    """Passes on the events of a subagent's run, and reports the tools that it calls."""

    handle: Callable[[Event], None]
    progress: ReportProgress
    labels: list[str] = []

    def on_event(self, event: Event) -> None:
        self.handle(event)
        if isinstance(event, ToolStarted):
            self.labels.append(call_label(event.call, 80))

    async def flush(self) -> None:
        while self.labels:
            await self.progress(self.labels.pop(0))

    def final_writes(self, ended: RunEnded, messages: Sequence[Message]) -> Sequence[Write]:
        return ()


def _final_answer(messages: Sequence[Message]) -> str:
    """Return the final answer, or the last text of an interrupted one."""
    answers = [
        message.text.strip() for message in reversed(messages) if isinstance(message, Assistant)
    ]
    return final_text(messages) or next(filter(None, answers), "")
