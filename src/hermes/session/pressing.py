"""Have a session's past told in short, one pass at a time.

The transcript is never touched. What is written is the view of it, what the summary cost, and the
prompt, which is put together anew since the provider has to read everything again anyhow.
"""

import logging
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import timedelta

from msgspec import structs

from hermes.agent.compression.cutting import Cut, Ends, cut
from hermes.agent.compression.sizes import (
    Limits,
    least_tail,
    summary_budget,
    tail_budget,
    tokens_in,
    tokens_of_text,
    tokens_of_tools,
    trigger,
)
from hermes.agent.compression.summary import Told, framed
from hermes.agent.compression.view import Record, left_out, place_of, seen_through, view_of
from hermes.agent.plan import Need, Plan
from hermes.agent.repair import History
from hermes.agent.sources import strangers_in
from hermes.kit.clock import Clock
from hermes.ports.store import ChangeSession, Meter, Write
from hermes.schema.errors import UsageError
from hermes.schema.events import Event, Notice
from hermes.schema.messages import Assistant, Message, Usage
from hermes.schema.sessions import Session, SessionChange
from hermes.session.compressing import Job, Pressed, Wish
from hermes.session.recorder import Price
from hermes.session.scribe import Scribe, Written
from hermes.session.views import Found, Views

log = logging.getLogger(__name__)

COOL_DOWN = timedelta(seconds=600)
PATIENCE = 2
"""Passes in a row that may save little, or do without a model."""
LITTLE = 0.1
_GREW = 1.25
"""By how much a session that could not be made shorter must grow before it is tried again."""


class Press:
    """A session is pressed by one at a time: its lease says so."""

    def __init__(
        self, views: Views, clock: Clock, price: Price, limits: Limits, scribe: Scribe
    ) -> None:
        self.limits = limits
        self._views = views
        self._clock = clock
        self._price = price
        self._scribe = scribe
        self._at_work: set[str] = set()

    async def record(self, session: Session) -> Record:
        return (await self._views.find(session)).record

    async def seen(self, session: Session, messages: list[Message]) -> list[Message]:
        """The transcript as the model is to see it."""
        view = (await self._views.find(session)).record.view
        seen = seen_through(view, messages) if view is not None else None
        return messages if seen is None else seen

    async def when_needed(self, job: Job, history: History, need: Need) -> str | None:
        """The prompt to go on with; None when it rests after trouble, or nothing can be done."""
        found = await self._views.find(job.session)
        if not need.refused and self._rests(found.record, need.tokens):
            return None
        system = _renewed(job.plan)
        done = await self._press(job, found, history, need, Wish(automatic=True), system)
        return None if done is None else system

    async def by_hand(self, job: Job, wish: Wish) -> Pressed:
        """Because a person wants it, whatever went wrong before. Raises `UsageError`."""
        found = await self._views.find(job.session)
        found = Found(structs.replace(found.record, idle=0, plain=0, cool_until=None), found.state)
        history = History(job.plan.history)
        need = Need(_tokens(job.plan, history), _nobody)
        done = await self._press(job, found, history, need, wish, _renewed(job.plan))
        if done is None:
            raise _nothing()
        return done

    async def preview(self, session: Session, plan: Plan, wish: Wish) -> Pressed:
        """What `by_hand` would do, without doing it. Raises `UsageError`."""
        record = await self.record(session)
        messages = await self._views.transcript(session)
        places = self._cut(record, messages, plan, wish)
        if places is None:
            raise _nothing()
        gone = left_out(record.view, messages, places)
        shown = [*messages[: places.head], *messages[places.start :]]
        summary = summary_budget(tokens_in(gone), plan.model.window)
        before = _tokens(plan, plan.history)
        return Pressed(
            before=before,
            after=min(_tokens(plan, shown) + summary, before),
            messages=len(gone),
        )

    async def _press(
        self, job: Job, found: Found, history: History, need: Need, wish: Wish, system: str
    ) -> Pressed | None:
        """One pass over a held session; the history is the new one afterwards. None: no change."""
        with self._working_on(job.session.id):
            messages = await self._views.transcript(job.session)
            if not messages or not history or messages[-1].id != history[-1].id:
                log.warning("session %s is not what its turn holds", job.session.id)
                return None
            record = found.record
            places = self._cut(record, messages, job.plan, wish)
            if places is None:
                idle = structs.replace(record, idle=record.idle + 1, before=need.tokens)
                await self._views.keep(job.session, job.lease, found, idle)
                return None
            told = _told(record, messages, places, wish)
            abort = self.limits.abort and wish.automatic
            written = await self._written(job, told, record, abort=abort)
            meters = [self._meter(job, answer) for answer in written.answers]
            record = _spent(record, written, meters)
            if not written.body:
                record = structs.replace(record, cool_until=self._clock.now() + COOL_DOWN)
                await self._views.keep(job.session, job.lease, found, record, *meters)
                return None
            summary = framed(written.body, await self._views.kept(job.session))
            strange = strangers_in(messages[: places.start], job.plan.tools)
            new = view_of(messages, places, summary, strange=strange)
            seen = seen_through(new, messages) or messages
            before, after = _tokens(job.plan, history), _tokens(job.plan, seen)
            record = structs.replace(
                self._judged(record, written, before, after),
                view=new,
                body=written.body,
            )
            writes: list[Write] = list(meters)
            # A prompt that was written for somebody else is not kept: the next turn of the
            # session's own principal writes a new one.
            own = job.plan.scope.principal == job.session.principal
            kept = system if own else ""
            if kept != job.session.system:
                writes.append(ChangeSession(job.session.id, SessionChange(system=kept)))
            await self._views.keep(job.session, job.lease, found, record, *writes)
            history.begin_again(seen)
        done = _done(told, written, meters, before, after)
        await need.tell(Notice(said(done)))
        return done

    async def _written(self, job: Job, told: Told, record: Record, *, abort: bool) -> Written:
        if self._cools_down(record):
            return self._scribe.plain(told)
        return await self._scribe.write(told, job.plan.model, abort=abort)

    def _judged(self, record: Record, written: Written, before: int, after: int) -> Record:
        """With what counts for whether, and when, it is tried again."""
        little = before - after < before * LITTLE
        return structs.replace(
            record,
            times=record.times + 1,
            idle=record.idle + 1 if little else 0,
            plain=record.plain + 1 if written.plain else 0,
            cool_until=self._clock.now() + COOL_DOWN if written.failed else record.cool_until,
            before=before,
            after=after,
        )

    def _cut(
        self, record: Record, messages: Sequence[Message], plan: Plan, wish: Wish
    ) -> Cut | None:
        since = place_of(record.view, messages)
        model = plan.model
        most = trigger(self.limits, model.window, model.name, model.provider)
        ends = Ends(
            budget=tail_budget(self.limits, most),
            least=least_tail(self.limits),
            turns=wish.turns,
            head=0 if since else self.limits.first,
            since=since,
        )
        return cut(messages, ends, self.limits.stateful)

    def _meter(self, job: Job, answer: Assistant) -> Meter:
        cost = self._price(answer.model, answer.provider, answer.usage)
        session, run, now = job.session.id, job.plan.scope.run, self._clock.now()
        return Meter(session, run, answer.model, answer.provider, answer.usage, cost, now)

    def _cools_down(self, record: Record) -> bool:
        """For no longer than was meant, also when the clock is put back meanwhile."""
        until = record.cool_until
        return until is not None and timedelta(0) < until - self._clock.now() <= COOL_DOWN

    def _rests(self, record: Record, tokens: int) -> bool:
        if self._cools_down(record):
            return True
        if record.plain >= PATIENCE:
            return True
        return record.idle >= PATIENCE and tokens < record.before * _GREW

    @contextmanager
    def _working_on(self, session: str) -> Generator[None]:
        if session in self._at_work:
            raise AssertionError(f"session {session} is compressed twice at once")
        self._at_work.add(session)
        try:
            yield
        finally:
            self._at_work.discard(session)


def _told(record: Record, messages: Sequence[Message], places: Cut, wish: Wish) -> Told:
    """What the summary is to tell, and the one before it, if that still fits the transcript."""
    view = record.view if place_of(record.view, messages) else None
    return Told(
        messages=left_out(view, messages, places),
        previous=record.body if view is not None else "",
        focus=wish.focus,
    )


def _done(
    told: Told, written: Written, meters: Sequence[Meter], before: int, after: int
) -> Pressed:
    return Pressed(
        before=before,
        after=after,
        messages=len(told.messages),
        plain=written.plain,
        usage=sum((answer.usage for answer in written.answers), Usage()),
        cost=_sum([meter.cost for meter in meters]),
    )


def said(done: Pressed) -> str:
    """One line for people."""
    how = ", without a model" if done.plain else ""
    return (
        f"Earlier messages ({done.messages:,}) are now a summary{how}: "
        f"about {done.before:,} tokens became {done.after:,}. Everything stays searchable."
    )


def _nothing() -> UsageError:
    return UsageError("There is nothing to compress yet.", hint="The last turns always stay.")


async def _nobody(event: Event) -> None:
    """Whoever asked by hand is told in the reply."""


def _renewed(plan: Plan) -> str:
    return plan.system if plan.renew is None else plan.renew()


def _tokens(plan: Plan, messages: Sequence[Message]) -> int:
    specs = [tool.spec for tool in plan.tools.values()]
    return tokens_of_text(plan.system) + tokens_of_tools(specs) + tokens_in(messages)


def _spent(record: Record, written: Written, meters: Sequence[Meter]) -> Record:
    return structs.replace(
        record,
        calls=record.calls + len(meters),
        usage=sum((answer.usage for answer in written.answers), record.usage),
        cost=_sum([record.cost, *(meter.cost for meter in meters)]),
    )


def _sum(costs: Sequence[float | None]) -> float | None:
    """Unknown as soon as one of them is."""
    return None if None in costs else sum(cost for cost in costs if cost is not None)
