"""How many turns somebody may still have; what was used before a restart counts."""

import math
from collections.abc import Callable
from datetime import timedelta

from msgspec import Raw

from hermes.gateway.letters import Letter, platform_of
from hermes.gateway.roles import DAY, HOUR, Powers, Quota, TooMany, TurnMeter
from hermes.kit.clock import Clock
from hermes.ports.matters import Matter, PutMatter
from hermes.ports.store import Store
from hermes.schema.scope import Role

KIND = "turn_taken"


class Quotas:
    """`powers` says what a role may do on a platform."""

    def __init__(self, store: Store, clock: Clock, powers: Callable[[str, Role], Powers]) -> None:
        self._store = store
        self._clock = clock
        self._powers = powers
        self._meter = TurnMeter(clock)

    async def refusal(self, letter: Letter) -> str:
        """Why this turn may not begin now; empty when it may, and it is then counted."""
        quota = self._powers(platform_of(letter.address.channel), letter.role).quota
        if quota == Quota():
            return ""
        if not self._meter.knows(letter.principal):
            await self._recall(letter.principal, quota)
        refused = self._meter.take(letter.principal, quota)
        if refused is not None:
            return _sentence(refused)
        await self._store.commit(self._taken(letter))
        return ""

    def _taken(self, letter: Letter) -> PutMatter:
        """Under who asked, for in a shared chat the session may be somebody else's."""
        matter = Matter(
            kind=KIND,
            id=letter.user.id,
            session=letter.principal,
            state="taken",
            at=self._clock.now(),
            body=Raw(b"null"),
            open=False,
        )
        return PutMatter(matter)

    async def _recall(self, principal: str, quota: Quota) -> None:
        """When somebody's turns began, also those of an earlier process."""
        now, matters = self._clock.now(), self._store.matters
        await matters.forget(KIND, now - timedelta(seconds=DAY))
        most = max(quota.per_hour or 0, quota.per_day or 0)
        turns = [one.at for one in await matters.find(KIND, session=principal, limit=most)]
        if self._meter.knows(principal):
            # Meanwhile another chat of the same person was counted.
            return
        self._meter.recall(principal, [(now - at).total_seconds() for at in turns])


def _sentence(refused: TooMany) -> str:
    window = {HOUR: "an hour", DAY: "a day"}[refused.window]
    minutes = max(1, math.ceil(refused.wait / 60))
    wait = f"{minutes} minutes" if minutes > 1 else "a minute"
    if minutes > 120:
        wait = f"{math.ceil(minutes / 60)} hours"
    return f"You may ask {refused.limit} times in {window} here. Try again in {wait}."
