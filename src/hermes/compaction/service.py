"""Keep sessions within their models' windows: whether it is time, and who is asked then.

Most turns are short. What shortens long ones is loaded when the first of them needs it.
"""

from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING

from msgspec import Struct

from hermes.agent.context_size import CompactionLimits, compaction_threshold
from hermes.agent.history import History
from hermes.agent.plan import CompactHistory, CompactionNeed, Plan, RuntimePlan
from hermes.kit.clock import Clock
from hermes.ports.runtime import RuntimeRequest, SupportsCompaction
from hermes.ports.store import RecordUsage, Store
from hermes.schema.errors import UsageError
from hermes.schema.messages import Message, Usage
from hermes.schema.sessions import Session
from hermes.session.lease import Lease
from hermes.session.recorder import PriceFunction

if TYPE_CHECKING:
    from hermes.compaction.compactor import Compactor
    from hermes.compaction.view import CompactionState

VIEW_KIND = "view"
"""The matter that holds a session's view; its id is the session's."""


class CompactionOptions(Struct, frozen=True, kw_only=True):
    """What a person wants of it: attention to something, so many of the last turns kept."""

    focus: str = ""
    turns: int | None = None
    automatic: bool = False


class CompactionResult(Struct, frozen=True, kw_only=True):
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


class CompactionJob(Struct, frozen=True):
    """One held session and what its turn runs with."""

    session: Session
    plan: Plan
    lease: Lease


class CompactionService:
    """One for a profile. `make` gives what does the work, once."""

    def __init__(
        self,
        store: Store,
        limits: CompactionLimits,
        make: Callable[[CompactionLimits], "Compactor"],
    ) -> None:
        self.limits = limits
        self._store = store
        self._make = make

    @cached_property
    def _press(self) -> "Compactor":
        return self._make(self.limits)

    async def record(self, session: Session) -> "CompactionState":
        return await self._press.record(session)

    async def seen(self, session: Session, messages: list[Message]) -> list[Message]:
        """The transcript as the model is to see it."""
        for name in filter(None, (session.id, session.parent)):
            if await self._store.records.get(VIEW_KIND, name) is not None:
                return await self._press.seen(session, messages)
        return messages

    def trigger(self, plan: Plan) -> int:
        model = plan.model
        return compaction_threshold(self.limits, model.window, model.name, model.provider)

    def during(self, job: CompactionJob, instructions: str = "") -> CompactHistory:
        """What a turn asks before each step; `instructions` stay below its prompt."""
        return partial(self._compressed, job, instructions)

    async def _compressed(
        self, job: CompactionJob, instructions: str, history: History, need: CompactionNeed
    ) -> str | None:
        most = self.trigger(job.plan)
        if not need.refused and need.tokens < most and len(history) < self.limits.most:
            return None
        system = await self._press.compact_if_needed(job, history, need)
        if system is None:
            return None
        return "\n\n".join(filter(None, [system, instructions]))

    async def by_hand(self, job: CompactionJob, wish: CompactionOptions) -> CompactionResult:
        """Because a person wants it, whatever went wrong before. Raises `UsageError`."""
        return await self._press.by_hand(job, wish)

    async def preview(
        self, session: Session, plan: Plan, wish: CompactionOptions
    ) -> CompactionResult:
        """What `by_hand` would do, without doing it. Raises `UsageError`."""
        return await self._press.preview(session, plan, wish)


class RuntimeCompactor:
    """What it costs is written down with the session."""

    def __init__(self, store: Store, clock: Clock, price: PriceFunction) -> None:
        self._store = store
        self._clock = clock
        self._price = price

    async def by_hand(
        self, plan: RuntimePlan, wish: CompactionOptions, *, preview: bool
    ) -> CompactionResult:
        """Because a person wants it. Raises `UsageError` for what cannot be done there."""
        runtime, scope = plan.runtime, plan.scope
        if not isinstance(runtime, SupportsCompaction):
            raise UsageError("This session is not compressed here.")
        if preview or wish.focus or wish.turns is not None:
            raise UsageError(
                f"{runtime.name} chooses by itself what stays, and has no preview.",
                hint="/compress without more words has it done.",
            )
        specs = [plan.tools[name].spec for name in sorted(plan.tools)]
        done = await runtime.compact(RuntimeRequest(scope, plan.system, plan.history, tools=specs))
        model, usage = done.model, done.usage
        cost = self._price(model, done.provider, usage)
        now = self._clock.now()
        await self._store.commit(
            RecordUsage(scope.session, scope.run, model, done.provider, usage, cost, now)
        )
        return CompactionResult(
            before=done.before,
            after=done.after,
            messages=len(plan.history),
            by=runtime.name,
            usage=usage,
            cost=cost,
        )
