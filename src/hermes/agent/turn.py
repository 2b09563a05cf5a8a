"""Run one turn, ourselves or in an external runtime, until there is an answer.

Events are pushed into `emit`. The turn never yields inside a task group, so cancellation is
ordinary task cancellation and always unwinds in order.
"""

import logging
from collections.abc import Sequence
from typing import Generic, TypeVar

import anyio
import anyio.lowlevel
from msgspec import Struct, field
from msgspec.structs import replace

from hermes.agent.answers import (
    MAX_BAD_ANSWERS,
    NOTHING_CHANGED,
    AnswerKind,
    TurnEffects,
    add_shown,
    claims_change,
    classify_answer,
    no_answer,
    nudge,
    partial_answer,
    runnable_calls,
)
from hermes.agent.history import (
    CHARACTERS_PER_TOKEN,
    History,
    has_content,
    open_calls,
    request_tokens,
    with_unique_call_ids,
)
from hermes.agent.loop_guard import LoopGuard
from hermes.agent.plan import CompactionNeed, Plan, RuntimePlan, after_turn, hook_message
from hermes.agent.provenance import UntrustedContent
from hermes.agent.tool_calls import FinishedCall, ToolCallRunner, failed_result
from hermes.kit.tasks import cancelled_from_outside
from hermes.ports.approvals import TurnSuspended
from hermes.ports.model import UNCONSTRAINED, ModelRequest
from hermes.ports.runtime import RuntimeEvent, RuntimeRequest, TurnEnd
from hermes.ports.turn import Emit
from hermes.schema.errors import ContextTooLong, HermesError, ModelError, PolicyRefused, UsageError
from hermes.schema.events import (
    MessageAdded,
    Outcome,
    RunEnded,
    RunStarted,
    TextDelta,
)
from hermes.schema.messages import Assistant, Message, Result, Text, ToolCall, Usage, User, text_of
from hermes.schema.tools import ToolSpec

log = logging.getLogger(__name__)
AnyPlan = TypeVar("AnyPlan", Plan, RuntimePlan)

CLIENT_CALLS = "handed"
"""End code: the client runs the remaining calls; their results start the next turn."""

SUSPENDED = "put_off"
"""End code of a turn that continues after the next start."""

MAX_TOO_LONG = 3
"""How many requests of one turn may exceed the context window."""


async def run_turn(plan: Plan | RuntimePlan, messages: Sequence[User], emit: Emit) -> Outcome:
    """Run a turn and emit exactly one end event, even when cancelled.

    The request messages are emitted first, before anything can fail.
    """
    history = plan.history if isinstance(plan.history, History) else History(plan.history)
    parts = emit, history, UntrustedContent(plan.tools)
    turn = _Turn(plan, *parts) if isinstance(plan, Plan) else _RuntimeTurn(plan, *parts)
    ending = TurnEnd(Outcome.FAILED, "Hermes had an internal error; see the log.", "internal")
    try:
        ending = await turn.run(messages)
    except HermesError as error:
        wait = error.wait if isinstance(error, ModelError) else None
        ending = TurnEnd(Outcome.FAILED, error.sentence, error.code, retry_after=wait)
    except TurnSuspended:
        ending = TurnEnd(Outcome.CANCELLED, "Interrupted.", SUSPENDED)
    except anyio.get_cancelled_exc_class():
        if cancelled_from_outside():
            ending = TurnEnd(Outcome.CANCELLED, "Interrupted.", "cancelled")
            raise
        log.exception("the turn was cancelled from inside")
    finally:
        await emit(
            RunEnded(
                plan.scope.run,
                ending.outcome,
                ending.reason,
                ending.code,
                turn.usage,
                turn.steps,
                ending.retry_after,
            )
        )
        if plan.hooks is not None:
            await after_turn(plan.hooks, plan.scope, ending.outcome)
    return ending.outcome


class _BaseTurn(Struct, Generic[AnyPlan], eq=False):
    """The messages of a turn, each emitted before it is added to the history."""

    _plan: AnyPlan
    _emit: Emit
    _history: History
    _untrusted: UntrustedContent
    usage: Usage = Usage()
    steps: int = 0

    async def _begin(self, messages: Sequence[User]) -> None:
        scope, hooks, past = self._plan.scope, self._plan.hooks, self._history.size
        await self._emit(RunStarted(scope.run, scope.session))
        for message in messages:
            await self._add_message(message)
        if not messages:
            self._untrusted.resume(self._history)
        elif hooks is not None:
            context = await hook_message(hooks, scope, messages, new=not past)
            if context is not None:
                await self._add_message(context)

    async def _add_message(self, message: Message) -> None:
        await self._emit(MessageAdded(message))
        self._history.add(message)
        self._untrusted.add(message)

    async def _take_steering(self, late: Sequence[User] = ()) -> bool:
        """Add the messages that people sent meanwhile; return False if there are none."""
        new = (*late, *await self._plan.steer())
        messages = [message for message in new if has_content(message)]
        for message in messages:
            await self._add_message(message)
        return bool(messages)


class _Turn(_BaseTurn[Plan]):
    """Asks the model, runs its tool calls, and repeats until it is done."""

    _open: Sequence[ToolCall] = ()
    _guard: LoopGuard | None = None
    _client_tools: Sequence[str] = ()
    _specs: Sequence[ToolSpec] = ()
    _system: str = ""
    _tokens: int = 0
    """Of the request without its last messages: the provider's count, or an estimate."""
    _counted_size: int = 0
    """Characters of the history that `_tokens` contains."""
    _effects: TurnEffects = field(default_factory=TurnEffects)
    _too_long: int = 0
    _refunded: int = 0

    def __post_init__(self) -> None:
        plan = self._plan
        if plan.resumes_calls:
            self._open = open_calls(self._history)
        if not self._open:
            self._history.valid()
        # A stable order keeps the start of each request the same for the provider's cache.
        self._client_tools = tuple(spec.name for spec in plan.client_tools)
        listed = plan.tools.keys() - {*self._client_tools, *plan.unlisted}
        own = (plan.tools[name].spec for name in sorted(listed))
        self._specs, self._system = [*own, *plan.client_tools], plan.system
        if plan.compact is not None:
            self._tokens = request_tokens(self._system, self._specs, plan.prefill)
        can_change_files = any(tool.spec.changes_files for tool in plan.tools.values())
        self._effects = TurnEffects(plan.tools, can_change_files)

    async def run(self, messages: Sequence[User]) -> TurnEnd:
        await self._begin(messages)
        if self._open:
            await self._run_calls(self._open)
            if (ending := await self._after_calls()) is not None:
                return ending
        bad_answers = 0
        while self.steps - self._refunded < self._plan.steps:
            answer = await self._ask(self._specs)
            kind = classify_answer(answer)
            bad_answers = bad_answers + 1 if kind in {AnswerKind.EMPTY, AnswerKind.CUT_OFF} else 0
            if bad_answers > MAX_BAD_ANSWERS:
                return _bad_answers_end(kind)
            if (ending := await self._follow_up(kind, answer)) is not None:
                return ending
        return await self._summarize()

    async def _follow_up(self, kind: AnswerKind, answer: Assistant) -> TurnEnd | None:
        """Act on the answer; returns how the turn ends, or None to continue."""
        match kind:
            case AnswerKind.CALLS:
                calls = runnable_calls(answer)
                own = [call for call in calls if call.broken or call.name not in self._client_tools]
                await self._run_calls(own)
                self._refund(calls)
                if len(own) < len(calls):
                    return TurnEnd(Outcome.DONE, code=CLIENT_CALLS)
                return await self._after_calls()
            case AnswerKind.EMPTY:
                await self._add_message(nudge("empty"))
            case AnswerKind.CUT_OFF:
                await self._add_message(nudge("continue"))
            case AnswerKind.REFUSED:
                await self._skip_calls(answer.calls, "the provider declined the answer")
                error = PolicyRefused(
                    "The provider declined to answer this.",
                    hint="Rephrase it, or use another model.",
                )
                return TurnEnd(Outcome.FAILED, error.sentence, error.code)
            case AnswerKind.FINAL:
                if not await self._take_steering():
                    return TurnEnd(Outcome.DONE)
        return None

    def _refund(self, calls: Sequence[ToolCall]) -> None:
        """Do not count steps that replace many others, within limits."""
        tools = (self._plan.tools.get(call.name) for call in calls)
        if self._refunded < self._plan.steps and all(it and it.spec.refunded for it in tools):
            self._refunded += 1

    async def _after_calls(self) -> TurnEnd | None:
        """Add messages that people sent meanwhile, which reset the loop guard; then check it."""
        if await self._take_steering():
            self._guard = None
        elif self._guard is not None and self._guard.verdict:
            reason = f"Stopped because {self._guard.verdict}. Tell me how to continue."
            return TurnEnd(Outcome.FAILED, reason, "loop")
        return None

    async def _summarize(self) -> TurnEnd:
        """All steps are used: ask once more, without tools, for a status summary."""
        reason = f"The limit of {self._plan.steps} steps was reached."
        await self._add_message(nudge("exhausted"))
        try:
            answer = await self._ask([])
        except ModelError as error:
            reason = f"{reason} The closing summary failed: {error.sentence}"
        else:
            await self._skip_calls(answer.calls, "the turn has used all its steps")
        return TurnEnd(Outcome.EXHAUSTED, reason, "steps")

    async def _skip_calls(self, calls: Sequence[ToolCall], why: str) -> None:
        for call in calls:
            await self._add_message(failed_result(call.id, f"Not run: {why}."))

    async def _run_calls(self, calls: Sequence[ToolCall]) -> None:
        guard = self._guard = self._guard or LoopGuard(self._plan.guard)

        async def report(finished: FinishedCall) -> None:
            result = guard.observe(finished.call, finished.effect, finished.result, finished.took)
            self._effects.add(finished.call, result)
            await self._add_message(result)

        await ToolCallRunner(self._plan, calls, self._emit, report, self._untrusted).run()
        guard.end_step()

    async def _ask(self, specs: Sequence[ToolSpec]) -> Assistant:
        """Return the model's answer, stored; a request that is too long is compacted once more."""
        while True:
            # Shielded work may have hidden a cancellation; check before starting a request.
            await anyio.lowlevel.checkpoint_if_cancelled()
            if self._plan.check_spend is not None:
                await self._plan.check_spend()
            added = max(self._history.size - self._counted_size, 0) // CHARACTERS_PER_TOKEN
            tokens, limit = self._tokens + added, self._plan.max_tokens
            if tokens >= limit or len(self._history) >= self._plan.max_messages:
                await self._compact(tokens)
            request, model = self._request(specs), self._plan.model
            answer: Assistant | None = None
            shown: list[str] = []
            try:
                async with model.stream(request) as chunks:
                    async for chunk in chunks:
                        if isinstance(chunk, Assistant):
                            answer = chunk
                            break
                        add_shown(shown, chunk)
                        await self._emit(chunk)
                if answer is None:
                    raise no_answer(model)  # noqa: TRY301 - what was shown is stored
            except BaseException as error:
                await self._keep_partial(answer or partial_answer(model, "".join(shown)))
                is_too_long = isinstance(error, ContextTooLong)
                self._too_long += is_too_long
                may_retry = is_too_long and self._too_long <= MAX_TOO_LONG
                if not may_retry or not await self._compact(tokens, rejected=True):
                    raise
            else:
                return await self._add_answer(await self._checked(answer))

    async def _checked(self, answer: Assistant) -> Assistant:
        """Add a note to an answer that claims changes to files although no file changed."""
        effects, constraints = self._effects, self._plan.constraints
        if not effects.can_change_files or effects.others or constraints != UNCONSTRAINED:
            return answer
        if classify_answer(answer) is not AnswerKind.FINAL or not claims_change(text_of(answer)):
            return answer
        if effects.files and await self._plan.files_changed() is not False:
            return answer
        note = f"\n\n({NOTHING_CHANGED})"
        await self._emit(TextDelta(note))
        return replace(answer, parts=(*answer.parts, Text(note)))

    async def _compact(self, tokens: int, *, rejected: bool = False) -> bool:
        """Compact the history. False if nothing changed."""
        if self._plan.compact is None:
            return False
        need = CompactionNeed(tokens, self._emit, rejected)
        system = await self._plan.compact(self._history, need)
        if system is None:
            return False
        self._system = system
        self._tokens = request_tokens(self._system, self._specs, self._plan.prefill)
        self._counted_size = 0
        return True

    def _request(self, specs: Sequence[ToolSpec]) -> ModelRequest:
        history = self._history.valid()
        if not history or isinstance(history[-1], Assistant):
            raise UsageError("There is nothing to answer.", hint="Send a message first.")
        self.steps += 1
        plan = self._plan
        return ModelRequest(
            self._system,
            [*plan.prefill, *history] if plan.prefill else history,
            specs,
            effort=plan.effort,
            run=plan.scope.run,
            constraints=plan.constraints,
        )

    async def _keep_partial(self, partial: Assistant | None) -> None:
        """Keep the part of a failed answer that was already shown."""
        if partial is not None:
            answer = await self._add_answer(partial)
            await self._skip_calls(answer.calls, "the turn was interrupted before this call")

    async def _add_answer(self, answer: Assistant) -> Assistant:
        if answer.calls:
            answer = with_unique_call_ids(answer, set(self._history.call_ids))
        self.usage += answer.usage
        await self._add_message(answer)
        if answer.usage.input:
            self._tokens = answer.usage.input + answer.usage.output
            self._counted_size = self._history.size
        return answer


def _bad_answers_end(kind: AnswerKind) -> TurnEnd:
    problem = "was empty" if kind is AnswerKind.EMPTY else "was cut off"
    return TurnEnd(
        Outcome.FAILED,
        f"The model's answer {problem} {MAX_BAD_ANSWERS + 1} times in a row. "
        "Try again, or choose another model: hermes model",
        "empty" if kind is AnswerKind.EMPTY else "truncated",
    )


class _RuntimeTurn(_BaseTurn[RuntimePlan]):
    """Messages sent meanwhile go to the runtime, or into a new request after its answer."""

    async def run(self, messages: Sequence[User]) -> TurnEnd:
        await self._begin(messages)
        ending = await self._run_request()
        while ending.outcome is Outcome.DONE and await self._take_steering(ending.late_messages):
            ending = await self._run_request()
        return ending

    async def _run_request(self) -> TurnEnd:
        # Shielded work may have hidden a cancellation; check before starting anything.
        await anyio.lowlevel.checkpoint_if_cancelled()
        plan = self._plan
        messages = list(self._history)
        if not messages or isinstance(messages[-1], Assistant):
            raise UsageError("There is nothing to answer.", hint="Send a message first.")
        request = RuntimeRequest(
            plan.scope,
            plan.system,
            messages,
            plan.steer,
            [plan.tools[name].spec for name in sorted(plan.tools)],
            self._run_tool,
            self._untrusted.present,
            self._mark_untrusted,
        )
        ending = await plan.runtime.run(request, self._forward)
        if ending.outcome is Outcome.DONE and not isinstance(self._history[-1], Assistant):
            raise ModelError(f"{plan.runtime.name} returned no answer.", hint="Try again.")
        return ending

    def _mark_untrusted(self) -> None:
        self._untrusted.present = True

    async def _forward(self, event: RuntimeEvent) -> None:
        match event:
            case MessageAdded(message=message):
                await self._add_message(message)
            case _:
                await self._emit(event)

    async def _run_tool(self, call: ToolCall) -> Result:
        """Run one of our tools for the runtime, as in a turn of our own."""
        results: list[Result] = []

        async def keep(finished: FinishedCall) -> None:
            results.append(finished.result)

        await ToolCallRunner(self._plan, [call], self._emit, keep, self._untrusted).run()
        self._untrusted.tool_used(call.name)
        return results[0]

    async def _add_message(self, message: Message) -> None:
        await super()._add_message(message)
        if isinstance(message, Assistant):
            self.usage += message.usage
            self.steps += 1
