"""What the person is told of a review: one line, and nothing when nothing was kept."""

import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from enum import StrEnum

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct

from hermes.learning.ledger.change import Change, Proposal
from hermes.learning.ledger.diffs import change_text
from hermes.learning.ledger.provenance import REVIEW_SOURCE
from hermes.learning.review.reviewer import ReviewDeps, ReviewedTurn, Reviewer, ReviewResult
from hermes.learning.review.triggers import (
    DueReviews,
    ReviewIntervals,
    ReviewTriggers,
    replay_triggers,
)
from hermes.schema.events import Outcome
from hermes.schema.scope import OWNER, Role
from hermes.session.turn_request import TurnRequest

_MAX_SHOWN = 3


class NotificationLevel(StrEnum):
    OFF = "off"
    ON = "on"
    VERBOSE = "verbose"


def review_notice(findings: ReviewResult, how: NotificationLevel) -> str:
    """Empty when there is nothing to say, or nobody wants to hear it."""
    if how is NotificationLevel.OFF or not findings:
        return ""
    parts = [_change_label(change) for change in findings.changes[:_MAX_SHOWN]]
    if more := len(findings.changes) - _MAX_SHOWN:
        parts += [f"{more} more"] if more > 0 else []
    if findings.proposals:
        parts.append(
            "for you to decide: " + ", ".join(map(_change_label, findings.proposals[:_MAX_SHOWN]))
        )
    line = f"💾 Looking back: {'; '.join(parts)}. See /changes."
    if how is NotificationLevel.VERBOSE:
        line = "\n".join([line, *(change_text(change) for change in findings.changes)])
    return line


def _change_label(one: Change | Proposal) -> str:
    words = f" (heard or read before: {', '.join(one.origin.words)})" if one.origin.words else ""
    return f"{one.kind} {one.summary}{words}"


log = logging.getLogger(__name__)

MAX_CONCURRENT = 2
MAX_SESSIONS = 256
MAX_WAITING = 1_000
"""How many sessions may wait to be looked at; those beyond are counted with their next turn."""
EXCLUDED_SOURCES = frozenset({REVIEW_SOURCE, "subagent", "cron"})
"""Sessions in which no person speaks."""

NotifyReview = Callable[[ReviewedTurn, str], Awaitable[None]]


class ReviewRules(Struct, frozen=True, kw_only=True):
    """`memory` and `skills` say what there is to be looked at; `timeout` is for a whole review."""

    intervals: ReviewIntervals = ReviewIntervals()
    memory: bool = True
    skills: bool = True
    timeout: float = 600.0
    notifying: NotificationLevel = NotificationLevel.ON


class _SessionCounter(Struct):
    nudges: ReviewTriggers
    seq: int = 0


class ReviewScheduler:
    """One at a time for a session, few at a time for all; nothing here ever holds up a turn.

    Those who wait stand in a line in memory, without a task each: many sessions end their turns
    at once. The line is not kept: a review that had not begun when its process ended is left out.
    """

    def __init__(
        self, parts: ReviewDeps, rules: ReviewRules, tell: NotifyReview, group: TaskGroup
    ) -> None:
        self._parts = parts
        self._rules = rules
        self._tell = tell
        self._group = group
        self._reviewer = Reviewer(parts)
        self._waiting: deque[ReviewedTurn] = deque()
        self._workers = 0
        self._at_work: set[str] = set()
        self._counted: OrderedDict[str, _SessionCounter] = OrderedDict()

    @property
    def at_work(self) -> frozenset[str]:
        """The sessions that are looked at now, or wait for it."""
        return frozenset(self._at_work)

    def ended(self, turn: TurnRequest, outcome: Outcome) -> None:
        """Called when the answer is on its way. Only the owner's turns are looked back on."""
        source = turn.source or turn.session.source
        if not self._rules.intervals.memory and not self._rules.intervals.skills:
            return
        if outcome is not Outcome.DONE or turn.role is not Role.OWNER:
            return
        if turn.bare or turn.handed:  # a program has the say there, with tools of its own
            return
        if (
            source in EXCLUDED_SOURCES
            or turn.session.id in self._at_work
            or len(self._waiting) >= MAX_WAITING
        ):
            return
        occasion = ReviewedTurn(
            session=turn.session.id,
            principal=turn.principal or turn.session.principal,
            source=source,
            address=turn.address,
        )
        self._at_work.add(occasion.session)
        self._waiting.append(occasion)
        if self._workers < MAX_CONCURRENT:
            self._workers += 1
            self._group.start_soon(self._work)

    async def _work(self) -> None:
        try:
            while self._waiting:
                await self._review_if_due(self._waiting.popleft())
        finally:
            self._workers -= 1

    async def _review_if_due(self, occasion: ReviewedTurn) -> None:
        try:
            with anyio.move_on_after(self._rules.timeout) as limit:
                if due := await self._due(occasion.session):
                    await self._review(occasion, due)
            if limit.cancelled_caught:
                log.warning("the review of session %s took too long", occasion.session)
        except Exception:
            log.exception("the review of session %s failed", occasion.session)
        finally:
            self._at_work.discard(occasion.session)

    async def _review(self, occasion: ReviewedTurn, due: DueReviews) -> None:
        findings = await self._reviewer.review(occasion, due)
        if text := review_notice(findings, self._rules.notifying):
            await self._tell(occasion, text)

    async def _due(self, session: str) -> DueReviews:
        """Counted on from where it was left; of turns before this process only the last counts."""
        known = self._counted.pop(session, None)
        counted = known or _SessionCounter(ReviewTriggers(self._rules.intervals))
        rows = await self._parts.store.archive_for(OWNER).messages(session, counted.seq)
        found = replay_triggers(
            counted.nudges, rows, memory=self._rules.memory, skills=self._rules.skills
        )
        counted.seq = rows[-1].seq if rows else counted.seq
        self._counted[session] = counted
        while len(self._counted) > MAX_SESSIONS:
            self._counted.popitem(last=False)
        meant = found if known is not None else found[-1:]
        return DueReviews(memory=any(d.memory for d in meant), skills=any(d.skills for d in meant))
