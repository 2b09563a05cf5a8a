"""When a turn has ended: count, and look back in the background when it is time to."""

import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct

from hermes.changes.provenance import REVIEW
from hermes.review.reviewer import Occasion, Reviewer, ReviewParts
from hermes.review.telling import Notifying, told
from hermes.schema.events import Outcome
from hermes.schema.scope import OWNER, Role
from hermes.session.accepting import Turn
from hermes.session.nudges import Due, Intervals, Nudges, replayed

log = logging.getLogger(__name__)

AT_ONCE = 2
SESSIONS = 256
WAITING = 1_000
"""How many sessions may wait to be looked at; those beyond are counted with their next turn."""
NOT_OF = frozenset({REVIEW, "subagent", "cron"})
"""Sessions in which no person speaks."""

Tell = Callable[[Occasion, str], Awaitable[None]]


class ReviewRules(Struct, frozen=True, kw_only=True):
    """`memory` and `skills` say what there is to be looked at; `timeout` is for a whole review."""

    intervals: Intervals = Intervals()
    memory: bool = True
    skills: bool = True
    timeout: float = 600.0
    notifying: Notifying = Notifying.ON


class _Counted(Struct):
    nudges: Nudges
    seq: int = 0


class Reviews:
    """One at a time for a session, few at a time for all; nothing here ever holds up a turn.

    Those who wait stand in a line in memory, without a task each: many sessions end their turns
    at once. The line is not kept: a review that had not begun when its process ended is left out.
    """

    def __init__(
        self, parts: ReviewParts, rules: ReviewRules, tell: Tell, group: TaskGroup
    ) -> None:
        self._parts = parts
        self._rules = rules
        self._tell = tell
        self._group = group
        self._reviewer = Reviewer(parts)
        self._waiting: deque[Occasion] = deque()
        self._workers = 0
        self._at_work: set[str] = set()
        self._counted: OrderedDict[str, _Counted] = OrderedDict()

    @property
    def at_work(self) -> frozenset[str]:
        """The sessions that are looked at now, or wait for it."""
        return frozenset(self._at_work)

    def ended(self, turn: Turn, outcome: Outcome) -> None:
        """Called when the answer is on its way. Only the owner's turns are looked back on."""
        source = turn.source or turn.session.source
        if not self._rules.intervals.memory and not self._rules.intervals.skills:
            return
        if outcome is not Outcome.DONE or turn.role is not Role.OWNER:
            return
        if turn.bare or turn.handed:  # a program has the say there, with tools of its own
            return
        if source in NOT_OF or turn.session.id in self._at_work or len(self._waiting) >= WAITING:
            return
        occasion = Occasion(
            session=turn.session.id,
            principal=turn.principal or turn.session.principal,
            source=source,
            address=turn.address,
        )
        self._at_work.add(occasion.session)
        self._waiting.append(occasion)
        if self._workers < AT_ONCE:
            self._workers += 1
            self._group.start_soon(self._work)

    async def _work(self) -> None:
        try:
            while self._waiting:
                await self._consider(self._waiting.popleft())
        finally:
            self._workers -= 1

    async def _consider(self, occasion: Occasion) -> None:
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

    async def _review(self, occasion: Occasion, due: Due) -> None:
        findings = await self._reviewer.review(occasion, due)
        if text := told(findings, self._rules.notifying):
            await self._tell(occasion, text)

    async def _due(self, session: str) -> Due:
        """Counted on from where it was left; of turns before this process only the last counts."""
        known = self._counted.pop(session, None)
        counted = known or _Counted(Nudges(self._rules.intervals))
        rows = await self._parts.store.seen_by(OWNER).messages(session, counted.seq)
        found = replayed(counted.nudges, rows, memory=self._rules.memory, skills=self._rules.skills)
        counted.seq = rows[-1].seq if rows else counted.seq
        self._counted[session] = counted
        while len(self._counted) > SESSIONS:
            self._counted.popitem(last=False)
        meant = found if known is not None else found[-1:]
        return Due(memory=any(d.memory for d in meant), skills=any(d.skills for d in meant))
