"""Run one turn of a session: durable in, one runner at a time, durable out."""

import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from typing import Protocol

import anyio
import anyio.lowlevel
import msgspec

from hermes.agent.plan import Compress, Entrusted, Plan
from hermes.agent.repair import History, open_calls, unanswered_calls
from hermes.agent.turn import run_turn
from hermes.kit.clock import Clock
from hermes.kit.failpoints import passing
from hermes.kit.holder import new_holder
from hermes.kit.ids import new_id
from hermes.kit.text import plural
from hermes.ports.counsel import Questions
from hermes.ports.sink import Emit
from hermes.ports.store import (
    Append,
    Store,
)
from hermes.ports.tool import Tool
from hermes.schema.errors import SessionBusy, StoreError, UsageError
from hermes.schema.events import Event, Outcome
from hermes.schema.messages import Message, Result, User
from hermes.schema.scope import OWNER, Role, Scope
from hermes.schema.sessions import Session, Stored
from hermes.session.accepting import Accepting, Turn
from hermes.session.compressing import Compressing, Job, Pressed, Wish
from hermes.session.context import Mirrored
from hermes.session.lease import Heart, Lease
from hermes.session.recall import Recall
from hermes.session.recorder import Accepted, Price, Recorder
from hermes.session.recovery import NOTHING, close_lost_calls
from hermes.session.shortening import Shortening
from hermes.telemetry.logs import AboutSession

log = logging.getLogger(__name__)


class Planner(Protocol):
    async def plan(
        self, session: Session, scope: Scope, history: Sequence[Message]
    ) -> Plan | Entrusted:
        """Choose model, tools and prompt for one turn, or who else is to run it.

        Raises `ConfigError` when it cannot.
        """
        ...


After = Callable[[Turn, Outcome], None]
Onlooker = Callable[[Turn, Scope], Callable[[Event], None] | None]
"""Who hears of a turn besides who asked, if they want to: they are called and not waited for."""
_NOTHING_KNOWN: frozenset[str] = frozenset()


class Runner:
    """Without `compressing`, a session is sent as long as it is."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        planner: Planner,
        price: Price,
        profile: str,
        compressing: Compressing | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._planner = planner
        self._price = price
        self._profile = profile
        self.compressing = compressing
        self._accepting = Accepting(store, clock)
        self._shortening = Shortening(store, clock, price)
        self._holder = new_holder()
        self.heart = Heart(clock)
        self._held: set[str] = set()
        self._recall = Recall()
        self._after: list[After] = []
        self._onlooker: Onlooker | None = None
        self._questions: Questions | None = None

    def minds(self, questions: Questions) -> None:
        """Who knows what was asked of people, so that a turn goes on where it waited for one."""
        self._questions = questions

    async def close_questions(self) -> None:
        """Those of turns that are not taken up again."""
        if self._questions is not None:
            await self._questions.sweep()

    def then(self, after: After) -> None:
        """Who hears of a turn once its answer is on its way; nobody waits for what they do."""
        self._after.append(after)

    def is_overheard_by(self, onlooker: Onlooker) -> None:
        self._onlooker = onlooker

    async def aclose(self) -> None:
        """No lease is renewed any more."""
        await self.heart.stop()

    async def run(self, turn: Turn) -> Outcome:
        """Accept the message, then answer it. Raises `SessionBusy` before anything is accepted."""
        async with self.holding(turn.session.id, new=turn.new) as lease:
            try:
                outcome = await self._run_held(turn, lease)
            finally:
                if self._questions is not None:
                    await self._questions.over(turn.session.id)
        for after in self._after:
            after(turn, outcome)
        return outcome

    @asynccontextmanager
    async def holding(self, session: str, *, new: bool = False) -> AsyncGenerator[Lease]:
        """Keep everybody else, also in this process, from changing the session.

        Of a `new` one nobody knows yet: its lease is taken with its first row.
        """
        with _Reserved(self._held, session):
            lease = Lease(self._store, session, self._holder)
            try:
                if not new:
                    await lease.take()
                yield lease
            finally:
                await lease.give_back()

    async def _run_held(self, turn: Turn, lease: Lease) -> Outcome:
        passing("runner.held")
        scope = self._scope(turn)
        # Foreign code reads who it works for from its context; it is bound here and nowhere else.
        with Mirrored(scope), AboutSession(scope.session):
            return await self._run_in(scope, turn, lease)

    def _scope(self, turn: Turn) -> Scope:
        session = turn.session
        principal = turn.principal or (OWNER if turn.role is Role.OWNER else session.principal)
        if turn.role is not Role.OWNER and principal == OWNER:
            raise UsageError(
                f"Session {session.id} belongs to the owner: a {turn.role} cannot continue it.",
                hint="Begin a new session.",
            )
        return Scope(
            profile=self._profile,
            session=session.id,
            run=turn.run or new_id("run"),
            workspace=session.cwd,
            principal=principal,
            address=turn.address,
            later=turn.later,
            role=turn.role,
            source=turn.source or session.source,
            key=session.key,
            asker=turn.asker,
            attended=turn.attended,
            yolo=turn.yolo,
            bounds=turn.bounds,
        )

    async def _run_in(self, scope: Scope, turn: Turn, lease: Lease) -> Outcome:
        session = turn.session
        history, known = await self._history(turn, lease)
        plan = await self._planner.plan(session, scope, history)
        passing("runner.planned")
        if turn.note is not None and open_calls(history):
            turn, plan = await self._going_on(turn, plan, history, lease)
        # Whoever left before it was accepted has asked nothing.
        await anyio.lowlevel.checkpoint_if_cancelled()
        accepted = Accepted()
        # Once it is accepted the turn starts, and says how it ends: also if it is stopped now.
        with anyio.CancelScope(shield=True):
            accepted = await self._accepting.accept(turn, plan, known, lease)
            if turn.note is not None:
                history.add(turn.note)
        passing("runner.accepted")
        recorder = Recorder(self._store, self._clock, self._price, scope, lease)
        listen = self._overheard(turn, scope)
        emit = recorder.sink(accepted, listen, turn.closing, own=isinstance(plan, Plan))
        asked = [*accepted.asked, *(user for user in turn.taken if user.id not in known)]
        plan = self._for_this_turn(plan, turn, lease)
        outcome = await self._beating(lease, plan, asked, emit)
        passing("runner.ended")
        if (ended := recorder.ended) is not None:
            outcome = ended.outcome
            log.info(
                "turn %s: %s, %s, %d tokens in, %d out",
                *(ended.run, ended.code or outcome.value, plural(ended.steps, "step")),
                *(ended.usage.input, ended.usage.output),
            )
        if outcome is Outcome.DONE and not turn.handed:
            # After trouble the transcript is read again: only the disk knows what is in it.
            self._recall.keep(session.id, lease.generation, history)
        return outcome

    def _overheard(self, turn: Turn, scope: Scope) -> Emit:
        hear = self._onlooker(turn, scope) if self._onlooker is not None else None
        if hear is None:
            return turn.listen

        async def listen(event: Event) -> None:
            hear(event)
            await turn.listen(event)

        return listen

    async def _going_on(
        self, turn: Turn, plan: Plan | Entrusted, history: History, lease: Lease
    ) -> tuple[Turn, Plan | Entrusted]:
        """What only waited for a person was not interrupted; elsewhere nobody can take it up."""
        if isinstance(plan, Plan):
            return msgspec.structs.replace(turn, note=None), msgspec.structs.replace(
                plan, resumes=True
            )
        closed = await close_lost_calls(self._store, self._clock, lease.fence, history)
        for message in closed[len(history) :]:
            history.add(message)
        return turn, plan

    def _for_this_turn(self, plan: Plan | Entrusted, turn: Turn, lease: Lease) -> Plan | Entrusted:
        """With what this turn alone is given: the session's own prompt stays as it is."""
        system = "\n\n".join(filter(None, [plan.system, turn.instructions]))
        if isinstance(plan, Entrusted):
            return msgspec.structs.replace(plan, steer=turn.steer, system=system)
        return msgspec.structs.replace(
            plan,
            steer=turn.steer,
            system=system,
            tools=_tools(plan, turn),
            steps=plan.steps if turn.steps is None else min(plan.steps, turn.steps),
            handed=turn.handed,
            calling=turn.calling,
            compress=self._compress(plan, turn, lease),
        )

    def _compress(self, plan: Plan, turn: Turn, lease: Lease) -> Compress | None:
        """A way to make room."""
        if self.compressing is None:
            return plan.compress
        return self.compressing.during(Job(turn.session, plan, lease), turn.instructions)

    async def compress(self, session: Session, wish: Wish, *, preview: bool = False) -> Pressed:
        """Tell what was said so far in short, because a person wants it.

        Raises `SessionBusy`, and `UsageError` when there is nothing to be made shorter.
        """
        turn = Turn(session=session, asked=None, listen=_nobody)
        async with self.holding(session.id) as lease:
            history, _ = await self._history(turn, lease)
            plan = await self._planner.plan(session, self._scope(turn), history)
            if isinstance(plan, Entrusted):
                return await self._shortening.by_hand(plan, wish, preview=preview)
            if self.compressing is None:
                raise UsageError("This session is not compressed here.")
            if preview:
                return await self.compressing.preview(session, plan, wish)
            return await self.compressing.by_hand(Job(session, plan, lease), wish)

    async def _history(self, turn: Turn, lease: Lease) -> tuple[History, AbstractSet[str]]:
        """What was said so far, with an end for every call, and the ids of all there is."""
        session = turn.session
        if turn.new:
            return History([]), _NOTHING_KNOWN
        history = self._recall.take(session.id, lease.generation)
        if history is not None and turn.replaces is None and not turn.results:
            return history, {message.id for message in history}
        stored = await self._store.seen_by(session.principal).messages(session.id)
        kept = [row.message for row in stored if not _is_replaced(row, turn)]
        kept += await self._take_results(turn, kept, lease)
        whole = await self.closed(lease, kept, resumed=turn.note is not None)
        if self.compressing is not None:
            whole = await self.compressing.seen(session, whole)
        return History(whole), {row.message.id for row in stored}

    async def closed(
        self,
        lease: Lease,
        said: Sequence[Message],
        *,
        resumed: bool = False,
        begun_only: bool = False,
    ) -> list[Message]:
        """With an end for every call, for who holds the session; a `resumed` turn goes on."""
        left = NOTHING
        if self._questions is not None:
            left = await self._questions.left(lease.session, resumed=resumed)
        return await close_lost_calls(
            self._store, self._clock, lease.fence, said, left, begun_only=begun_only
        )

    async def _take_results(
        self, turn: Turn, said: Sequence[Message], lease: Lease
    ) -> Sequence[Result]:
        """Write down what came of the calls that were handed out and that still wait."""
        waiting = dict(unanswered_calls(said)) if turn.results else {}
        taken: dict[str, Result] = {
            result.call: result for result in turn.results if result.call in waiting
        }
        now, session = self._clock.now(), turn.session.id
        writes = [Append(session, turn.run, one, now) for one in taken.values()]
        await self._store.commit(*writes, fence=lease.fence)
        return list(taken.values())

    async def _beating(
        self, lease: Lease, plan: Plan | Entrusted, asked: Sequence[User], emit: Emit
    ) -> Outcome:
        """Run the turn while renewing the lease; a lost lease ends the turn."""
        outcome = Outcome.CANCELLED
        with self.heart.beating(lease):
            try:
                outcome = await run_turn(plan, asked, emit)
            except Exception:
                log.exception("the turn %s broke", plan.scope.run)
                raise
        if lease.lost:
            raise StoreError(
                "Another process took over this session while the turn was running.",
                hint="Look at what it did before going on.",
            )
        return outcome


class _Reserved:
    """Keeps the others of this process from a session for the length of a block."""

    __slots__ = ("_held", "_session")

    def __init__(self, held: set[str], session: str) -> None:
        self._held = held
        self._session = session

    def __enter__(self) -> None:
        if self._session in self._held:
            raise SessionBusy(
                f"Session {self._session} is in the middle of a turn.",
                hint="Wait for its end, or stop it.",
            )
        self._held.add(self._session)

    def __exit__(self, *_: object) -> None:
        self._held.discard(self._session)


async def _nobody(event: Event) -> None:
    """Nothing is told of what is not a turn."""


def _tools(plan: Plan, turn: Turn) -> Mapping[str, Tool]:
    if turn.bare:
        return {}
    if not turn.without:
        return plan.tools
    return {name: tool for name, tool in plan.tools.items() if name not in turn.without}


def _is_replaced(row: Stored, turn: Turn) -> bool:
    return turn.replaces is not None and row.seq >= turn.replaces
