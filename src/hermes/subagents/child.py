"""One subagent at work: a session below its parent's, one turn, and a report."""

from collections.abc import Sequence

import anyio
from msgspec import Struct

from hermes.agent.answers import final_text
from hermes.kit.clock import Clock
from hermes.kit.ids import new_id, new_session_id
from hermes.kit.text import one_line
from hermes.ports.delegation import ReportProgress, Task, TaskReport, TaskStatus
from hermes.ports.events import Emit
from hermes.schema.errors import HermesError
from hermes.schema.events import Event, MessageAdded, Outcome, RunEnded, ToolStarted
from hermes.schema.messages import Assistant, Message, Result, Text, Trust, User
from hermes.schema.scope import InheritedLimits, Scope, policy_platform
from hermes.schema.sessions import Session
from hermes.session.runner import Runner
from hermes.session.turn_request import TurnRequest
from hermes.subagents.messages import SUBAGENT as SOURCE
from hermes.subagents.messages import task_text

BLOCKED_TOOLS = frozenset(
    {"clarify", "memory", "skill_manage", "send_message", "execute_code", "cronjob"}
)
"""What only the one who talks with a person does."""
DELEGATE_TOOL = "delegate_task"
_STATUS_OF_OUTCOME = {
    Outcome.DONE: TaskStatus.COMPLETED,
    Outcome.EXHAUSTED: TaskStatus.COMPLETED,
    Outcome.CANCELLED: TaskStatus.INTERRUPTED,
    Outcome.FAILED: TaskStatus.FAILED,
}


class SubagentTimeouts(Struct, frozen=True, kw_only=True):
    """Seconds: without a sign of life, within one tool, and altogether (0: no limit)."""

    idle: float = 450.0
    in_a_tool: float = 1200.0
    total: float = 0.0


class SubagentModel(Struct, frozen=True, kw_only=True):
    """Which model a subagent thinks with, and how hard; as the settings say where it is empty."""

    model: str = ""
    provider: str = ""
    effort: str = ""


class SubagentBudget(Struct, frozen=True, kw_only=True):
    """`leave`: what would be asked for is done; there is nobody to ask.

    Without a model in `mind`, a subagent has that of the session it works for. `without` are
    tools that it is not given, besides those that no subagent has.
    """

    steps: int = 50
    patience: SubagentTimeouts = SubagentTimeouts()
    leave: bool = False
    mind: SubagentModel = SubagentModel()
    without: frozenset[str] = frozenset()


class Subagent:
    """Runs once. What it said and did is in its session, whatever happens to the report."""

    def __init__(self, runner: Runner, clock: Clock, budget: SubagentBudget) -> None:
        self._runner = runner
        self._clock = clock
        self._budget = budget
        self._said: list[Message] = []
        self._ended: RunEnded | None = None
        self._in_tool: set[str] = set()
        self._alive = anyio.Event()
        self._late = False

    async def run(
        self,
        scope: Scope,
        task: Task,
        progress: ReportProgress,
        mind: SubagentModel,
        *,
        hands_on: bool,
    ) -> TaskReport:
        session = Session(
            id=new_session_id(self._clock.now()),
            started_at=self._clock.now(),
            source=SOURCE,
            principal=scope.principal,
            parent=scope.session,
            cwd=scope.workspace,
            model=mind.model,
            provider=mind.provider,
            effort=mind.effort,
        )
        turn = TurnRequest(
            session=session,
            asked=User(
                new_id("msg"),
                (Text(task_text(task)),),
                Trust.DATA if task.foreign else Trust.PROGRAM,
            ),
            listen=self._listener(progress),
            new=True,
            role=scope.role,
            source=SOURCE,
            later=False,
            without=self._without(hands_on=hands_on),
            steps=self._budget.steps,
            # What strangers had a hand in is not done unasked, whatever the settings say.
            yolo=scope.yolo or (self._budget.leave and not task.foreign),
            bounds=scope.bounds or InheritedLimits(platform=policy_platform(scope)),
        )
        began = self._clock.monotonic()
        failure = await self._watched(turn)
        return self._report(task, session.id, self._clock.monotonic() - began, failure)

    def _without(self, *, hands_on: bool) -> frozenset[str]:
        without = BLOCKED_TOOLS | self._budget.without
        return without - {DELEGATE_TOOL} if hands_on else without | {DELEGATE_TOOL}

    async def _watched(self, turn: TurnRequest) -> str:
        """The turn, ended when nothing moves any more; the trouble that kept it from running."""
        failure = ""
        async with anyio.create_task_group() as group:
            group.start_soon(self._watch, group.cancel_scope)
            try:
                await self._runner.run(turn)
            except HermesError as error:
                failure = error.sentence
            group.cancel_scope.cancel()
        return failure

    async def _watch(self, scope: anyio.CancelScope) -> None:
        patience, began = self._budget.patience, self._clock.monotonic()
        while not self._late:
            self._alive = anyio.Event()
            limit = patience.in_a_tool if self._in_tool else patience.idle
            if patience.total:
                limit = min(limit, began + patience.total - self._clock.monotonic())
            self._late = not await self._event_within(max(limit, 0.0))
        scope.cancel()

    async def _event_within(self, seconds: float) -> bool:
        alive = self._alive
        async with anyio.create_task_group() as group:

            async def moved() -> None:
                await alive.wait()
                group.cancel_scope.cancel()

            group.start_soon(moved)
            await self._clock.sleep(seconds)
            group.cancel_scope.cancel()
        return alive.is_set()

    def _listener(self, progress: ReportProgress) -> Emit:
        async def listen(event: Event) -> None:
            self._alive.set()
            match event:
                case MessageAdded(message):
                    self._said.append(message)
                    if isinstance(message, Result):
                        self._in_tool.discard(message.call)
                case ToolStarted(call):
                    self._in_tool.add(call.id)
                    await progress(f"{call.name} {one_line(bytes(call.args).decode(), 80)}")
                case RunEnded():
                    self._ended = event
                case _:
                    pass

        return listen

    def _report(self, task: Task, session: str, seconds: float, failure: str) -> TaskReport:
        ended, answer = self._ended, _final_answer(self._said)
        fate = _STATUS_OF_OUTCOME[ended.outcome] if ended is not None else TaskStatus.FAILED
        if self._late:
            fate = TaskStatus.TIMEOUT
        trouble = failure or (ended.reason if ended and ended.outcome is not Outcome.DONE else "")
        return TaskReport(
            goal=task.goal,
            fate=fate,
            summary=answer,
            error="It was ended: nothing moved any more." if self._late else trouble,
            session=session,
            seconds=round(seconds, 1),
            steps=ended.steps if ended is not None else 0,
        )


def _final_answer(said: Sequence[Message]) -> str:
    """The answer; of one that was cut short, the last thing it said."""
    return final_text(said) or next(
        (text for message in reversed(said) if (text := _assistant_text(message))), ""
    )


def _assistant_text(message: Message) -> str:
    if not isinstance(message, Assistant):
        return ""
    return "".join(part.text for part in message.parts if isinstance(part, Text)).strip()
