"""Have a session's past told in short, one pass at a time.

The transcript is never touched. What is written is the view of it, what the summary cost, and the
prompt, which is put together anew since the provider has to read everything again anyhow.
"""

import logging
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import timedelta

from msgspec import structs

from hermes.agent.context_size import (
    CompactionLimits,
    compaction_threshold,
    min_tail_messages,
    summary_budget,
    tail_budget,
    text_tokens,
    tool_tokens,
    total_tokens,
)
from hermes.agent.history import History
from hermes.agent.plan import CompactionNeed, Plan
from hermes.agent.provenance import contains_untrusted
from hermes.compaction.cut_points import Cut, CutLimits, find_cut
from hermes.compaction.service import CompactionJob, CompactionOptions, CompactionResult
from hermes.compaction.summary import SummaryInput, SummaryWriter, WrittenSummary, frame_summary
from hermes.compaction.view import CompactionState, apply_view, make_view, newly_omitted, view_start
from hermes.compaction.view_store import StoredView, ViewStore
from hermes.kit.clock import Clock
from hermes.ports.store import ChangeSession, RecordUsage, Write
from hermes.schema.errors import UsageError
from hermes.schema.events import Event, Notice
from hermes.schema.messages import Assistant, Message, Usage
from hermes.schema.sessions import Session, SessionChange
from hermes.session.recorder import PriceFunction

log = logging.getLogger(__name__)

COOL_DOWN = timedelta(seconds=600)
MAX_POOR_PASSES = 2
"""Passes in a row that may save little, or do without a model."""
MIN_SAVING = 0.1
_RETRY_GROWTH = 1.25
"""By how much a session that could not be made shorter must grow before it is tried again."""


class Compactor:
    """A session is pressed by one at a time: its lease says so."""

    def __init__(
        self,
        views: ViewStore,
        clock: Clock,
        price: PriceFunction,
        limits: CompactionLimits,
        scribe: SummaryWriter,
    ) -> None:
        self.limits = limits
        self._views = views
        self._clock = clock
        self._price = price
        self._scribe = scribe
        self._at_work: set[str] = set()

    async def record(self, session: Session) -> CompactionState:
        return (await self._views.find(session)).record

    async def seen(self, session: Session, messages: list[Message]) -> list[Message]:
        """The transcript as the model is to see it."""
        view = (await self._views.find(session)).record.view
        seen = apply_view(view, messages) if view is not None else None
        return messages if seen is None else seen

    async def compact_if_needed(
        self, job: CompactionJob, history: History, need: CompactionNeed
    ) -> str | None:
        """The prompt to go on with; None when it rests after trouble, or nothing can be done."""
        found = await self._views.find(job.session)
        if not need.refused and self._is_paused(found.record, need.tokens):
            return None
        system = _current_prompt(job.plan)
        done = await self._press(
            job, found, history, need, CompactionOptions(automatic=True), system
        )
        return None if done is None else system

    async def by_hand(self, job: CompactionJob, wish: CompactionOptions) -> CompactionResult:
        """Because a person wants it, whatever went wrong before. Raises `UsageError`."""
        found = await self._views.find(job.session)
        found = StoredView(
            structs.replace(found.record, idle=0, plain=0, cool_until=None), found.state
        )
        history = History(job.plan.history)
        need = CompactionNeed(_request_tokens(job.plan, history), _ignore_event)
        done = await self._press(job, found, history, need, wish, _current_prompt(job.plan))
        if done is None:
            raise _nothing_to_compact()
        return done

    async def preview(
        self, session: Session, plan: Plan, wish: CompactionOptions
    ) -> CompactionResult:
        """What `by_hand` would do, without doing it. Raises `UsageError`."""
        record = await self.record(session)
        messages = await self._views.transcript(session)
        places = self._cut(record, messages, plan, wish)
        if places is None:
            raise _nothing_to_compact()
        gone = newly_omitted(record.view, messages, places)
        shown = [*messages[: places.head], *messages[places.start :]]
        summary = summary_budget(total_tokens(gone), plan.model.window)
        before = _request_tokens(plan, plan.history)
        return CompactionResult(
            before=before,
            after=min(_request_tokens(plan, shown) + summary, before),
            messages=len(gone),
        )

    async def _press(
        self,
        job: CompactionJob,
        found: StoredView,
        history: History,
        need: CompactionNeed,
        wish: CompactionOptions,
        system: str,
    ) -> CompactionResult | None:
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
            told = _summary_input(record, messages, places, wish)
            abort = self.limits.abort and wish.automatic
            written = await self._written(job, told, record, abort=abort)
            meters = [self._meter(job, answer) for answer in written.answers]
            record = _with_cost(record, written, meters)
            if not written.body:
                record = structs.replace(record, cool_until=self._clock.now() + COOL_DOWN)
                await self._views.keep(job.session, job.lease, found, record, *meters)
                return None
            summary = frame_summary(written.body, await self._views.kept(job.session))
            strange = contains_untrusted(messages[: places.start], job.plan.tools)
            new = make_view(messages, places, summary, strange=strange)
            seen = apply_view(new, messages) or messages
            before, after = _request_tokens(job.plan, history), _request_tokens(job.plan, seen)
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
        done = _result_of(told, written, meters, before, after)
        await need.tell(Notice(describe_result(done)))
        return done

    async def _written(
        self, job: CompactionJob, told: SummaryInput, record: CompactionState, *, abort: bool
    ) -> WrittenSummary:
        if self._is_cooling_down(record):
            return self._scribe.plain(told)
        return await self._scribe.write(told, job.plan.model, abort=abort)

    def _judged(
        self, record: CompactionState, written: WrittenSummary, before: int, after: int
    ) -> CompactionState:
        """With what counts for whether, and when, it is tried again."""
        little = before - after < before * MIN_SAVING
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
        self,
        record: CompactionState,
        messages: Sequence[Message],
        plan: Plan,
        wish: CompactionOptions,
    ) -> Cut | None:
        since = view_start(record.view, messages)
        model = plan.model
        most = compaction_threshold(self.limits, model.window, model.name, model.provider)
        ends = CutLimits(
            budget=tail_budget(self.limits, most),
            least=min_tail_messages(self.limits),
            turns=wish.turns,
            head=0 if since else self.limits.first,
            since=since,
        )
        return find_cut(messages, ends, self.limits.stateful)

    def _meter(self, job: CompactionJob, answer: Assistant) -> RecordUsage:
        cost = self._price(answer.model, answer.provider, answer.usage)
        session, run, now = job.session.id, job.plan.scope.run, self._clock.now()
        return RecordUsage(session, run, answer.model, answer.provider, answer.usage, cost, now)

    def _is_cooling_down(self, record: CompactionState) -> bool:
        """For no longer than was meant, also when the clock is put back meanwhile."""
        until = record.cool_until
        return until is not None and timedelta(0) < until - self._clock.now() <= COOL_DOWN

    def _is_paused(self, record: CompactionState, tokens: int) -> bool:
        if self._is_cooling_down(record):
            return True
        if record.plain >= MAX_POOR_PASSES:
            return True
        return record.idle >= MAX_POOR_PASSES and tokens < record.before * _RETRY_GROWTH

    @contextmanager
    def _working_on(self, session: str) -> Generator[None]:
        if session in self._at_work:
            raise AssertionError(f"session {session} is compressed twice at once")
        self._at_work.add(session)
        try:
            yield
        finally:
            self._at_work.discard(session)


def _summary_input(
    record: CompactionState, messages: Sequence[Message], places: Cut, wish: CompactionOptions
) -> SummaryInput:
    """What the summary is to tell, and the one before it, if that still fits the transcript."""
    view = record.view if view_start(record.view, messages) else None
    return SummaryInput(
        messages=newly_omitted(view, messages, places),
        previous=record.body if view is not None else "",
        focus=wish.focus,
    )


def _result_of(
    told: SummaryInput,
    written: WrittenSummary,
    meters: Sequence[RecordUsage],
    before: int,
    after: int,
) -> CompactionResult:
    return CompactionResult(
        before=before,
        after=after,
        messages=len(told.messages),
        plain=written.plain,
        usage=sum((answer.usage for answer in written.answers), Usage()),
        cost=_total_cost([meter.cost for meter in meters]),
    )


def describe_result(done: CompactionResult) -> str:
    """One line for people."""
    how = ", without a model" if done.plain else ""
    return (
        f"Earlier messages ({done.messages:,}) are now a summary{how}: "
        f"about {done.before:,} tokens became {done.after:,}. Everything stays searchable."
    )


def _nothing_to_compact() -> UsageError:
    return UsageError("There is nothing to compress yet.", hint="The last turns always stay.")


async def _ignore_event(event: Event) -> None:
    """Whoever asked by hand is told in the reply."""


def _current_prompt(plan: Plan) -> str:
    return plan.system if plan.renew is None else plan.renew()


def _request_tokens(plan: Plan, messages: Sequence[Message]) -> int:
    specs = [tool.spec for tool in plan.tools.values()]
    return text_tokens(plan.system) + tool_tokens(specs) + total_tokens(messages)


def _with_cost(
    record: CompactionState, written: WrittenSummary, meters: Sequence[RecordUsage]
) -> CompactionState:
    return structs.replace(
        record,
        calls=record.calls + len(meters),
        usage=sum((answer.usage for answer in written.answers), record.usage),
        cost=_total_cost([record.cost, *(meter.cost for meter in meters)]),
    )


def _total_cost(costs: Sequence[float | None]) -> float | None:
    """Unknown as soon as one of them is."""
    return None if None in costs else sum(cost for cost in costs if cost is not None)
