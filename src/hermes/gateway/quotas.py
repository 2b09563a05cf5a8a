"""How many turns somebody may still have; what was used before a restart counts."""

import math
from collections.abc import Callable
from datetime import timedelta

from hermes.gateway.letters import Letter, platform_of
from hermes.gateway.roles import DAY, HOUR, Powers, Quota, TooMany, TurnMeter
from hermes.kit.clock import Clock
from hermes.ports.store import Store
from hermes.schema.scope import Role


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
            await self._recall(letter.principal)
        refused = self._meter.take(letter.principal, quota)
        return _sentence(refused) if refused else ""

    async def _recall(self, principal: str) -> None:
        """The transcripts know when somebody's turns began, also those of an earlier process."""
        now = self._clock.now()
        turns = await self._store.seen_by(principal).turns(now - timedelta(seconds=DAY))
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
