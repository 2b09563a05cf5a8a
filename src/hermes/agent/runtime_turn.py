"""Run a turn in an external runtime and emit what it returns."""

from collections.abc import Sequence

import anyio
import anyio.lowlevel

from hermes.agent.history import History, has_content
from hermes.agent.hooks import hook_messages
from hermes.agent.plan import RuntimePlan
from hermes.agent.provenance import UntrustedContent
from hermes.agent.tool_calls import FinishedCall, ToolCallRunner
from hermes.ports.events import Emit
from hermes.ports.runtime import RuntimeEvent, RuntimeRequest, TurnEnd
from hermes.schema.errors import ModelError, UsageError
from hermes.schema.events import (
    Event,
    MessageAdded,
    Outcome,
    QuestionAnswered,
    QuestionAsked,
    RunStarted,
    ToolStarted,
)
from hermes.schema.messages import Assistant, Message, Result, ToolCall, Usage, User


class RuntimeTurn:
    """Messages sent meanwhile go to the runtime, or into a new request after its answer."""

    def __init__(self, plan: RuntimePlan, emit: Emit) -> None:
        self._plan = plan
        self._emit = emit
        past = plan.history
        self._history = past if isinstance(past, History) else History(past)
        self._untrusted = UntrustedContent(plan.tools)
        self.usage = Usage()
        self.steps = 0

    async def run(self, messages: Sequence[User]) -> TurnEnd:
        new = not self._history
        await self.emit_facts(RunStarted(self._plan.scope.run, self._plan.scope.session))
        if not messages:
            self._untrusted.resume(self._history)
        for message in messages:
            await self._add_message(message)
        for message in await hook_messages(self._plan, messages, new=new):
            await self._add_message(message)
        ending = await self._run_request()
        while ending.outcome is Outcome.DONE and await self._take_steering(ending.late_messages):
            ending = await self._run_request()
        return ending

    async def emit_facts(self, event: Event) -> None:
        """Emit a fact completely, even if the turn is being interrupted."""
        with anyio.CancelScope(shield=True):
            await self._emit(event)

    async def _run_request(self) -> TurnEnd:
        # Shielded work may have hidden a cancellation; do not start anything then.
        await anyio.lowlevel.checkpoint_if_cancelled()
        plan = self._plan
        messages = list(self._history)
        if not messages or isinstance(messages[-1], Assistant):
            raise UsageError("There is nothing to answer.", hint="Say something first.")
        specs = [plan.tools[name].spec for name in sorted(plan.tools)]
        runtime_request = RuntimeRequest(
            plan.scope,
            plan.system,
            messages,
            plan.steer,
            specs,
            self._run_tool,
            self._untrusted.present,
            self._mark_untrusted,
        )
        ending = await plan.runtime.run(runtime_request, self._forward)
        if ending.outcome is Outcome.DONE and not isinstance(self._history[-1], Assistant):
            raise ModelError(f"{plan.runtime.name} returned no answer.", hint="Try again.")
        return ending

    def _mark_untrusted(self) -> None:
        self._untrusted.present = True

    async def _forward(self, event: RuntimeEvent) -> None:
        match event:
            case MessageAdded(message=message):
                await self._add_message(message)
            case ToolStarted() | QuestionAsked() | QuestionAnswered():
                await self.emit_facts(event)
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
        await self.emit_facts(MessageAdded(message))
        self._history.add(message)
        self._untrusted.add(message)
        if isinstance(message, Assistant):
            self.usage += message.usage
            self.steps += 1

    async def _take_steering(self, late: Sequence[User]) -> bool:
        """Add what people said meanwhile; False if nothing."""
        new = (*late, *await self._plan.steer())
        messages = [message for message in new if has_content(message)]
        for message in messages:
            await self._add_message(message)
        return bool(messages)
