"""Decide when a session needs compaction, and run it.

The compactor is imported and built on first use, since most turns are short.
"""

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct

from hermes.agent.history import CompactionLimits, History
from hermes.agent.plan import CompactionNeed, Plan, RuntimePlan
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

"""Kind of the record with a session's view; its id is the session's."""


class CompactionOptions(Struct, frozen=True, kw_only=True):
    """What to compact, as requested by a person or the automatic trigger."""

    focus: str = ""  # what the summary should pay attention to
    turns: int | None = None  # how many of the last turns to keep
    automatic: bool = False


class CompactionResult(Struct, frozen=True, kw_only=True):
    """What a pass did, or would do. Token counts are estimates."""

    before: int
    after: int
    messages: int
    plain: bool = False  # the summary was written without a model
    by: str = ""  # the runtime that compacted its own context, if one did
    usage: Usage = Usage()
    cost: float | None = 0.0


class CompactionJob(Struct, frozen=True):
    """A leased session and the plan of its turn."""

    session: Session
    plan: Plan
    lease: Lease


class CompactionService(Struct, dict=True):
    """Compaction for one profile; `make` builds the compactor on first use."""

    _store: Store
    limits: CompactionLimits
    _make: Callable[[CompactionLimits], "Compactor"]

    @cached_property
    def _compactor(self) -> "Compactor":
        return self._make(self.limits)

    async def state(self, session: Session) -> "CompactionState":
        return await self._compactor.state(session)

    async def visible_messages(self, session: Session, messages: list[Message]) -> list[Message]:
        """The transcript as the model sees it."""
        for name in filter(None, (session.id, session.parent)):
            if await self._store.compaction.view(name) is not None:
                return await self._compactor.visible_messages(session, messages)
        return messages

    async def compact(
        self, job: CompactionJob, instructions: str, history: History, need: CompactionNeed
    ) -> str | None:
        """Compact the history of a turn that needs it; `instructions` stay in its prompt."""
        system = await self._compactor.compact_if_needed(job, history, need)
        if system is None:
            return None
        return "\n\n".join(filter(None, [system, instructions]))

    async def compact_now(self, job: CompactionJob, options: CompactionOptions) -> CompactionResult:
        """Compact on a person's request, ignoring earlier failures. Raises `UsageError`."""
        return await self._compactor.compact_now(job, options)

    async def preview(
        self, session: Session, plan: Plan, options: CompactionOptions
    ) -> CompactionResult:
        """What `compact_now` would do. Raises `UsageError`."""
        return await self._compactor.preview(session, plan, options)


async def compact_runtime(
    plan: RuntimePlan,
    options: CompactionOptions,
    *,
    preview: bool,
    store: Store,
    clock: Clock,
    price: PriceFunction,
) -> CompactionResult:
    """Let a runtime compact its own context on a person's request, and record the cost.

    Raises `UsageError` for what the runtime cannot do.
    """
    runtime, scope = plan.runtime, plan.scope
    if not isinstance(runtime, SupportsCompaction):
        raise UsageError("Compaction is disabled for this session.")
    if preview or options.focus or options.turns is not None:
        raise UsageError(
            f"{runtime.name} chooses what to keep by itself and has no preview.",
            hint="Use /compress without arguments.",
        )
    specs = [plan.tools[name].spec for name in sorted(plan.tools)]
    request = RuntimeRequest(scope, plan.system, plan.history, tools=specs)
    result = await runtime.compact(request)
    spent = result.model, result.provider, result.usage
    cost, now = price(*spent), clock.now()
    await store.commit(RecordUsage(scope.session, scope.run, *spent, cost, now))
    return CompactionResult(
        before=result.before,
        after=result.after,
        messages=len(plan.history),
        by=runtime.name,
        usage=result.usage,
        cost=cost,
    )
