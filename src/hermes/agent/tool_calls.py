"""Run the tool calls of one answer: reads in parallel, everything else in order."""

import logging
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from itertools import groupby

import anyio
from msgspec import Raw, Struct, structs

from hermes.agent.answers import TRUNCATED_ARGUMENTS, unwrap_call
from hermes.agent.history import MAX_IDENTIFIER, is_json_object
from hermes.agent.plan import Plan, RuntimePlan, after_tool_call, blocked_reason
from hermes.agent.provenance import TextSource, UntrustedContent, find_sources, quotes_untrusted
from hermes.kit.ids import new_id
from hermes.kit.tasks import cancelled_from_outside
from hermes.kit.text import head_and_tail, one_line
from hermes.ports.approvals import (
    ApprovalRequest,
    Decision,
    TurnSuspended,
    decide_unattended,
    no_answer,
)
from hermes.ports.tool import TextSources, Tool, ToolContext, ToolOutput
from hermes.ports.turn import Emit
from hermes.schema.errors import ToolError
from hermes.schema.events import ToolProgress, ToolStarted
from hermes.schema.messages import Media, Message, Result, Text, ToolCall
from hermes.schema.scope import Scope
from hermes.schema.tools import Effect

log = logging.getLogger(__name__)

MAX_PARALLEL = 8
MAX_TEXT = 200_000
"""Maximum characters of a result; tools have their own, smaller limits."""
MAX_PARTS = 100
MAX_PROGRESS = 10_000


class FinishedCall(Struct, frozen=True):
    """A call with its result and its duration in seconds."""

    call: ToolCall
    effect: Effect
    result: Result
    took: float = 0.0


ReportCall = Callable[[FinishedCall], Awaitable[None]]


class ToolCallRunner:
    """Runs one answer's calls; each is reported exactly once, in order, however it ends.

    If the turn is suspended, that call and the ones after it run after the next start.
    """

    def __init__(
        self,
        plan: Plan | RuntimePlan,
        calls: Sequence[ToolCall],
        emit: Emit,
        report: ReportCall,
        untrusted: UntrustedContent | None = None,
    ) -> None:
        self._untrusted = untrusted or UntrustedContent(plan.tools)
        self._plan = plan
        self._calls = [unwrap_call(call, plan.tools) for call in calls]
        self._emit = emit
        self._report = report
        self._started: set[int] = set()
        self._approval_state = _ApprovalState()
        self._finished: list[FinishedCall | None] = [None] * len(calls)
        self._reported = 0
        self._reporting = False

    async def run(self) -> None:
        try:
            for alone, batch in groupby(range(len(self._calls)), key=self._batch_key):
                if alone >= 0:
                    await self._run_one(alone)
                else:
                    await self._run_together(list(batch))
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self._report_interrupted()
            raise

    def _batch_key(self, number: int) -> int:
        """Adjacent reads share -1 and run as one batch; other calls have their own key."""
        tool = self._plan.tools.get(self._calls[number].name)
        alone = tool is not None and tool.spec.alone
        return number if alone or self._effect(number) is not Effect.READ else -1

    def _effect(self, number: int) -> Effect:
        tool = self._plan.tools.get(self._calls[number].name)
        return tool.spec.effect if tool else Effect.READ

    async def _run_together(self, batch: Sequence[int]) -> None:
        limit = anyio.CapacityLimiter(MAX_PARALLEL)

        async def run(number: int) -> None:
            async with limit:
                await self._run_one(number)

        if len(batch) == 1:
            await self._run_one(batch[0])
            return
        try:
            async with anyio.create_task_group() as group:
                for number in batch:
                    group.start_soon(run, number)
        except ExceptionGroup as failures:
            # Tool failures are results, so only a failed report or a suspended turn ends up here;
            # the first error is enough.
            raise failures.exceptions[0] from None

    async def _run_one(self, number: int) -> None:
        clock = self._plan.clock
        began = clock.monotonic()
        result = await self._result_of(number)
        took = clock.monotonic() - began
        call = self._calls[number]
        self._finished[number] = FinishedCall(call, self._effect(number), result, took)
        await self._report_finished()
        if number in self._started:
            await after_tool_call(self._plan, call, result)

    async def _report_finished(self) -> None:
        """Report finished calls up to the first that still runs; one caller at a time."""
        if self._reporting:
            return
        self._reporting = True
        try:
            while self._reported < len(self._finished) and (
                finished := self._finished[self._reported]
            ):
                self._reported += 1
                with anyio.CancelScope(shield=True):
                    await self._report(finished)
        finally:
            self._reporting = False

    async def _report_interrupted(self) -> None:
        for number, call in enumerate(self._calls):
            if self._finished[number] is None:
                effect = self._effect(number)
                started = number in self._started and not self._approval_state.is_waiting(call.id)
                result = interrupted_result(call.id, effect, started=started)
                self._finished[number] = FinishedCall(call, effect, result)
        await self._report_finished()

    async def _result_of(self, number: int) -> Result:
        call = self._calls[number]
        tool = self._plan.tools.get(call.name)
        if tool is None:
            known = ", ".join(sorted(self._plan.tools)) or "none"
            shown = one_line(call.name, MAX_IDENTIFIER)
            return failed_result(call.id, f"Unknown tool: {shown}. Tools: {known}.")
        if reason := _invalid_reason(call) or await blocked_reason(self._plan, call):
            return failed_result(call.id, reason)
        await self._emit(ToolStarted(call, tool.spec.effect))
        self._started.add(number)
        output = limit_output(await self._execute(call, tool))
        flags = output.failed, output.shown, output.foreign, output.unverified
        return Result(new_id("msg"), call.id, output.parts, *flags)

    async def _execute(self, call: ToolCall, tool: Tool) -> ToolOutput:
        spec = tool.spec
        effects = "" if spec.effect is Effect.READ else " Anything it did before that remains."
        try:
            with anyio.move_on_after(spec.timeout) as limit:
                return await tool.run(call.args, self._context(call, limit))
        except ToolError as error:
            return ToolOutput.text(error.sentence, failed=True)
        except TurnSuspended:
            raise
        except anyio.get_cancelled_exc_class():
            if cancelled_from_outside():
                raise
            log.exception("tool %s was cancelled from inside", call.name)
        except Exception:
            log.exception("tool %s crashed", call.name)
        else:
            late = f"{call.name} took longer than {spec.timeout:g} s and was stopped."
            return ToolOutput.text(late + effects, failed=True)
        return ToolOutput.text(f"{call.name} failed with an internal error.{effects}", failed=True)

    def _context(self, call: ToolCall, limit: anyio.CancelScope) -> ToolContext:
        spec = self._plan.tools[call.name].spec
        # An external runtime does not repeat its calls.
        again = isinstance(self._plan, Plan)
        # A foreign tool declared as reading may do more.
        own_reader = spec.effect is Effect.READ and not spec.foreign
        return _CallContext(
            self._plan,
            self._untrusted,
            self._emit,
            call,
            _CallTimer(limit),
            self._approval_state,
            approval_repeatable=again,
            question_repeatable=again and (spec.asks or own_reader),
        ).context()


class _ApprovalState:
    """Which calls wait for approval and which have it."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()
        self._approved: set[str] = set()

    @contextmanager
    def waiting(self, call: str) -> Generator[None]:
        """Count a call as waiting.

        It still counts after an interruption, because it has done nothing yet.
        """
        self._open[call] += 1
        yield
        self._open[call] -= 1

    def is_waiting(self, call: str) -> bool:
        """Whether it waits for approval and has done nothing yet."""
        return self._open[call] > 0 and call not in self._approved

    def approve(self, call: str) -> None:
        self._approved.add(call)

    def has_not_acted(self, call: str) -> bool:
        """Whether it has no approval yet: tools ask before they act."""
        return call not in self._approved


class _CallContext(Struct, frozen=True):
    plan: Plan | RuntimePlan
    untrusted: UntrustedContent
    emit: Emit
    call: ToolCall
    timer: "_CallTimer"
    approval_state: _ApprovalState
    # Whether the call can be run again if the process ends while it waits for an approval, or
    # for an answer (which some tools ask for after they have acted).
    approval_repeatable: bool = False
    question_repeatable: bool = False

    def context(self) -> ToolContext:
        return ToolContext(
            self.plan.scope,
            self.call.id,
            self.progress,
            self.request_approval,
            self.ask_person,
            self.call_tool,
            self.untrusted.present,
            self.sources,
            self.quotes,
            tools=self.plan.tools if isinstance(self.plan, Plan) else None,
        )

    async def progress(self, text: str) -> None:
        await self.emit(ToolProgress(self.call.id, text[-MAX_PROGRESS:]))

    async def call_tool(self, name: str, args: Raw) -> ToolOutput:
        other = self.plan.tools.get(name)
        if other is None or name == self.call.name:
            raise ToolError(f"{name} cannot be called from {self.call.name}.")
        call = ToolCall(self.call.id, name, args)
        with self.timer.paused():
            reason = await blocked_reason(self.plan, call)
        if reason:
            raise ToolError(reason)
        within = structs.replace(self.context(), nested=True)
        try:
            output = limit_output(await other.run(args, within))
        except ToolError as error:
            with self.timer.paused():
                await after_tool_call(self.plan, call, failed_result(call.id, error.sentence))
            raise
        self.untrusted.present |= output.foreign
        text = "".join(part.text for part in output.parts if isinstance(part, Text))
        self.untrusted.add_nested_result(call, text, output)
        result = Result("", call.id, output.parts, failed=output.failed)
        with self.timer.paused():
            await after_tool_call(self.plan, call, result)
        return output

    async def request_approval(self, request: ApprovalRequest) -> Decision:
        request = structs.replace(request, foreign=request.foreign or self.untrusted.present)
        approvals = self.plan.approvals
        if approvals is None:
            return await decide_unattended(request)
        with self.approval_state.waiting(self.call.id), self.timer.paused():
            scope = self._question_scope(again=self.approval_repeatable)
            decision = await approvals().decide(scope, request, self.emit)
        if decision.allowed:
            self.approval_state.approve(self.call.id)
        return decision

    async def ask_person(self, text: str, choices: Sequence[str]) -> str | None:
        approvals = self.plan.approvals
        if approvals is None:
            return await no_answer(text, choices)
        again = self.question_repeatable
        waits = self.approval_state.waiting(self.call.id) if again else nullcontext()
        with waits, self.timer.paused():
            scope = self._question_scope(again=again)
            return await approvals().ask_person(scope, text, choices, self.emit)

    def _question_scope(self, *, again: bool) -> Scope:
        fresh = again and self.approval_state.has_not_acted(self.call.id)
        return structs.replace(self.plan.scope, call=self.call.id) if fresh else self.plan.scope

    def sources(self, text: str) -> TextSources:
        return find_sources(text, *self._seen)

    def quotes(self, text: str) -> bool:
        return quotes_untrusted(text, *self._seen)

    @property
    def _seen(self) -> tuple[Sequence[Message], Mapping[str, Tool], Sequence[TextSource]]:
        messages = [*self.plan.history, *self.untrusted.messages]
        return messages, self.plan.tools, self.untrusted.nested_sources


class _CallTimer:
    """The time limit of one call, paused while waiting for a person."""

    def __init__(self, limit: anyio.CancelScope) -> None:
        self._limit = limit
        self._remaining = 0.0
        self._pauses = 0

    @contextmanager
    def paused(self) -> Generator[None]:
        """Pause the limit; with several questions, until the last one is answered."""
        if not self._pauses:
            self._remaining = self._limit.deadline - anyio.current_time()
            self._limit.deadline = math.inf
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses:
                self._limit.deadline = anyio.current_time() + self._remaining


def limit_output(output: ToolOutput) -> ToolOutput:
    """Cut oversized results, so that one call cannot fill the context window or the disk."""
    parts = output.parts
    size = sum(len(part.text) for part in parts if isinstance(part, Text))
    if len(parts) > MAX_PARTS or size > MAX_TEXT:
        kept = tuple(_leading_parts(parts[:MAX_PARTS]))
        missing = size - sum(len(part.text) for part in kept if isinstance(part, Text))
        cut = f"\n[… cut here: {missing:,} characters of {size:,} are missing]"
        parts = (*kept, Text(cut))
    shown = head_and_tail(output.shown, MAX_TEXT)
    return structs.replace(output, parts=parts, shown=shown)


def _leading_parts(parts: Sequence[Text | Media]) -> Iterator[Text | Media]:
    room = MAX_TEXT
    for part in parts:
        if isinstance(part, Media):
            yield part
        elif room > 0:
            yield Text(part.text[:room])
            room -= len(part.text)


def _invalid_reason(call: ToolCall) -> str:
    """Why the call cannot be run; empty if it can."""
    if call.broken == TRUNCATED_ARGUMENTS:
        return (
            "The answer reached the output limit inside this call, so nothing was run. "
            "Make the call shorter, or split it into several."
        )
    if call.broken:
        shown = one_line(call.broken, 300)
        return f"The arguments were not complete JSON, so nothing was run: {shown}"
    if not is_json_object(call.args):
        shown = one_line(bytes(call.args).decode("utf-8", "replace"), 300)
        return f"The arguments must be a JSON object, so nothing was run: {shown}"
    return ""


def interrupted_result(call: str, effect: Effect, *, started: bool) -> Result:
    """The result of a call whose outcome is unknown."""
    if not started:
        text = "Not run: the turn was interrupted before this call started."
    elif effect is Effect.READ:
        text = "Interrupted. Nothing was changed; run it again if it is still needed."
    else:
        text = (
            "Interrupted while running; the outcome is unknown. "
            "Check what it may have changed before repeating it."
        )
    return failed_result(call, text)


def failed_result(call: str, text: str) -> Result:
    return Result(new_id("msg"), call, (Text(text),), failed=True)
