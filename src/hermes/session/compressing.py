"""Keep sessions within their models' windows: whether it is time, and who is asked then.

Most turns are short. What shortens long ones is loaded when the first of them needs it.
"""

from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING

from msgspec import Struct

from hermes.agent.compression.sizes import Limits, trigger
from hermes.agent.plan import Compress, Need, Plan
from hermes.agent.repair import History
from hermes.ports.store import Store
from hermes.schema.messages import Message, Usage
from hermes.schema.sessions import Session
from hermes.session.lease import Lease

if TYPE_CHECKING:
    from hermes.agent.compression.view import Record
    from hermes.session.pressing import Press

KIND = "view"
"""The matter that holds a session's view; its id is the session's."""


class Wish(Struct, frozen=True, kw_only=True):
    """What a person wants of it: attention to something, so many of the last turns kept."""

    focus: str = ""
    turns: int | None = None
    automatic: bool = False


class Pressed(Struct, frozen=True, kw_only=True):
    """What a pass did, or would do; tokens are estimates. `plain`: no model wrote the summary.

    `by` is the runtime that shortened its own memory of the session, where one did.
    """

    before: int
    after: int
    messages: int
    plain: bool = False
    by: str = ""
    usage: Usage = Usage()
    cost: float | None = 0.0


class Job(Struct, frozen=True):
    """One held session and what its turn runs with."""

    session: Session
    plan: Plan
    lease: Lease


class Compressing:
    """One for a profile. `make` gives what does the work, once."""

    def __init__(self, store: Store, limits: Limits, make: Callable[[Limits], "Press"]) -> None:
        self.limits = limits
        self._store = store
        self._make = make

    @cached_property
    def _press(self) -> "Press":
        return self._make(self.limits)

    async def record(self, session: Session) -> "Record":
        return await self._press.record(session)

    async def seen(self, session: Session, messages: list[Message]) -> list[Message]:
        """The transcript as the model is to see it."""
        for name in filter(None, (session.id, session.parent)):
            if await self._store.matters.get(KIND, name) is not None:
                return await self._press.seen(session, messages)
        return messages

    def trigger(self, plan: Plan) -> int:
        model = plan.model
        return trigger(self.limits, model.window, model.name, model.provider)

    def during(self, job: Job, instructions: str = "") -> Compress:
        """What a turn asks before each step; `instructions` stay below its prompt."""
        return partial(self._compressed, job, instructions)

    async def _compressed(
        self, job: Job, instructions: str, history: History, need: Need
    ) -> str | None:
        most = self.trigger(job.plan)
        if not need.refused and need.tokens < most and len(history) < self.limits.most:
            return None
        system = await self._press.when_needed(job, history, need)
        if system is None:
            return None
        return "\n\n".join(filter(None, [system, instructions]))

    async def by_hand(self, job: Job, wish: Wish) -> Pressed:
        """Because a person wants it, whatever went wrong before. Raises `UsageError`."""
        return await self._press.by_hand(job, wish)

    async def preview(self, session: Session, plan: Plan, wish: Wish) -> Pressed:
        """What `by_hand` would do, without doing it. Raises `UsageError`."""
        return await self._press.preview(session, plan, wish)
