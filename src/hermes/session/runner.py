"""Run one turn of a session: accept the message durably, run the plan, record the events."""

import logging
import math
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Protocol

import anyio
import anyio.lowlevel
from msgspec import Struct, structs

from hermes.agent.history import History, compaction_threshold, open_calls, unanswered_calls
from hermes.agent.plan import Plan, ReadSteering, RuntimePlan, no_steering
from hermes.agent.turn import run_turn
from hermes.compaction.service import (
    CompactionJob,
    CompactionOptions,
    CompactionResult,
    CompactionService,
    compact_runtime,
)
from hermes.kit.clock import Clock
from hermes.kit.failpoints import failpoint
from hermes.kit.ids import new_holder_id
from hermes.logs import log_session
from hermes.ports.approvals import PendingQuestions
from hermes.ports.bus import RUN_TOPIC, Bus
from hermes.ports.store import AppendMessage, Fence, Store
from hermes.schema.errors import LeaseLost, SessionBusy, UsageError
from hermes.schema.events import Event, Outcome, RunEnded
from hermes.schema.messages import Message, Result, User
from hermes.schema.scope import OWNER, Role, Scope
from hermes.schema.sessions import Session
from hermes.session.followed_run import RunReading
from hermes.session.foreground_turns import ForegroundTurns
from hermes.session.lease import Lease, LeaseRenewer
from hermes.session.recorder import (
    AcceptedMessages,
    PartialAnswer,
    PartialAnswerWriter,
    PriceFunction,
    Publish,
    Recorder,
    take_partial_answers,
)
from hermes.session.session_context import bound_scope
from hermes.session.spend_guard import SpendCaps, SpendGuard, both_checks
from hermes.session.turn_request import (
    NOTHING_RECOVERED,
    TranscriptCache,
    TurnRequest,
    accept_turn,
    close_lost_calls,
)

log = logging.getLogger(__name__)


class Planner(Protocol):
    async def plan(
        self, session: Session, scope: Scope, history: Sequence[Message]
    ) -> Plan | RuntimePlan:
        """Choose the model, tools and prompt for one turn, or a runtime for it.

        Raises `ConfigError`.
        """
        ...


AfterTurn = Callable[[TurnRequest, RunEnded], object]
"""Called after each turn, also if it was cancelled; its work is not awaited."""
ObserveTurn = Callable[[TurnRequest, Scope], Callable[[Event], None] | None]
"""Returns a callback for the events of a turn, or None; the callback must not block."""
_NO_IDS: AbstractSet[str] = frozenset()


class _AcceptedTurn(Struct, frozen=True):
    """A turn whose messages are durable."""

    plan: Plan | RuntimePlan
    messages: Sequence[User]  # to answer
    history: History
    recorder: Recorder


class Runner:
    """Runs turns. Without `compaction`, histories are sent in full."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        planner: Planner,
        price: PriceFunction,
        profile: str,
        bus: Bus,
        compaction: CompactionService | None = None,
        questions: Callable[[], PendingQuestions] | None = None,
        after_turn: Sequence[AfterTurn] = (),
    ) -> None:
        """With `questions`, a turn that waits for a person can be resumed."""
        self.bus = bus
        self.compaction = compaction
        self.foreground = ForegroundTurns(clock)
        self.lease_renewer = LeaseRenewer(clock, store.workers.ttl)
        self._partial_answers = PartialAnswerWriter(store, clock)
        self._store = store
        self._clock = clock
        self._planner = planner
        self._price = price
        self._profile = profile
        self._questions = questions
        self._after_turn = after_turn
        self._holder = new_holder_id(store.workers.own)
        self._reserved: set[str] = set()
        self._transcripts = TranscriptCache()
        self._observers: list[ObserveTurn] = []

    async def close_questions(self) -> None:
        """Close the questions of turns that will not be resumed."""
        if self._questions is not None:
            await self._questions().close_abandoned()

    @contextmanager
    def observed_by(self, observer: ObserveTurn) -> Generator[None]:
        """Show the turns that start during the block to the observer."""
        self._observers.append(observer)
        try:
            yield
        finally:
            self._observers.remove(observer)

    async def aclose(self) -> None:
        """Stop renewing leases and storing partial answers."""
        await self.lease_renewer.task.stop()
        await self._partial_answers.task.stop()

    async def run(
        self, request: TurnRequest, reading: RunReading, *, steer: ReadSteering = no_steering
    ) -> None:
        """Accept the message, then answer it; `reading` adds final writes.

        Raises `SessionBusy` before anything is accepted.
        """
        scope, session = self._scope(request), request.session.id
        ended: RunEnded | None = None
        try:
            with self.foreground.running(request):
                async with self.holding(session, new=request.new) as lease:
                    failpoint("runner.held")
                    try:
                        # The only place that binds the session context, which plugins and child
                        # processes read.
                        with bound_scope(scope), log_session(session):
                            turn = await self._accept(request, scope, lease, reading)
                            plan = self._with_turn_options(turn.plan, request, lease, steer)
                            try:
                                # A lost lease ends the turn.
                                with self.lease_renewer.renewing(lease):
                                    await run_turn(plan, turn.messages, turn.recorder.emit)
                            except Exception:
                                log.exception("turn %s failed", scope.run)
                                raise
                            ended = self._ended(request, turn, lease)
                    finally:
                        if self._questions is not None and request.note is not None:
                            await self._questions().turn_ended(session)
        except anyio.get_cancelled_exc_class():
            ended = RunEnded(request.run, Outcome.CANCELLED)
            raise
        finally:
            if ended is not None:
                for after in self._after_turn:
                    after(request, ended)

    @asynccontextmanager
    async def holding(self, session: str, *, new: bool = False) -> AsyncGenerator[Lease]:
        """Hold the session exclusively, within this process too.

        The lease of a `new` session is acquired with its first write.
        """
        if session in self._reserved:
            raise SessionBusy(
                f"Session {session} is in the middle of a turn.",
                hint="Wait for it to finish, or stop it.",
            )
        self._reserved.add(session)
        lease = Lease(self._store, self._holder, Fence(session, 0))
        try:
            if not new:
                await lease.acquire()
            yield lease
        finally:
            try:
                if lease.held:
                    await lease.release()
            finally:
                self._reserved.discard(session)

    def holds(self, session: str) -> bool:
        """Whether this process holds the session."""
        return session in self._reserved

    def _scope(self, turn: TurnRequest) -> Scope:
        session = turn.session
        principal = turn.principal or (OWNER if turn.role is Role.OWNER else session.principal)
        if turn.role is not Role.OWNER and principal == OWNER:
            raise UsageError(
                f"Session {session.id} belongs to the owner: a {turn.role} cannot continue it.",
                hint="Start a new session.",
            )
        return Scope(
            profile=self._profile,
            session=session.id,
            run=turn.run,
            workspace=session.cwd,
            principal=principal,
            address=turn.address,
            later=turn.async_delivery,
            role=turn.role,
            source=turn.source or session.source,
            key=session.key,
            asker=turn.requester,
            attended=turn.attended,
            yolo=turn.yolo,
            bounds=turn.inherited_limits,
        )

    async def _accept(
        self, turn: TurnRequest, scope: Scope, lease: Lease, reading: RunReading
    ) -> _AcceptedTurn:
        """Plan the turn and make its messages durable; from then on it reports its end."""
        history, known = History([]), _NO_IDS
        # If no one held the session before, it has only what was stored when it was opened.
        if not (turn.new or (turn.opened and lease.fence.generation == 1)):
            history, known = await self._history(turn, lease)
        plan = await self._planner.plan(turn.session, scope, history)
        failpoint("runner.planned")
        if turn.note is not None and open_calls(history):
            turn, plan = await self._resume(turn, plan, history, lease)
        # A request cancelled before it was accepted leaves no trace.
        await anyio.lowlevel.checkpoint_if_cancelled()
        accepted = AcceptedMessages()
        # Once accepted, the turn starts and reports its end, even if it is stopped now.
        with anyio.CancelScope(shield=True):
            accepted = await accept_turn(
                turn, plan, known, lease, store=self._store, clock=self._clock
            )
            if turn.note is not None:
                history.add(turn.note)
        failpoint("runner.accepted")
        publish = partial(self.bus.publish, RUN_TOPIC.format(scope.run))
        if self._observers:
            publish = self._observed(publish, turn, scope)
        recorder = Recorder(
            store=self._store,
            clock=self._clock,
            price=self._price,
            scope=scope,
            lease=lease,
            partial=PartialAnswer(self._partial_answers, scope, lease),
            publish=publish,
            accepted=accepted,
            final_writes=reading.final_writes,
            own=isinstance(plan, Plan),
        )
        claimed = (user for user in turn.claimed if user.id not in known)
        return _AcceptedTurn(plan, [*accepted.messages, *claimed], history, recorder)

    def _observed(self, publish: Publish, turn: TurnRequest, scope: Scope) -> Publish:
        observing = [
            notify for observer in self._observers if (notify := observer(turn, scope)) is not None
        ]

        def publish_to_all(event: Event) -> None:
            for notify in (*observing, publish):
                notify(event)

        return publish_to_all

    def _ended(self, request: TurnRequest, turn: _AcceptedTurn, lease: Lease) -> RunEnded:
        """Report how the turn ended, and keep its history for the next one."""
        if lease.lost:
            raise LeaseLost(
                "Another process took over this session while the turn was running.",
                hint="Check what it did before you continue.",
            )
        failpoint("runner.ended")
        if (ended := turn.recorder.ended) is None:
            return RunEnded(request.run, Outcome.CANCELLED)
        if ended.outcome is Outcome.DONE and not request.client_tools:
            # After any other outcome the transcript is read again: only the store has it right.
            self._transcripts.put(request.session.id, lease.fence.generation, turn.history)
        return ended

    async def _resume(
        self, turn: TurnRequest, plan: Plan | RuntimePlan, history: History, lease: Lease
    ) -> tuple[TurnRequest, Plan | RuntimePlan]:
        """Resume calls that only waited for a person; a runtime cannot, so they are closed."""
        if isinstance(plan, Plan):
            return structs.replace(turn, note=None), structs.replace(plan, resumes_calls=True)
        closed = await close_lost_calls(self._store, self._clock, lease.fence, history)
        for message in closed[len(history) :]:
            history.add(message)
        return turn, plan

    def _with_turn_options(
        self, plan: Plan | RuntimePlan, turn: TurnRequest, lease: Lease, steer: ReadSteering
    ) -> Plan | RuntimePlan:
        """Add options for this turn only; the session's own prompt is not changed."""
        system = "\n\n".join(filter(None, [plan.system, turn.instructions]))
        if isinstance(plan, RuntimePlan):
            return structs.replace(plan, steer=steer, system=system)
        excluded, tools = turn.excluded_tools, plan.tools
        if excluded:
            tools = {name: tool for name, tool in tools.items() if name not in excluded}
        if self.compaction is not None:
            job = CompactionJob(turn.session, plan, lease)
            limits, model = self.compaction.limits, plan.model
            plan = structs.replace(
                plan,
                compact=partial(self.compaction.compact, job, turn.instructions),
                max_tokens=compaction_threshold(limits, model.window, model.name, model.provider),
                max_messages=limits.max_messages,
            )
        if turn.spend_cap is not None:
            guard = SpendGuard(self._store, self._clock, SpendCaps(session=turn.spend_cap))
            capped = guard.check_for(turn.session, plan.scope.principal)
            plan = structs.replace(plan, check_spend=both_checks(plan.check_spend, capped))
        return structs.replace(
            plan,
            steer=steer,
            system=system,
            tools={} if turn.no_tools else tools,
            steps=plan.steps if turn.steps is None else min(plan.steps, turn.steps),
            client_tools=turn.client_tools,
            constraints=turn.constraints,
        )

    async def compact(
        self, session: Session, options: CompactionOptions, *, preview: bool = False
    ) -> CompactionResult:
        """Compact a session on a person's request.

        Raises `SessionBusy`, and `UsageError` if there is nothing to compact.
        """
        turn = TurnRequest(session=session, message=None)
        async with self.holding(session.id) as lease:
            history, _ = await self._history(turn, lease)
            plan = await self._planner.plan(session, self._scope(turn), history)
            if isinstance(plan, RuntimePlan):
                return await compact_runtime(
                    plan,
                    options,
                    preview=preview,
                    store=self._store,
                    clock=self._clock,
                    price=self._price,
                )
            if self.compaction is None:
                raise UsageError("Compaction is disabled for this session.")
            if preview:
                return await self.compaction.preview(session, plan, options)
            return await self.compaction.compact_now(CompactionJob(session, plan, lease), options)

    async def _history(self, turn: TurnRequest, lease: Lease) -> tuple[History, AbstractSet[str]]:
        """The history with a result for every call, and all stored message ids."""
        session = turn.session
        history = self._transcripts.take(session.id, lease.fence.generation)
        if history is not None and turn.replaces_from is None and not turn.results:
            return history, {message.id for message in history}
        stored = await self._store.archive_for(session.principal).messages(session.id)
        if not stored:
            return History([]), _NO_IDS
        end = math.inf if turn.replaces_from is None else turn.replaces_from
        kept = [row.message for row in stored if row.seq < end]
        if turn.replaces_from is None:
            kept += await take_partial_answers(self._store, self._clock, session.id, lease.fence)
        kept += await self._take_results(turn, kept, lease)
        whole = await self.close_calls(lease, kept, resumed=turn.note is not None)
        if self.compaction is not None:
            whole = await self.compaction.visible_messages(session, whole)
        return History(whole), {row.message.id for row in stored}

    async def recover_partial_answers(self) -> None:
        """Add the partial answers of dead processes to their transcripts."""
        for left in await self._store.runs.abandoned_partial_texts():
            with suppress(SessionBusy):
                async with self.holding(left.session) as lease:
                    await take_partial_answers(self._store, self._clock, left.session, lease.fence)

    async def close_calls(
        self,
        lease: Lease,
        messages: Sequence[Message],
        *,
        resumed: bool = False,
        started_only: bool = False,
    ) -> list[Message]:
        """Give every lost call of the held session a result; a `resumed` turn keeps open ones."""
        left = NOTHING_RECOVERED
        if self._questions is not None:
            left = await self._questions().recover(lease.fence.session, resumed=resumed)
        return await close_lost_calls(
            self._store, self._clock, lease.fence, messages, left, started_only=started_only
        )

    async def _take_results(
        self, turn: TurnRequest, messages: Sequence[Message], lease: Lease
    ) -> Sequence[Result]:
        """Store the client's results for calls that have none yet."""
        pending = dict(unanswered_calls(messages)) if turn.results else {}
        by_call = {result.call: result for result in turn.results if result.call in pending}
        accepted, now, session = list(by_call.values()), self._clock.now(), turn.session.id
        writes = [AppendMessage(session, turn.run, result, now) for result in accepted]
        await self._store.commit(*writes, fence=lease.fence)
        return accepted
