"""The sink of a run: facts are on disk before anybody hears of them."""

from collections.abc import Callable, Sequence

from hermes.kit.clock import Clock
from hermes.ports.sink import Emit
from hermes.ports.store import Append, Begin, Done, Intent, Meter, Settle, Store, Write
from hermes.schema.events import Event, RunEnded, Said, ToolStarted
from hermes.schema.messages import Assistant, Result, Usage, User
from hermes.schema.scope import Scope
from hermes.schema.tools import Effect

Price = Callable[[str, str, Usage], float | None]
"""Dollars for a model, its provider and the tokens used; None when the price is unknown."""


class Recorder:
    def __init__(self, store: Store, clock: Clock, price: Price, scope: Scope) -> None:
        self._store = store
        self._clock = clock
        self._price = price
        self._scope = scope

    def sink(self, answered: Sequence[str], listen: Emit) -> Emit:
        """An `emit` that records, then tells `listen`.

        The end settles those of the `answered` parcels that came into the transcript.
        """
        recorded: set[str] = set()

        async def emit(event: Event) -> None:
            if isinstance(event, RunEnded):
                # The last word is heard even where nothing can be written any more.
                try:
                    await self._store.commit(*[Done(key) for key in answered if key in recorded])
                finally:
                    await listen(event)
                return
            if writes := self._writes(event):
                await self._store.commit(*writes)
            if isinstance(event, Said):
                recorded.add(event.message.id)
            await listen(event)

        return emit

    def _writes(self, event: Event) -> list[Write]:
        match event:
            case Said(message=message):
                return self._message(message)
            case ToolStarted(call=call, effect=effect) if effect is not Effect.READ:
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
