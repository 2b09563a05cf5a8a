"""Run one unattended turn, with limits on time and inactivity."""

from collections.abc import Sequence
from functools import partial
from typing import Protocol

import anyio
from msgspec import Struct

from hermes.kit.clock import Clock
from hermes.kit.tasks import sleep_unless
from hermes.ports.store import Write
from hermes.schema.errors import HermesError, LeaseLost
from hermes.schema.events import Event, MessageAdded, Outcome, RunEnded, ToolStarted
from hermes.schema.messages import Assistant, Message, Result, final_text
from hermes.session.followed_run import RunReading
from hermes.session.runner import Runner
from hermes.session.turn_request import TurnRequest


class RunLimits(Struct, frozen=True, kw_only=True):
    """Seconds without activity outside tools, and in total; None and 0: unlimited."""

    idle: float = 600.0
    total: float | None = None


class RunResult(Struct, frozen=True, kw_only=True):
    """How the turn ended; `code` is an error code, `used` whether a model answered.

    `interrupted`: the program is ending; the next process continues the work.
    """

    text: str = ""
    failure: str = ""
    code: str = ""
    used: bool = False
    interrupted: bool = False


class LimitedRun:
    """Runs once. `end` returns writes to commit with the end of the turn."""

    def __init__(
        self, *, runner: Runner, clock: Clock, limits: RunLimits, end: "EndWrites"
    ) -> None:
        self._runner = runner
        self._clock = clock
        self._limits = limits
        self._end = end
        self._stop = anyio.CancelScope()
        self._activity = anyio.Event()
        self._ended_by = ""
        self._in_tool: set[str] = set()
        self.result: RunResult | None = None

    async def run(self, turn: TurnRequest) -> RunResult:
        reading = RunReading(self, self._runner.bus, turn.run)
        failure: HermesError | None = None
        async with anyio.create_task_group() as group:
            group.start_soon(self._watch)
            try:
                await reading.follow(partial(self._runner.run, turn, reading), self._stop)
            except HermesError as error:
                failure = error
            group.cancel_scope.cancel()
        if isinstance(failure, LeaseLost):
            raise failure
        if self.result is None and failure is not None:
            return RunResult(failure=failure.sentence, code=failure.code)
        return self.result or RunResult(interrupted=True)

    def on_event(self, event: Event) -> None:
        self._activity.set()
        match event:
            case MessageAdded(Result(call=call)):
                self._in_tool.discard(call)
            case ToolStarted(call):
                self._in_tool.add(call.id)
            case _:
                pass

    async def flush(self) -> None:
        """Do nothing between events."""

    def final_writes(self, ended: RunEnded, messages: Sequence[Message]) -> Sequence[Write]:
        self.result = self._result(ended, messages)
        return () if self.result.interrupted else self._end(self.result)

    def _result(self, ended: RunEnded, messages: Sequence[Message]) -> RunResult:
        text = final_text(messages)
        used = any(isinstance(message, Assistant) for message in messages)
        if self._ended_by:
            return RunResult(text=text, failure=self._ended_by, code="limit", used=used)
        match ended.outcome:
            case Outcome.DONE:
                failure = "" if text.strip() else "The answer was empty."
                return RunResult(text=text, failure=failure, code="", used=used)
            case Outcome.CANCELLED:
                return RunResult(interrupted=True)
            case Outcome.EXHAUSTED | Outcome.FAILED:
                return RunResult(text=text, failure=ended.reason, code=ended.code, used=used)

    def _cancel(self, reason: str) -> None:
        self._ended_by = self._ended_by or reason
        self._stop.cancel()

    async def _watch(self) -> None:
        limits, began = self._limits, self._clock.monotonic()
        while not self._ended_by:
            self._activity = anyio.Event()
            left = limits.idle or None
            if limits.total:
                rest = began + limits.total - self._clock.monotonic()
                left = rest if left is None else min(left, rest)
            if left is None:
                return
            await sleep_unless(self._clock, max(left, 0.0), self._activity)
            if limits.total and self._clock.monotonic() - began >= limits.total:
                self._cancel(f"It took longer than {limits.total:g} seconds.")
            elif not self._activity.is_set() and not self._in_tool:
                self._cancel(f"Nothing happened for {limits.idle:g} seconds.")


class EndWrites(Protocol):
    """Called with the result when the turn ends."""

    def __call__(self, result: RunResult, /) -> Sequence[Write]: ...
