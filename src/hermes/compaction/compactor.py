"""Compact a session: choose a cut, write a summary, store the new view.

The transcript is never changed. The writes are the view, the cost of the summary, and a rebuilt
system prompt, since the provider has to read everything again anyway.
"""

import logging
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import msgspec
from msgspec import Raw, Struct, structs

from hermes.agent.history import (
    CompactionLimits,
    History,
    compaction_threshold,
    min_tail_messages,
    request_tokens,
    summary_budget,
    tail_budget,
    total_tokens,
)
from hermes.agent.plan import CompactionNeed, Plan
from hermes.agent.provenance import contains_untrusted
from hermes.compaction.pins import Pins
from hermes.compaction.service import CompactionJob, CompactionOptions, CompactionResult
from hermes.compaction.summary import (
    KeptText,
    SummaryInput,
    SummaryWriter,
    WrittenSummary,
    frame_summary,
)
from hermes.compaction.view import (
    CompactedView,
    CompactionState,
    Cut,
    CutLimits,
    apply_view,
    find_cut,
    make_view,
    newly_omitted,
    view_start,
)
from hermes.kit.clock import Clock
from hermes.kit.text import one_line
from hermes.ports.compaction_records import CompactionView, PutCompactionView
from hermes.ports.store import ChangeSession, RecordUsage, Store, Write
from hermes.schema.errors import UsageError
from hermes.schema.events import Notice
from hermes.schema.messages import Assistant, Message, Usage
from hermes.schema.sessions import Session, SessionChange
from hermes.session.lease import Lease
from hermes.session.recorder import PriceFunction

log = logging.getLogger(__name__)

COOL_DOWN = timedelta(seconds=600)
MAX_POOR_PASSES = 2
"""Consecutive passes that may save little, or fall back to a summary without a model."""
MIN_SAVING = 0.1
_RETRY_GROWTH = 1.25
"""How much a session must grow before compaction is tried again after saving little."""


class StoredView(Struct, frozen=True):
    """A stored state and the version it was read at."""

    state: CompactionState
    version: int = 0  # of the session's own view; 0 if it has none


class ViewStore:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._pins = Pins(store, clock)

    async def find(self, session: Session) -> StoredView:
        """The session's own view, or that of the session it was copied from."""
        own = await self._store.compaction.view(session.id)
        if own is not None:
            return StoredView(msgspec.json.decode(own.state, type=CompactionState), own.version)
        parent = session.parent and await self._store.compaction.view(session.parent)
        if not parent:
            return StoredView(CompactionState())
        state = msgspec.json.decode(parent.state, type=CompactionState)
        return StoredView(structs.replace(state, times=0, calls=0, usage=Usage(), cost=0.0))

    async def save(
        self,
        session: Session,
        lease: Lease,
        found: StoredView,
        state: CompactionState,
        *writes: Write,
    ) -> None:
        """Replace the view that was found, while the session's lease is held."""
        view = CompactionView(session.id, found.version + 1, Raw(msgspec.json.encode(state)))
        await self._store.commit(PutCompactionView(view), *writes, fence=lease.fence)

    async def transcript(self, session: Session) -> list[Message]:
        rows = await self._store.archive_for(session.principal).messages(session.id)
        return [row.message for row in rows]

    async def kept_text(self, session: Session) -> KeptText:
        """Pins and open questions, passed on verbatim rather than by a model."""
        waiting = await self._store.approvals.open_questions(session.id)
        questions = [row.question for row in waiting]
        texts = [one_line(f"{question.text} {question.subject}", 500) for question in questions]
        return KeptText(pins=await self._pins.texts(session.id), questions=texts)


class Compactor:
    """Runs compaction passes; the session's lease ensures one at a time."""

    def __init__(
        self,
        views: ViewStore,
        clock: Clock,
        price: PriceFunction,
        limits: CompactionLimits,
        writer: SummaryWriter,
    ) -> None:
        self.limits = limits
        self._views = views
        self._clock = clock
        self._price = price
        self._writer = writer
        self._running: set[str] = set()

    async def state(self, session: Session) -> CompactionState:
        return (await self._views.find(session)).state

    async def visible_messages(self, session: Session, messages: list[Message]) -> list[Message]:
        """The transcript as the model sees it."""
        view = (await self._views.find(session)).state.view
        seen = apply_view(view, messages) if view is not None else None
        return messages if seen is None else seen

    async def compact_if_needed(
        self, job: CompactionJob, history: History, need: CompactionNeed
    ) -> str | None:
        """Return the new system prompt; None if paused after failures or nothing can be done."""
        found = await self._views.find(job.session)
        if not need.rejected and self._is_paused(found.state, need.tokens):
            return None
        system, options = _current_prompt(job.plan), CompactionOptions(automatic=True)
        result = await self._run_pass(job, found, history, need.tokens, options, system)
        if result is None:
            return None
        await need.emit(Notice(describe_result(result)))
        return system

    async def compact_now(self, job: CompactionJob, options: CompactionOptions) -> CompactionResult:
        """Compact on a person's request, ignoring earlier failures. Raises `UsageError`."""
        found = await self._views.find(job.session)
        fresh = structs.replace(found.state, idle=0, plain=0, cool_until=None)
        found = structs.replace(found, state=fresh)
        history = History(job.plan.history)
        tokens, system = _request_tokens(job.plan, history), _current_prompt(job.plan)
        result = await self._run_pass(job, found, history, tokens, options, system)
        if result is None:
            raise _nothing_to_compact()
        return result

    async def preview(
        self, session: Session, plan: Plan, options: CompactionOptions
    ) -> CompactionResult:
        """What `compact_now` would do. Raises `UsageError`."""
        record = await self.state(session)
        messages = await self._views.transcript(session)
        cut = self._cut(record, messages, plan, options)
        if cut is None:
            raise _nothing_to_compact()
        omitted = newly_omitted(record.view, messages, cut)
        shown = [*messages[: cut.head], *messages[cut.start :]]
        summary = summary_budget(total_tokens(omitted), plan.model.window)
        before = _request_tokens(plan, plan.history)
        return CompactionResult(
            before=before,
            after=min(_request_tokens(plan, shown) + summary, before),
            messages=len(omitted),
        )

    async def _run_pass(
        self,
        job: CompactionJob,
        found: StoredView,
        history: History,
        tokens: int,
        options: CompactionOptions,
        system: str,
    ) -> CompactionResult | None:
        """Run one pass and replace the history; None if nothing changed."""
        with self._exclusive(job.session.id):
            messages = await self._views.transcript(job.session)
            if not messages or not history or messages[-1].id != history[-1].id:
                log.warning("session %s differs from the history of its turn", job.session.id)
                return None
            state = found.state
            cut = self._cut(state, messages, job.plan, options)
            if cut is None:
                idle = structs.replace(state, idle=state.idle + 1, before=tokens)
                await self._views.save(job.session, job.lease, found, idle)
                return None
            source = _summary_input(state, messages, cut, options)
            summary = await self._write_summary(job, source, state, options)
            costs = [self._usage(job, answer) for answer in summary.answers]
            state = _with_cost(state, summary, costs)
            if not summary.body:
                state = structs.replace(state, cool_until=self._clock.now() + COOL_DOWN)
                await self._views.save(job.session, job.lease, found, state, *costs)
                return None
            view = await self._view(job, messages, cut, summary)
            visible = apply_view(view, messages) or messages
            before, after = _request_tokens(job.plan, history), _request_tokens(job.plan, visible)
            state = self._updated_state(state, summary, before, after)
            state = structs.replace(state, view=view, body=summary.body)
            prompt = _prompt_change(job, system)
            await self._views.save(job.session, job.lease, found, state, *costs, *prompt)
            history.replace(visible)
        return _result(state, source, summary, costs)

    async def _view(
        self, job: CompactionJob, messages: Sequence[Message], cut: Cut, summary: WrittenSummary
    ) -> CompactedView:
        text = frame_summary(summary.body, await self._views.kept_text(job.session))
        untrusted = contains_untrusted(messages[: cut.start], job.plan.tools)
        return make_view(messages, cut, text, untrusted=untrusted)

    async def _write_summary(
        self,
        job: CompactionJob,
        source: SummaryInput,
        state: CompactionState,
        options: CompactionOptions,
    ) -> WrittenSummary:
        if self._is_cooling_down(state):
            return self._writer.plain(source)
        abort = self.limits.abort and options.automatic
        return await self._writer.write(source, job.plan.model, abort=abort)

    def _updated_state(
        self, record: CompactionState, summary: WrittenSummary, before: int, after: int
    ) -> CompactionState:
        """Update the counters that decide whether and when to try again."""
        saved_little = before - after < before * MIN_SAVING
        return structs.replace(
            record,
            times=record.times + 1,
            idle=record.idle + 1 if saved_little else 0,
            plain=record.plain + 1 if summary.plain else 0,
            cool_until=self._clock.now() + COOL_DOWN if summary.failed else record.cool_until,
            before=before,
            after=after,
        )

    def _cut(
        self,
        record: CompactionState,
        messages: Sequence[Message],
        plan: Plan,
        options: CompactionOptions,
    ) -> Cut | None:
        since = view_start(record.view, messages)
        model = plan.model
        threshold = compaction_threshold(self.limits, model.window, model.name, model.provider)
        ends = CutLimits(
            budget=tail_budget(self.limits, threshold),
            min_messages=min_tail_messages(self.limits),
            turns=options.turns,
            head=0 if since else self.limits.keep_first,
            summarized=since,
        )
        return find_cut(messages, ends, self.limits.stateful)

    def _usage(self, job: CompactionJob, answer: Assistant) -> RecordUsage:
        spent = answer.model, answer.provider, answer.usage
        session, run, now = job.session.id, job.plan.scope.run, self._clock.now()
        return RecordUsage(session, run, *spent, self._price(*spent), now)

    def _is_cooling_down(self, record: CompactionState) -> bool:
        """Never longer than `COOL_DOWN`, even if the clock is set back."""
        until = record.cool_until
        return until is not None and timedelta(0) < until - self._clock.now() <= COOL_DOWN

    def _is_paused(self, record: CompactionState, tokens: int) -> bool:
        if self._is_cooling_down(record) or record.plain >= MAX_POOR_PASSES:
            return True
        return record.idle >= MAX_POOR_PASSES and tokens < record.before * _RETRY_GROWTH

    @contextmanager
    def _exclusive(self, session: str) -> Generator[None]:
        if session in self._running:
            raise AssertionError(f"session {session} is already being compacted")
        self._running.add(session)
        try:
            yield
        finally:
            self._running.discard(session)


def _summary_input(
    record: CompactionState, messages: Sequence[Message], cut: Cut, options: CompactionOptions
) -> SummaryInput:
    """What to summarize, with the previous summary if it still fits the transcript."""
    view = record.view if view_start(record.view, messages) else None
    return SummaryInput(
        messages=newly_omitted(view, messages, cut),
        previous=record.body if view is not None else "",
        focus=options.focus,
    )


def _result(
    state: CompactionState,
    source: SummaryInput,
    summary: WrittenSummary,
    costs: Sequence[RecordUsage],
) -> CompactionResult:
    return CompactionResult(
        before=state.before,
        after=state.after,
        messages=len(source.messages),
        plain=summary.plain,
        usage=summary.usage,
        cost=_total_cost([record.cost for record in costs]),
    )


def _prompt_change(job: CompactionJob, system: str) -> list[Write]:
    """Store the rebuilt prompt, unless it was built for someone else.

    In that case the next turn of the session's own principal builds a new one.
    """
    session = job.session
    stored = system if job.plan.scope.principal == session.principal else ""
    if stored == session.system:
        return []
    return [ChangeSession(session.id, SessionChange(system=stored))]


def describe_result(result: CompactionResult) -> str:
    how = ", without a model" if result.plain else ""
    return (
        f"Earlier messages ({result.messages:,}) are now a summary{how}: "
        f"about {result.before:,} tokens became {result.after:,}. Everything stays searchable."
    )


def _nothing_to_compact() -> UsageError:
    return UsageError("There is nothing to compact yet.", hint="The last turns always stay.")


def _current_prompt(plan: Plan) -> str:
    return plan.system if plan.rebuild_prompt is None else plan.rebuild_prompt()


def _request_tokens(plan: Plan, messages: Sequence[Message]) -> int:
    specs = [tool.spec for tool in plan.tools.values()]
    return request_tokens(plan.system, specs, messages)


def _with_cost(
    state: CompactionState, summary: WrittenSummary, costs: Sequence[RecordUsage]
) -> CompactionState:
    return structs.replace(
        state,
        calls=state.calls + len(costs),
        usage=state.usage + summary.usage,
        cost=_total_cost([state.cost, *(usage.cost for usage in costs)]),
    )


def _total_cost(costs: Sequence[float | None]) -> float | None:
    """Sum the costs; the total is unknown if any of them is."""
    return None if None in costs else sum(cost for cost in costs if cost is not None)
