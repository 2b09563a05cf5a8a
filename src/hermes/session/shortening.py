"""A session whose turns are run elsewhere is shortened there, by who remembers it."""

from hermes.agent.plan import Entrusted
from hermes.kit.clock import Clock
from hermes.ports.runtime import Errand, Shortens
from hermes.ports.store import Meter, Store
from hermes.schema.errors import UsageError
from hermes.session.compressing import Pressed, Wish
from hermes.session.recorder import Price


class Shortening:
    """What it costs is written down with the session."""

    def __init__(self, store: Store, clock: Clock, price: Price) -> None:
        self._store = store
        self._clock = clock
        self._price = price

    async def by_hand(self, plan: Entrusted, wish: Wish, *, preview: bool) -> Pressed:
        """Because a person wants it. Raises `UsageError` for what cannot be done there."""
        runtime, scope = plan.runtime, plan.scope
        if not isinstance(runtime, Shortens):
            raise UsageError("This session is not compressed here.")
        if preview or wish.focus or wish.turns is not None:
            raise UsageError(
                f"{runtime.name} chooses by itself what stays, and has no preview.",
                hint="/compress without more words has it done.",
            )
        specs = [plan.tools[name].spec for name in sorted(plan.tools)]
        done = await runtime.shorten(Errand(scope, plan.system, plan.history, tools=specs))
        model, usage = done.model, done.usage
        cost = self._price(model, done.provider, usage)
        now = self._clock.now()
        await self._store.commit(
            Meter(scope.session, scope.run, model, done.provider, usage, cost, now)
        )
        return Pressed(
            before=done.before,
            after=done.after,
            messages=len(plan.history),
            by=runtime.name,
            usage=usage,
            cost=cost,
        )
