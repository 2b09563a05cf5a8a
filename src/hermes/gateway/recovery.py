"""What an earlier process left of a session: an answer to bring, or a turn to set aside."""

import logging
from collections.abc import Sequence
from datetime import timedelta

from hermes.agent.answers import final_text
from hermes.gateway.idling import spoken
from hermes.gateway.runs import Begun, Held
from hermes.gateway.surroundings import Parts
from hermes.gateway.telling import Telling
from hermes.kit.failpoints import passing
from hermes.ports.store import Store
from hermes.schema.scope import OWNER
from hermes.schema.sessions import Session

log = logging.getLogger(__name__)

WINDOW = timedelta(minutes=10)

TAKEN_UP = (
    "I was stopped in the middle of this {times} within ten minutes, so it may be what stops me, "
    "and it is set aside: I do not try again by myself. What was done so far is kept. "
)
SUSPECT = (
    "The program ended several times in a short while, and this was going on, so it is set aside: "
    "I do not try again by myself. What was done so far is kept. "
)
STALE = (
    "I was interrupted in the middle of this {age} ago, and after so long I do not go on with it "
    "by myself. What was done so far is kept. "
)
WHAT_NOW = 'Say "go on" to have it tried once more, or ask for something else or smaller.'


async def find_begun(store: Store, session: Session, doubtful: Sequence[Held]) -> Begun | None:
    """Those of them that an earlier run has heard, with what it made of them."""
    rows = await store.seen_by(OWNER).messages(session.id)
    known = {row.message.id for row in rows}
    heard = [held for held in doubtful if held.letter.user.id in known]
    if not heard:
        return None
    ids = {held.letter.user.id for held in heard}
    last = max(place for place, row in enumerate(rows) if row.message.id in ids)
    # What has no run was brought from elsewhere and answers nothing.
    after = [row for row in rows[last + 1 :] if row.run]
    return Begun(heard, after, at=(after or rows[last : last + 1])[-1].at)


class Recovery:
    """Of one session; a `suspect` is not taken up again where an earlier process left it."""

    def __init__(self, key: str, parts: Parts, telling: Telling, *, suspect: bool) -> None:
        self._key = key
        self._parts = parts
        self._telling = telling
        self._suspect = suspect

    async def is_settled(self, session: Session, begun: Begun) -> bool:
        """Deliver an answer that was made but never posted; set a turn aside that loops."""
        resumed = begun.resumed_since(self._parts.clock.now() - WINDOW)
        passing("actor.found_begun")
        if begun.answered:
            async with self._parts.runner.holding(session.id) as lease:
                text = final_text([row.message for row in begun.after])
                key = f"{begun.batch[0].key}:recovered"
                await self._telling.settle(begun.batch, key, text, recovered=lease.fence)
            return True
        if self._suspect or resumed >= self._parts.rules.resumes:
            self._suspect = False
            log.error("session %s is set aside: it was taken up %d times", self._key, resumed)
            # The first time was no resumption.
            why = TAKEN_UP.format(times=f"{resumed + 1} times") if resumed else SUSPECT
            await self._set_aside(begun, why + WHAT_NOW)
            return True
        age = (self._parts.clock.now() - begun.at).total_seconds()
        if 0 < self._parts.rules.fresh < age:
            await self._set_aside(begun, STALE.format(age=spoken(age)) + WHAT_NOW)
            return True
        return False

    async def _set_aside(self, begun: Begun, text: str) -> None:
        await self._telling.post(begun.batch, f"{begun.batch[0].key}:parked", text)
        for held in begun.batch:
            await self._parts.store.lanes.park(held.key, text)
        await self._parts.runner.close_questions()
