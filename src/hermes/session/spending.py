"""Hard limits on money: by session, by day, by person. Asked before each request to a model.

The store sums up what sessions cost, not days. So the first request of a day notes what all of
them had cost until then; what is more than that was spent today.
"""

from collections.abc import Sequence
from datetime import timedelta

import msgspec
from msgspec import Raw, Struct

from hermes.agent.plan import Allowed
from hermes.kit.clock import Clock
from hermes.ports.matters import Matter, PutMatter
from hermes.ports.store import Store
from hermes.schema.errors import Overtaken, SpendCapReached
from hermes.schema.scope import OWNER
from hermes.schema.sessions import ModelUse, Session

KIND = "spent_before"
_KEPT = timedelta(days=3)


class Caps(Struct, frozen=True, kw_only=True):
    """In dollars; None is no limit."""

    session: float | None = None
    day: float | None = None
    principal: float | None = None

    def __bool__(self) -> bool:
        return any(cap is not None for cap in (self.session, self.day, self.principal))


class _Before(Struct, frozen=True):
    dollars: float


class Purse:
    def __init__(self, store: Store, clock: Clock, caps: Caps) -> None:
        self._store = store
        self._clock = clock
        self._caps = caps

    def of(self, session: Session, principal: str) -> Allowed | None:
        """None where nothing is limited."""
        if not self._caps:
            return None

        async def allowed() -> None:
            await self._check(session, principal)

        return allowed

    async def _check(self, session: Session, principal: str) -> None:
        caps = self._caps
        if caps.session is not None:
            uses = await self._store.seen_by(session.principal).usage(session.id)
            _refuse_beyond(caps.session, _dollars(uses), "this session", "usd_per_session")
        if caps.day is not None:
            spent = await self._today(OWNER, "everybody")
            _refuse_beyond(caps.day, spent, "today", "usd_per_day")
        if caps.principal is not None:
            spent = await self._today(principal, principal)
            _refuse_beyond(caps.principal, spent, "you today", "usd_per_principal")

    async def _today(self, principal: str, name: str) -> float:
        total = _dollars(await self._store.seen_by(principal).usage())
        day = f"{self._clock.now():%Y-%m-%d}:{name}"
        found = await self._store.matters.get(KIND, day)
        if found is None:
            found = await self._begin(day, total)
        # A session that was deleted meanwhile takes its costs along.
        return max(total - msgspec.json.decode(found.body, type=_Before).dollars, 0.0)

    async def _begin(self, day: str, total: float) -> Matter:
        now = self._clock.now()
        matter = Matter(
            kind=KIND,
            id=day,
            session="",
            state="noted",
            at=now,
            body=Raw(msgspec.json.encode(_Before(total))),
            open=False,
        )
        try:
            await self._store.commit(PutMatter(matter, was=""))
        except Overtaken:
            return await self._store.matters.get(KIND, day) or matter
        await self._store.matters.forget(KIND, now - _KEPT)
        return matter


def _dollars(uses: Sequence[ModelUse]) -> float:
    return sum(use.cost or 0.0 for use in uses)


def _refuse_beyond(cap: float, spent: float, what: str, setting: str) -> None:
    if spent >= cap:
        raise SpendCapReached(
            f"The limit of ${cap:,.2f} for {what} is reached (${spent:,.2f} spent).",
            hint=f"Raise it: hermes config set limits.{setting} <dollars>",
        )
