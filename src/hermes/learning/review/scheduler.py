"""Schedule reviews after turns, and notify the person about their results."""

import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from enum import StrEnum

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct

from hermes.learning.diffs import change_text
from hermes.learning.provenance import REVIEW_SOURCE
from hermes.learning.review.reviewer import ReviewDeps, ReviewedTurn, Reviewer, ReviewResult
from hermes.learning.review.triggers import (
    DueReviews,
    ReviewIntervals,
    ReviewTriggers,
    replay_triggers,
)
from hermes.ports.ledger import Change, Proposal
from hermes.schema.events import Outcome, RunEnded
from hermes.schema.scope import OWNER, Role
from hermes.session.turn_request import TurnRequest

log = logging.getLogger(__name__)

MAX_CONCURRENT = 2
MAX_SESSIONS = 256
MAX_WAITING = 1_000
"""How many sessions may wait for a review; further ones are counted with their next turn."""
EXCLUDED_SOURCES = frozenset({REVIEW_SOURCE, "subagent", "cron"})
"""Sessions without a person."""

NotifyReview = Callable[[ReviewedTurn, str], Awaitable[None]]
_MAX_SHOWN = 3


class NotificationLevel(StrEnum):
    OFF = "off"
    ON = "on"
    VERBOSE = "verbose"


def review_notice(result: ReviewResult, how: NotificationLevel) -> str:
    """Empty when there is nothing to report or notifications are off."""
    if how is NotificationLevel.OFF or not result:
        return ""
    parts = [_change_label(change) for change in result.changes[:_MAX_SHOWN]]
    if (more := len(result.changes) - _MAX_SHOWN) > 0:
        parts.append(f"{more} more")
    if result.proposals:
        proposals = ", ".join(map(_change_label, result.proposals[:_MAX_SHOWN]))
        parts.append(f"needs your decision: {proposals}")
    line = f"💾 Review: {'; '.join(parts)}. See /changes."
    if how is NotificationLevel.VERBOSE:
        line = "\n".join([line, *(change_text(change) for change in result.changes)])
    return line


def _change_label(item: Change | Proposal) -> str:
    sources = (
        f" (content from others: {', '.join(item.origin.sources)})" if item.origin.sources else ""
    )
    return f"{item.kind} {item.summary}{sources}"


class ReviewRules(Struct, frozen=True, kw_only=True):
    """`memory` and `skills` say what to review; `timeout` is for a whole review."""

    intervals: ReviewIntervals = ReviewIntervals()
    memory: bool = True
    skills: bool = True
    timeout: float = 600.0
    notifications: NotificationLevel = NotificationLevel.ON


class _SessionCounter(Struct):
    triggers: ReviewTriggers
    seq: int = 0


class ReviewScheduler:
    """Runs one review per session and few in total; never delays a turn.

    Waiting sessions are queued in memory without a task each, since many turns may end together.
    The queue is not stored: a review that has not started when the process ends is dropped.
    """

    def __init__(
        self, deps: ReviewDeps, rules: ReviewRules, notify: NotifyReview, group: TaskGroup
    ) -> None:
        self._deps = deps
        self._rules = rules
        self._notify = notify
        self._group = group
        self._reviewer = Reviewer(deps)
        self._waiting: deque[ReviewedTurn] = deque()
        self._workers = 0
        self._active: set[str] = set()
        self._counted: OrderedDict[str, _SessionCounter] = OrderedDict()

    @property
    def active_sessions(self) -> frozenset[str]:
        return frozenset(self._active)

    def turn_ended(self, turn: TurnRequest, ended: RunEnded) -> None:
        """Call when a turn's answer is on its way. Only the owner's turns are reviewed."""
        source = turn.source or turn.session.source
        intervals = self._rules.intervals
        if not intervals.memory and not intervals.skills:
            return
        if ended.outcome is not Outcome.DONE or turn.role is not Role.OWNER:
            return
        if (
            turn.no_tools or turn.client_tools
        ):  # the session is controlled by a program with its own tools
            return
        if source in EXCLUDED_SOURCES or turn.session.id in self._active:
            return
        if len(self._waiting) >= MAX_WAITING:
            return
        reviewed = ReviewedTurn(
            session=turn.session.id,
            principal=turn.principal or turn.session.principal,
            source=source,
            address=turn.address,
        )
        self._active.add(reviewed.session)
        self._waiting.append(reviewed)
        if self._workers < MAX_CONCURRENT:
            self._workers += 1
            self._group.start_soon(self._work)

    async def _work(self) -> None:
        try:
            while self._waiting:
                await self._review_if_due(self._waiting.popleft())
        finally:
            self._workers -= 1

    async def _review_if_due(self, reviewed: ReviewedTurn) -> None:
        try:
            with anyio.move_on_after(self._rules.timeout) as limit:
                if due := await self._due(reviewed.session):
                    result = await self._reviewer.review(reviewed, due)
                    if text := review_notice(result, self._rules.notifications):
                        await self._notify(reviewed, text)
            if limit.cancelled_caught:
                log.warning("the review of session %s took too long", reviewed.session)
        except Exception:
            log.exception("the review of session %s failed", reviewed.session)
        finally:
            self._active.discard(reviewed.session)

    async def _due(self, session: str) -> DueReviews:
        """Count the turns since the last check; of turns before this process, only the last."""
        known = self._counted.pop(session, None)
        counter = known or _SessionCounter(ReviewTriggers(self._rules.intervals))
        rows = await self._deps.store.archive_for(OWNER).messages(session, counter.seq)
        found = replay_triggers(
            counter.triggers, rows, memory=self._rules.memory, skills=self._rules.skills
        )
        counter.seq = rows[-1].seq if rows else counter.seq
        self._counted[session] = counter
        while len(self._counted) > MAX_SESSIONS:
            self._counted.popitem(last=False)
        relevant = found if known is not None else found[-1:]
        return DueReviews(
            memory=any(d.memory for d in relevant), skills=any(d.skills for d in relevant)
        )
