"""Another gateway as a runtime: as a run where it is one of ours, else as a chat completion."""

from collections.abc import Sequence

import msgspec

from hermes.kit.ids import new_id
from hermes.ports.runtime import EmitRuntimeEvent, RuntimeEvent, RuntimeRequest, TurnEnd
from hermes.runtimes.proxy.capabilities import CapabilityProbe
from hermes.runtimes.proxy.chat_protocol import MODEL, PROVIDER, is_question
from hermes.runtimes.proxy.chat_runtime import ChatRuntime
from hermes.runtimes.proxy.followups import followup_text, is_followup
from hermes.runtimes.proxy.remote_turn import RemoteTurn, RemoteTurnDeps, RunsUnsupported
from hermes.schema.events import MessageAdded, Outcome
from hermes.schema.messages import Assistant, Message, Stop, Text


class RemoteRuntime:
    """Implements `ports.runtime.Runtime`; what the far side can do is asked once in a while."""

    name = "The far gateway"

    def __init__(self, parts: RemoteTurnDeps) -> None:
        self._parts = parts
        self._plain = ChatRuntime(parts.far)
        self._probe = CapabilityProbe(parts.far, parts.clock)

    async def run(self, runtime_request: RuntimeRequest, tell: EmitRuntimeEvent) -> TurnEnd:
        late = followup_text(runtime_request.messages)
        said = [message for message in runtime_request.messages if not is_followup(message)]
        runtime_request = msgspec.structs.replace(runtime_request, messages=said)
        if not late:
            return await self._run(runtime_request, tell)
        if not _has_question(said):
            # All there is to answer was said by the far side itself: it is the answer.
            await tell(MessageAdded(_assistant_message(late)))
            return TurnEnd(Outcome.DONE)

        async def after_it(event: RuntimeEvent) -> None:
            if isinstance(event, MessageAdded) and isinstance(event.message, Assistant):
                parts = (Text(f"{late}\n\n"), *event.message.parts)
                event = MessageAdded(msgspec.structs.replace(event.message, parts=parts))
            await tell(event)

        return await self._run(runtime_request, after_it)

    async def _run(self, runtime_request: RuntimeRequest, tell: EmitRuntimeEvent) -> TurnEnd:
        able = await self._probe.abilities()
        if able.runs:
            try:
                return await RemoteTurn(self._parts, able, runtime_request, tell).run()
            except RunsUnsupported as error:
                # A chat completion does not say who asks: to one of ours that is the owner.
                if not await self._probe.is_chat_only():
                    raise error.refusal from error
        return await self._plain.run(runtime_request, tell)

    async def close(self) -> None:
        """Nothing stays open between turns."""
        await self._plain.close()


def _has_question(said: Sequence[Message]) -> bool:
    """Whether somebody waits for more than what the far side said by itself."""
    for message in reversed(said):
        if is_question(message) or isinstance(message, Assistant):
            return is_question(message)
    return False


def _assistant_message(text: str) -> Assistant:
    return Assistant(new_id("msg"), (Text(text),), Stop.END, model=MODEL, provider=PROVIDER)
