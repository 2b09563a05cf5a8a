"""Run turns on another gateway: as runs if it is a Hermes gateway, or as chat completions."""

from collections.abc import Sequence

import msgspec

from hermes.kit.ids import new_id
from hermes.ports.runtime import EmitRuntimeEvent, RuntimeEvent, RuntimeRequest, TurnEnd
from hermes.runtimes.proxy.chat_runtime import MODEL, PROVIDER, ChatRuntime, is_question
from hermes.runtimes.proxy.followups import followup_text, is_followup
from hermes.runtimes.proxy.gateway_client import CapabilityProbe
from hermes.runtimes.proxy.remote_turn import RemoteTurn, RemoteTurnDeps, RunsUnsupported
from hermes.schema.events import MessageAdded, Outcome
from hermes.schema.messages import Assistant, Message, Stop, Text


class RemoteRuntime:
    """Implements `ports.runtime.Runtime`, depending on what the remote gateway supports."""

    name = "The remote gateway"

    def __init__(self, deps: RemoteTurnDeps) -> None:
        self._deps = deps
        self._plain = ChatRuntime(deps.remote)
        self._probe = CapabilityProbe(deps.remote, deps.clock)

    async def run(self, runtime_request: RuntimeRequest, emit: EmitRuntimeEvent) -> TurnEnd:
        late = followup_text(runtime_request.messages)
        messages = [message for message in runtime_request.messages if not is_followup(message)]
        runtime_request = msgspec.structs.replace(runtime_request, messages=messages)
        if not late:
            return await self._run(runtime_request, emit)
        if not _has_question(messages):
            # There is nothing else to answer, so the followups are the answer.
            parts = (Text(late),)
            answer = Assistant(new_id("msg"), parts, Stop.END, model=MODEL, provider=PROVIDER)
            await emit(MessageAdded(answer))
            return TurnEnd(Outcome.DONE)

        async def emit_after_followups(event: RuntimeEvent) -> None:
            if isinstance(event, MessageAdded) and isinstance(event.message, Assistant):
                parts = (Text(f"{late}\n\n"), *event.message.parts)
                event = MessageAdded(msgspec.structs.replace(event.message, parts=parts))
            await emit(event)

        return await self._run(runtime_request, emit_after_followups)

    async def _run(self, runtime_request: RuntimeRequest, emit: EmitRuntimeEvent) -> TurnEnd:
        capabilities = await self._probe.capabilities()
        if capabilities.runs:
            try:
                return await RemoteTurn(self._deps, capabilities, runtime_request, emit).run()
            except RunsUnsupported as error:
                # A chat completion has no role: a Hermes gateway would treat it as its owner's.
                if not await self._probe.is_chat_only():
                    raise error.error from error
        return await self._plain.run(runtime_request, emit)

    async def close(self) -> None:
        """Do nothing: there are no connections between turns."""
        await self._plain.close()


def _has_question(messages: Sequence[Message]) -> bool:
    """Return whether there is a message to answer besides the followups."""
    for message in reversed(messages):
        if is_question(message) or isinstance(message, Assistant):
            return is_question(message)
    return False
