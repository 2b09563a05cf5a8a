"""Another gateway as a runtime: as a run where it is one of ours, else as a chat completion."""

from collections.abc import Sequence

import msgspec

from hermes.kit.ids import new_id
from hermes.ports.runtime import Ending, Errand, Heard, Tell
from hermes.runtimes.proxy.afterwards import is_letter, late_words
from hermes.runtimes.proxy.capabilities import Probe
from hermes.runtimes.proxy.far_turn import FarTurn, NotOurs, Parts
from hermes.runtimes.proxy.runtime import ProxyRuntime
from hermes.runtimes.proxy.wire import MODEL, PROVIDER, asks
from hermes.schema.events import Outcome, Said
from hermes.schema.messages import Assistant, Message, Stop, Text


class FarRuntime:
    """Implements `ports.runtime.Runtime`; what the far side can do is asked once in a while."""

    name = "The far gateway"

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._plain = ProxyRuntime(parts.far)
        self._probe = Probe(parts.far, parts.clock)

    async def run(self, errand: Errand, tell: Tell) -> Ending:
        late = late_words(errand.messages)
        said = [message for message in errand.messages if not is_letter(message)]
        errand = msgspec.structs.replace(errand, messages=said)
        if not late:
            return await self._run(errand, tell)
        if not _asks_something(said):
            # All there is to answer was said by the far side itself: it is the answer.
            await tell(Said(_spoken(late)))
            return Ending(Outcome.DONE)

        async def after_it(event: Heard) -> None:
            if isinstance(event, Said) and isinstance(event.message, Assistant):
                parts = (Text(f"{late}\n\n"), *event.message.parts)
                event = Said(msgspec.structs.replace(event.message, parts=parts))
            await tell(event)

        return await self._run(errand, after_it)

    async def _run(self, errand: Errand, tell: Tell) -> Ending:
        able = await self._probe.abilities()
        if able.runs:
            try:
                return await FarTurn(self._parts, able, errand, tell).run()
            except NotOurs as error:
                # A chat completion does not say who asks: to one of ours that is the owner.
                if not await self._probe.is_plain():
                    raise error.refusal from error
        return await self._plain.run(errand, tell)

    async def close(self) -> None:
        """Nothing stays open between turns."""
        await self._plain.close()


def _asks_something(said: Sequence[Message]) -> bool:
    """Whether somebody waits for more than what the far side said by itself."""
    for message in reversed(said):
        if asks(message) or isinstance(message, Assistant):
            return asks(message)
    return False


def _spoken(text: str) -> Assistant:
    return Assistant(new_id("msg"), (Text(text),), Stop.END, model=MODEL, provider=PROVIDER)
