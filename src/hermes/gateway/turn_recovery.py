"""What an earlier process left of a session: an answer to bring, or a turn to set aside."""

import logging
from collections.abc import Sequence
from datetime import timedelta

from hermes.agent.answers import final_text
from hermes.gateway.actor_deps import ActorDeps
from hermes.gateway.chat_runs import QueuedMessage, StartedTurn, format_duration
from hermes.gateway.replies import ReplyWriter
from hermes.kit.failpoints import failpoint
from hermes.ports.store import Store
from hermes.schema.scope import OWNER
from hermes.schema.sessions import Session

log = logging.getLogger(__name__)

RESUME_WINDOW = timedelta(minutes=10)

RESUMED_TOO_OFTEN = (
    "I was stopped in the middle of this {times} within ten minutes, so it may be what stops me, "
    "and it is set aside: I do not try again by myself. What was done so far is kept. "
)
POSSIBLE_CRASH_CAUSE = (
    "The program ended several times in a short while, and this was going on, so it is set aside: "
    "I do not try again by myself. What was done so far is kept. "
)
INTERRUPTED_LONG_AGO = (
    "I was interrupted in the middle of this {age} ago, and after so long I do not go on with it "
    "by myself. What was done so far is kept. "
)
NEXT_STEP = 'Say "go on" to have it tried once more, or ask for something else or smaller.'


async def find_started_turn(
    store: Store, session: Session, doubtful: Sequence[QueuedMessage]
) -> StartedTurn | None:
    """Those of them that an earlier run has heard, with what it made of them."""
    rows = await store.archive_for(OWNER).messages(session.id)
    known = {row.message.id for row in rows}
    heard = [held for held in doubtful if held.letter.user.id in known]
    if not heard:
        return None
    ids = {held.letter.user.id for held in heard}
    last = max(place for place, row in enumerate(rows) if row.message.id in ids)
    # What has no run was brought from elsewhere and answers nothing.
    after = [row for row in rows[last + 1 :] if row.run]
    return StartedTurn(heard, after, at=(after or rows[last : last + 1])[-1].at)


class TurnRecovery:
    """Of one session; a `suspect` is not taken up again where an earlier process left it."""

    def __init__(self, key: str, parts: ActorDeps, telling: ReplyWriter, *, suspect: bool) -> None:
        self._key = key
        self._parts = parts
        self._telling = telling
        self._suspect = suspect

    async def settle_if_finished(self, session: Session, begun: StartedTurn) -> bool:
        """Deliver an answer that was made but never posted; set a turn aside that loops."""
        resumed = begun.resumed_since(self._parts.clock.now() - RESUME_WINDOW)
        failpoint("actor.found_begun")
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
            why = (
                RESUMED_TOO_OFTEN.format(times=f"{resumed + 1} times")
                if resumed
                else POSSIBLE_CRASH_CAUSE
            )
            await self._set_aside(begun, why + NEXT_STEP)
            return True
        age = (self._parts.clock.now() - begun.at).total_seconds()
        if 0 < self._parts.rules.fresh < age:
            await self._set_aside(
                begun, INTERRUPTED_LONG_AGO.format(age=format_duration(age)) + NEXT_STEP
            )
            return True
        return False

    async def _set_aside(self, begun: StartedTurn, text: str) -> None:
        await self._telling.post(begun.batch, f"{begun.batch[0].key}:parked", text)
        for held in begun.batch:
            await self._parts.store.queues.park(held.key, text)
        await self._parts.runner.close_questions()
