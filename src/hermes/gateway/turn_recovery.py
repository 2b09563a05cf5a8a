"""Recover a turn left by an earlier process: deliver its answer, resume it or park it."""

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from hermes.agent.answers import AnswerKind, classify_answer
from hermes.agent.prompts import prompt_text
from hermes.gateway.chat_runs import ActorRules, QueuedMessage, format_duration
from hermes.gateway.replies import ReplyWriter
from hermes.kit.clock import Clock
from hermes.kit.failpoints import failpoint
from hermes.ports.store import Store
from hermes.schema.messages import Assistant, Stop, Trust, User, final_text, text_of
from hermes.schema.scope import OWNER
from hermes.schema.sessions import Session, StoredMessage
from hermes.session.runner import Runner

log = logging.getLogger(__name__)

RESUME_WINDOW = timedelta(minutes=10)

RESUMED_TOO_OFTEN = (
    "I was interrupted {times} in ten minutes while working on this, so it may be the cause. "
    "I will not retry it on my own. The work so far is kept. "
)
POSSIBLE_CRASH_CAUSE = (
    "I crashed several times in a short time while working on this, so it may be the cause. "
    "I will not retry it on my own. The work so far is kept. "
)
INTERRUPTED_LONG_AGO = (
    "I was interrupted {age} ago while working on this, and after so long I will not continue "
    "on my own. The work so far is kept. "
)
NEXT_STEP = 'Say "go on" to try once more, or ask for something else or something smaller.'


class StartedTurn(Struct, frozen=True):
    """Messages that are in the transcript but not completed, and what follows them.

    `at` is the time of the last activity.
    """

    batch: Sequence[QueuedMessage]
    after: Sequence[StoredMessage]
    at: datetime

    @property
    def answered(self) -> bool:
        """Whether there is a complete answer; a cancelled one does not count."""
        last = self.after[-1].message if self.after else None
        if not isinstance(last, Assistant) or last.stop is Stop.CANCELLED:
            return False
        return classify_answer(last) is AnswerKind.FINAL

    def resumed_since(self, moment: datetime) -> int:
        note = prompt_text("resumed")
        recent = [row.message for row in self.after if row.at > moment]
        users = [message for message in recent if isinstance(message, User)]
        return sum(user.trust is Trust.PROGRAM and text_of(user) == note for user in users)


async def find_started_turn(
    store: Store, session: Session, doubtful: Sequence[QueuedMessage]
) -> StartedTurn | None:
    """Return the messages that an earlier run stored, with what followed them."""
    rows = await store.archive_for(OWNER).messages(session.id)
    known = {row.message.id for row in rows}
    stored = [queued for queued in doubtful if queued.message.user.id in known]
    if not stored:
        return None
    ids = {queued.message.user.id for queued in stored}
    last = max(index for index, row in enumerate(rows) if row.message.id in ids)
    # Rows without a run were added from elsewhere and are not part of an answer.
    after = [row for row in rows[last + 1 :] if row.run]
    return StartedTurn(stored, after, at=(after or rows[last : last + 1])[-1].at)


class TurnRecovery:
    def __init__(self, *, store: Store, clock: Clock, runner: Runner, replies: ReplyWriter) -> None:
        self._store = store
        self._clock = clock
        self._runner = runner
        self._replies = replies

    async def settle_if_finished(
        self, session: Session, started: StartedTurn, rules: ActorRules, *, suspect: bool
    ) -> bool:
        """Deliver an answer that was never posted, or park a turn that keeps crashing.

        The turn of a `suspect` session is not resumed.
        """
        resumed = started.resumed_since(self._clock.now() - RESUME_WINDOW)
        failpoint("actor.found_begun")
        if started.answered:
            async with self._runner.holding(session.id) as lease:
                text = final_text([row.message for row in started.after])
                key = f"{started.batch[0].key}:recovered"
                await self._replies.settle(started.batch, key, text, recovered=lease.fence)
            return True
        if suspect or resumed >= rules.resumes:
            log.error("session %s is parked: it was resumed %d times", session.key, resumed)
            # The first attempt was not a resumption.
            times = f"{resumed + 1} times"
            reason = RESUMED_TOO_OFTEN.format(times=times) if resumed else POSSIBLE_CRASH_CAUSE
            return await self._park(started, reason)
        age = (self._clock.now() - started.at).total_seconds()
        if 0 < rules.fresh < age:
            reason = INTERRUPTED_LONG_AGO.format(age=format_duration(age))
            return await self._park(started, reason)
        return False

    async def _park(self, started: StartedTurn, reason: str) -> bool:
        text = reason + NEXT_STEP
        await self._replies.post(started.batch, f"{started.batch[0].key}:parked", text)
        for queued in started.batch:
            await self._store.queues.park(queued.key, text, self._store.workers.own)
        await self._runner.close_questions()
        return True
