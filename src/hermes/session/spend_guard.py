"""Enforce spending limits per session, day and person before each model request.

The store totals costs by session, not by day. The first request of a day records the total
so far; anything above it was spent that day.
"""

from collections.abc import Sequence
from datetime import timedelta
from functools import partial

from msgspec import Struct

from hermes.agent.plan import CheckSpend
from hermes.kit.clock import Clock
from hermes.ports.run_records import AddSpendBefore
from hermes.ports.store import Store
from hermes.schema.errors import SpendCapReached, StateConflict
from hermes.schema.scope import OWNER
from hermes.schema.sessions import ModelUsage, Session

EVERYBODY = "everybody"
"""The name under which the spending of all people is recorded."""
_RETENTION = timedelta(days=3)


class SpendCaps(Struct, frozen=True, kw_only=True):
    """In dollars; None means no limit."""

    session: float | None = None
    day: float | None = None
    principal: float | None = None


def both_checks(first: CheckSpend | None, second: CheckSpend | None) -> CheckSpend | None:
    """Combine two checks."""
    if first is None or second is None:
        return first or second

    async def check() -> None:
        await first()
        await second()

    return check


class SpendGuard:
    def __init__(self, store: Store, clock: Clock, caps: SpendCaps) -> None:
        self._store = store
        self._clock = clock
        self._caps = caps

    def check_for(self, session: Session, principal: str) -> CheckSpend | None:
        """The check to run before each request; None if nothing is limited."""
        return None if self._caps == SpendCaps() else partial(self._check, session, principal)

    async def _check(self, session: Session, principal: str) -> None:
        caps = self._caps
        if caps.session is not None:
            uses = await self._store.archive_for(session.principal).usage(session.id)
            _check_cap(caps.session, _dollars(uses), "this session", "usd_per_session")
        if caps.day is not None:
            spent = await self._today(OWNER, EVERYBODY)
            _check_cap(caps.day, spent, "today", "usd_per_day")
        if caps.principal is not None:
            spent = await self._today(principal, principal)
            _check_cap(caps.principal, spent, "you today", "usd_per_principal")

    async def _today(self, principal: str, name: str) -> float:
        total = _dollars(await self._store.archive_for(principal).usage())
        day = f"{self._clock.now():%Y-%m-%d}"
        before = await self._store.runs.spend_before(day, name)
        if before is None:
            before = await self._record_day(day, name, total)
        # Deleting a session removes its costs, so the difference may be negative.
        return max(total - before, 0.0)

    async def _record_day(self, day: str, name: str, total: float) -> float:
        try:
            await self._store.commit(AddSpendBefore(day, name, total))
        except StateConflict:
            stored = await self._store.runs.spend_before(day, name)
            return total if stored is None else stored
        await self._store.runs.forget_spend(f"{self._clock.now() - _RETENTION:%Y-%m-%d}")
        return total


async def spent_today(store: Store, clock: Clock, principal: str, name: str) -> float:
    """Dollars since midnight UTC; 0 if no request was checked against a limit of this name."""
    before = await store.runs.spend_before(f"{clock.now():%Y-%m-%d}", name)
    if before is None:
        return 0.0
    return max(_dollars(await store.archive_for(principal).usage()) - before, 0.0)


def _dollars(uses: Sequence[ModelUsage]) -> float:
    return sum(use.cost or 0.0 for use in uses)


def _check_cap(cap: float, spent: float, what: str, setting: str) -> None:
    if spent >= cap:
        raise SpendCapReached(
            f"The limit of ${cap:,.2f} for {what} has been reached (${spent:,.2f} spent).",
            hint=f"Raise it: hermes config set limits.{setting} <dollars>",
        )
