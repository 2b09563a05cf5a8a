"""The sink of a run: facts are on disk before anybody hears of them."""

import logging
from collections.abc import Callable, Sequence

from hermes.kit.clock import Clock
from hermes.kit.failpoints import passing
from hermes.ports.sink import Emit
from hermes.ports.store import Append, Begin, Done, Fence, Intent, Meter, Settle, Store, Write
from hermes.schema.errors import LeaseLost
from hermes.schema.events import Event, RunEnded, Said, ToolStarted
from hermes.schema.messages import Assistant, Message, Result, Usage, User
from hermes.schema.scope import Scope
from hermes.schema.tools import Effect

log = logging.getLogger(__name__)

Price = Callable[[str, str, Usage], float | None]
"""Dollars for a model, its provider and the tokens used; None when the price is unknown."""

Closing = Callable[[RunEnded, Sequence[Message]], Sequence[Write]]
"""What is written together with a run's last word, from that and from all the run said."""


def nothing_more(ended: RunEnded, said: Sequence[Message]) -> Sequence[Write]:
    return ()


class Recorder:
    """Writes for one run, as long as it holds the lease of this generation."""

    def __init__(
        self, store: Store, clock: Clock, price: Price, scope: Scope, generation: int
    ) -> None:
        self._store = store
        self._clock = clock
        self._price = price
        self._scope = scope
        self._fence = Fence(scope.session, generation)

    def sink(self, answered: Sequence[str], listen: Emit, closing: Closing = nothing_more) -> Emit:
        """An `emit` that records, then tells `listen`.

        The end settles those of the `answered` parcels that came into the transcript.
        """
        said: list[Message] = []

        async def emit(event: Event) -> None:
            if isinstance(event, RunEnded):
                # The last word is heard even where nothing can be written any more.
                try:
                    recorded = {message.id for message in said}
                    settled = [Done(key) for key in answered if key in recorded]
                    passing("recorder.before_end")
                    await self._commit(*settled, *closing(event, said))
                    passing("recorder.after_end")
                except LeaseLost:
                    log.warning("run %s ended after it had lost its session", self._scope.run)
                finally:
                    await listen(event)
                return
            if writes := self._writes(event):
                await self._commit(*writes)
                passing("recorder.after_fact")
            if isinstance(event, Said):
                said.append(event.message)
                passing("recorder.after_said")
            await listen(event)

        return emit

    async def _commit(self, *writes: Write) -> None:
        await self._store.commit(*writes, fence=self._fence)

    def _writes(self, event: Event) -> list[Write]:
        match event:
            case Said(message=message):
                passing("recorder.before_said")
                return self._message(message)
            case ToolStarted(call=call, effect=effect) if effect is not Effect.READ:
                passing("recorder.before_intent")
                return [
                    Begin(
                        Intent(
                            call=call.id,
                            session=self._scope.session,
                            run=self._scope.run,
                            tool=call.name,
                            effect=effect,
                            at=self._clock.now(),
                        )
                    )
                ]
            case _:
                return []

    def _message(self, message: User | Assistant | Result) -> list[Write]:
        session, run, now = self._scope.session, self._scope.run, self._clock.now()
        writes: list[Write] = [Append(session, run, message, now)]
        if isinstance(message, Result):
            writes.append(Settle(session, message.call))
        elif isinstance(message, Assistant) and message.usage != Usage():
            cost = self._price(message.model, message.provider, message.usage)
            meter = Meter(session, run, message.model, message.provider, message.usage, cost, now)
            writes.append(meter)
        return writes
