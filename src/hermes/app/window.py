"""What the model sees of a session of this profile: how much it is, and what is pinned to it."""

from collections.abc import Sequence

from hermes.agent.compression.sizes import (
    Limits,
    tokens_in,
    tokens_of_tools,
    trigger,
)
from hermes.agent.compression.view import Record
from hermes.agent.prompt import portions
from hermes.app.build import App
from hermes.commands.services import Filling
from hermes.schema.errors import UsageError
from hermes.schema.scope import Role, Scope
from hermes.schema.sessions import Session
from hermes.session.compressing import Pressed, Wish
from hermes.session.pins import Pins

_CHARACTERS = 4


class ThisWindow:
    """Looking changes nothing, and does not wait for a turn that is running."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._pins = Pins(app.store, app.clock)

    async def filling(self, session: Session, role: Role) -> Filling:
        app = self._app
        model = await app.models.model_for(session)
        rows = await app.store.seen_by(session.principal).messages(session.id)
        messages = [row.message for row in rows]
        compressing = app.runner.compressing
        record, limits = Record(), Limits()
        if compressing is not None:
            record, limits = await compressing.record(session), compressing.limits
            messages = await compressing.seen(session, messages)
        scope = Scope(
            profile=app.home.profile,
            session=session.id,
            run="",
            workspace=session.cwd,
            source=session.source,
            role=role,
        )
        specs = app.planner.listed(scope, model)
        prompt = portions(session.system)
        parts = {name: size // _CHARACTERS for name, size in prompt.items()}
        parts |= {"tools": tokens_of_tools(specs), "history": tokens_in(messages)}
        return Filling(
            window=model.window,
            trigger=trigger(limits, model.window, model.name, model.provider),
            parts=parts,
            times=record.times,
            cost=record.cost,
        )

    async def compress(self, session: Session, wish: Wish, *, preview: bool) -> Pressed:
        if self._app.runner.compressing is None:
            raise UsageError(
                "Compression is switched off.", hint="hermes config set compression.enabled true"
            )
        return await self._app.runner.compress(session, wish, preview=preview)

    async def pins(self, session: Session) -> Sequence[str]:
        return await self._pins.of(session.id)

    async def pin(self, session: Session, text: str) -> None:
        async with self._app.runner.holding(session.id) as lease:
            await self._pins.add(session.id, text, lease.fence)

    async def unpin(self, session: Session, number: int) -> str:
        async with self._app.runner.holding(session.id) as lease:
            return await self._pins.remove(session.id, number, lease.fence)
