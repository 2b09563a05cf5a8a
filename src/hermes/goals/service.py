"""Set, change and pursue the goals of sessions; every surface uses this service."""

import logging
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import anyio
from anyio.abc import TaskGroup
from msgspec import structs

from hermes.goals.judge import (
    MAX_BYTES,
    MAX_MESSAGES,
    Judge,
    Judgment,
    UnusableAnswer,
    Verdict,
    goal_text,
)
from hermes.kit.clock import Clock
from hermes.kit.failpoints import failpoint
from hermes.kit.text import plural
from hermes.ports.goals import DeleteGoal, Goal, GoalState, SaveGoal
from hermes.ports.store import Store, Write
from hermes.schema.errors import HermesError, NotFound, StateConflict, UsageError
from hermes.schema.events import Outcome
from hermes.schema.scope import OWNER, Scope
from hermes.schema.sessions import Session

log = logging.getLogger(__name__)

MAX_TEXT = 4_000
MAX_SUBGOALS = 20
MAX_DOUBTS = 3
"""Consecutive unusable verdicts after which the goal is paused."""
_CONTINUE = Path(__file__).with_name("continue.md")
_FLAG = re.compile(r"--(max-turns|max-cost)[ =](\S+)\s+")
_HINT = "/goal resume continues, /goal clear drops it."
_NO_GOAL = "This session has no goal. Set one: /goal TEXT"
_CHECKING = "Checking whether the goal is met."
STOPPED = "The turn was stopped."
_TRIES = 5


class GoalDelivery(Protocol):
    def turn_rows(self, scope: Scope, key: str, text: str) -> Sequence[Write]:
        """Return the inbox row of the session's next turn, once per key."""
        ...

    def drop_rows(self, prefix: str, request_ids: Sequence[str]) -> Sequence[Write]:
        """Return writes that remove the inbox rows of turns by key prefix, except those `begun`."""
        ...

    def wake(self, scope: Scope) -> None:
        """Wake the session after the commit."""
        ...

    async def is_busy(self, scope: Scope) -> bool:
        """Whether a turn of the session is running or waits in its inbox."""
        ...

    async def current_scope(self, scope: Scope) -> Scope:
        """The scope in which the session continues now, such as in another chat."""
        ...

    def continues_alone(self, scope: Scope) -> bool:
        """Whether the gateway runs the session's turns without a client requesting them."""
        ...

    def can_continue(self, scope: Scope) -> bool:
        """Whether turns can run: false for a chat whose address is unknown."""
        ...

    def notice_rows(self, scope: Scope, key: str, text: str) -> Sequence[Write]:
        """The outbox row of a notice to the session's chat; none at a terminal."""
        ...

    def report_check(self, scope: Scope, text: str) -> None:
        """Show at a terminal that a verdict is being made."""
        ...

    def notify(self, scope: Scope, text: str) -> None:
        """After the commit: wake the delivery to a chat, or show the notice at a terminal."""
        ...


class GoalService:
    """`tasks` lives as long as the profile is open."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        judge: Judge,
        delivery: GoalDelivery,
        profile: str,
        max_turns: int,
        max_cost: float | None,
        tasks: TaskGroup,
    ) -> None:
        self._store = store
        self._clock = clock
        self._judge = judge
        self._delivery = delivery
        self._profile = profile
        self._max_turns = max_turns
        self._max_cost = max_cost
        self._tasks = tasks

    async def find(self, session: str) -> Goal:
        """Raises `NotFound` if the session has no goal."""
        goal = await self._store.goals.get(session)
        if goal is None:
            raise NotFound(_NO_GOAL)
        return goal

    async def set(self, scope: Scope, text: str) -> Goal:
        """Replace the session's goal; `text` may begin with `--max-turns N` and `--max-cost X`.

        The caller starts the first turn.
        """
        goal = await self._new_goal(scope, *self._parse(text))
        return await self._save(goal, *await self._drop_turns(goal))

    async def set_for_session(
        self,
        session: str,
        text: str,
        *,
        subgoals: Sequence[str] = (),
        max_turns: int | None = None,
        max_cost: float | None = None,
    ) -> Goal:
        """Replace the goal of a stored session and start the first turn. Raises `NotFound`."""
        turns, cost = max_turns or self._max_turns, max_cost or self._max_cost
        goal = await self._new_goal(await self._stored_scope(session), text, turns, cost)
        parts = tuple(map(_checked, subgoals))
        if len(parts) > MAX_SUBGOALS:
            raise UsageError(f"A goal can have at most {MAX_SUBGOALS} parts.")
        return await self.start(structs.replace(goal, subgoals=parts))

    async def _stored_scope(self, session: str) -> Scope:
        found = await self._store.archive_for(OWNER).get(session)
        scope = Scope(
            profile=self._profile,
            session=found.id,
            run="",
            workspace=found.cwd,
            principal=found.principal,
            source=found.source,
            key=found.key,
        )
        location = await self._store.chats.location(found.id)
        if location is not None:
            scope = structs.replace(
                scope, address=location.address, role=location.role, asker=location.asker
            )
        if not self._delivery.can_continue(scope):
            raise UsageError("The session belongs to a chat.", hint="Set the goal there: /goal")
        return scope

    async def draft(self, scope: Scope, text: str) -> Goal:
        """Return a paused goal whose conditions a model wrote; `resume` starts it."""
        goal = await self._new_goal(scope, *self._parse(text))
        session = await self._session(goal) or Session(id=scope.session, started_at=goal.created_at)
        conditions = await self._judge.draft(session, goal.text)
        draft = structs.replace(
            goal,
            subgoals=tuple(conditions[:MAX_SUBGOALS]),
            state=GoalState.PAUSED,
            reason="This is a draft.",
        )
        return await self._save(draft)

    async def pause(self, session: str) -> Goal:
        goal = await self.find(session)
        if goal.state is not GoalState.ACTIVE:
            raise UsageError(f"The goal is not active; it is {goal.state.value}.")
        paused = structs.replace(goal, state=GoalState.PAUSED, reason="You paused it.")
        saved = await self._save(paused, *await self._drop_turns(goal))
        self._delivery.wake(goal.scope)  # the session reads its queue again
        return saved

    async def resume(self, session: str) -> Goal:
        """Continue immediately, with a fresh budget of turns and money."""
        goal = await self.find(session)
        if goal.state is GoalState.DONE:
            raise UsageError("The goal is already met.", hint="Set a new one: /goal TEXT")
        if goal.state is GoalState.ACTIVE and await self._delivery.is_busy(goal.scope):
            self._delivery.wake(goal.scope)  # a process that ended may have left the turn
            return goal
        resumed = structs.replace(
            goal,
            state=GoalState.ACTIVE,
            turns=0,
            doubts=0,
            cost_before=await self._store.goals.cost(session),
            wait_pid=None,
        )
        return await self.start(resumed)

    async def start(self, goal: Goal) -> Goal:
        """Put the next turn into the session's inbox, instead of one that waits there."""
        return await self._continue(goal, writes=await self._drop_turns(goal))

    async def clear(self, session: str) -> Goal:
        goal = await self.find(session)
        await self._store.commit(DeleteGoal(session), *await self._drop_turns(goal))
        self._delivery.wake(goal.scope)
        return goal

    async def add_subgoal(self, session: str, text: str) -> Goal:
        goal = await self.find(session)
        if len(goal.subgoals) >= MAX_SUBGOALS:
            raise UsageError(f"A goal can have at most {MAX_SUBGOALS} parts.")
        return await self._with_subgoals(goal, (*goal.subgoals, _checked(text)))

    async def remove_subgoal(self, session: str, number: int) -> Goal:
        goal = await self.find(session)
        if not 1 <= number <= len(goal.subgoals):
            raise UsageError(
                f"The goal has no part {number}; it has {plural(len(goal.subgoals), 'part')}."
            )
        left = (*goal.subgoals[: number - 1], *goal.subgoals[number:])
        return await self._with_subgoals(goal, left)

    async def clear_subgoals(self, session: str) -> Goal:
        return await self._with_subgoals(await self.find(session), ())

    async def wait(self, session: str, pid: int) -> Goal:
        """Start no turn until that process has ended."""
        goal = await self.find(session)
        if goal.state is not GoalState.ACTIVE:
            raise UsageError(f"The goal is not active; it is {goal.state.value}.")
        if not _is_running(pid):
            raise UsageError(f"There is no process {pid}.")
        saved = await self._save(structs.replace(goal, wait_pid=pid))
        self._tasks.start_soon(self._wait_for_process, session, pid)
        return saved

    async def unwait(self, session: str) -> Goal:
        goal = await self.find(session)
        if goal.wait_pid is None:
            raise UsageError("The goal is not waiting for a process.")
        goal = structs.replace(goal, wait_pid=None)
        return await (self._proceed if goal.state is GoalState.ACTIVE else self._save)(goal)

    async def cost(self, goal: Goal) -> float:
        """Known cost of the session and its subagents since the goal was set."""
        return max(await self._store.goals.cost(goal.session) - goal.cost_before, 0.0)

    def turn_ended(self, session: str, outcome: Outcome) -> None:
        """Judge the session's goal in the background."""
        self._tasks.start_soon(self._after_turn, session, outcome)

    async def recover(self) -> None:
        """Resume goals left by a dead process, in sessions that continue by themselves."""
        try:
            for goal in await self._store.goals.active():
                if not self._delivery.continues_alone(goal.scope):
                    continue
                if goal.wait_pid is not None:
                    self._tasks.start_soon(self._wait_for_process, goal.session, goal.wait_pid)
                elif not await self._delivery.is_busy(goal.scope):
                    self.turn_ended(goal.session, Outcome.DONE)
        except HermesError as error:
            log.warning("goals wait for the next start of the gateway: %s", error)

    async def _after_turn(self, session: str, outcome: Outcome) -> None:
        try:
            goal = await self._store.goals.get(session)
            for _ in range(_TRIES):
                if goal is None or goal.state is not GoalState.ACTIVE:
                    return
                goal = await self._try_to_handle_end(goal, outcome)
            log.warning("the goal of session %s kept changing", session)
        except HermesError as error:
            log.warning("the goal of session %s cannot be pursued: %s", session, error)
        except Exception:
            # Runs in the task group of the whole profile.
            log.exception("the goal of session %s cannot be pursued", session)

    async def _try_to_handle_end(self, goal: Goal, outcome: Outcome) -> Goal | None:
        """Reload the goal: it may have changed since, such as its parts."""
        try:
            await self._handle_end(goal, outcome)
        except StateConflict as error:
            log.info("%s", error)
        else:
            return None
        changed = await self._store.goals.get(goal.session)
        # A different goal starts with a turn of its own.
        same = changed is not None and changed.created_at == goal.created_at
        return changed if same else None

    async def _handle_end(self, goal: Goal, outcome: Outcome) -> None:
        before, scope = goal.scope, await self._delivery.current_scope(goal.scope)
        goal = structs.replace(goal, scope=scope)
        if (scope.principal, scope.role) != (before.principal, before.role):
            # Their text must not become an instruction with the rights of someone else.
            await self._pause(goal, "Someone else continues the session.")
            return
        if await self._delivery.is_busy(scope):
            return  # the user's message goes first; the end of that turn is judged
        match outcome:
            case Outcome.CANCELLED:
                await self._pause(goal, STOPPED)
            case Outcome.FAILED:
                await self._pause(goal, "The turn failed.")
            case Outcome.DONE | Outcome.EXHAUSTED:
                if goal.wait_pid is None:
                    await self._judge_turn(structs.replace(goal, turns=goal.turns + 1))

    async def _judge_turn(self, goal: Goal) -> None:
        session = await self._session(goal)
        if session is None or session.ended_at is not None:
            await self._pause(goal, "Its session was ended.")
            return
        archive = self._store.archive_for(OWNER)
        tail = await archive.tail(goal.session, MAX_MESSAGES, MAX_BYTES)
        self._delivery.report_check(goal.scope, _CHECKING)
        try:
            messages = [row.message for row in tail.rows]
            judgment = await self._judge.judge(goal_text(goal), session, messages)
        except UnusableAnswer as error:
            goal = structs.replace(goal, doubts=goal.doubts + 1)
            if goal.doubts >= MAX_DOUBTS:
                await self._pause(goal, str(error))
                return
            judgment = Judgment(Verdict.NOT_MET, "Show that it is done, or do what is missing.")
        except HermesError as error:
            await self._pause(goal, f"The judge could not be asked: {error}")
            return
        else:
            goal = structs.replace(goal, doubts=0)
        failpoint("goals.judged")
        if await self._delivery.is_busy(goal.scope):
            await self._save(goal)  # a message arrived meanwhile: the end of its turn is judged
            return
        await self._apply(goal, judgment)

    async def _apply(self, goal: Goal, judgment: Judgment) -> None:
        goal = structs.replace(goal, reason=judgment.reason, evidence=judgment.evidence)
        match judgment.verdict:
            case Verdict.MET:
                done = structs.replace(goal, state=GoalState.DONE)
                await self._save_with_notice(done, met_text(done))
            case Verdict.BLOCKED:
                await self._pause(goal, judgment.reason or "The judge is undecided.")
            case Verdict.NOT_MET:
                await self._proceed(goal)

    async def _proceed(self, goal: Goal) -> Goal:
        """Start the next turn, unless a limit is reached."""
        if goal.turns >= goal.max_turns:
            return await self._pause(goal, f"It took {plural(goal.turns, 'turn')}, the limit.")
        if goal.max_cost is not None and (spent := await self.cost(goal)) >= goal.max_cost:
            return await self._pause(
                goal, f"It cost ${spent:.2f}; the limit is ${goal.max_cost:g}."
            )
        progress = f"Goal, turn {goal.turns + 1} of {goal.max_turns}. {goal.reason}".strip()
        return await self._continue(goal, progress)

    async def _continue(
        self, goal: Goal, progress: str = "", *, writes: Sequence[Write] = ()
    ) -> Goal:
        text = _CONTINUE.read_text("utf-8").format(
            turn=goal.turns + 1,
            max_turns=goal.max_turns,
            goal=goal_text(goal),
            reason=goal.reason or "nothing was checked yet.",
        )
        rows = self._delivery.turn_rows(goal.scope, _next_key(goal), text.strip())
        saved = await self._save_with_notice(goal, progress, [*writes, *rows])
        self._delivery.wake(goal.scope)
        return saved

    async def _pause(self, goal: Goal, reason: str) -> Goal:
        paused = structs.replace(goal, state=GoalState.PAUSED, reason=reason)
        return await self._save_with_notice(paused, f"Goal paused. {reason} {_HINT}")

    async def _save_with_notice(
        self, goal: Goal, notice: str, writes: Sequence[Write] = ()
    ) -> Goal:
        """Commit the goal, its next turn and the notice together."""
        key = f"{_next_key(goal)}:notice"
        notices = self._delivery.notice_rows(goal.scope, key, notice) if notice else ()
        saved = await self._save(goal, *writes, *notices)
        if notice:
            self._delivery.notify(goal.scope, notice)
        return saved

    async def _drop_turns(self, goal: Goal) -> Sequence[Write]:
        """Drop waiting turns: they must not run for a goal that is no longer pursued."""
        prefix = f"goal:{goal.session}:"
        try:
            stored = await self._store.archive_for(OWNER).messages(goal.session)
        except NotFound:
            stored = ()
        # A turn has begun when its message is in the transcript; that one ends by itself.
        request_ids = tuple(row.message.id for row in stored if row.message.id.startswith(prefix))
        return self._delivery.drop_rows(prefix, request_ids)

    async def _save(self, goal: Goal, *writes: Write) -> Goal:
        await self._store.commit(SaveGoal(goal), *writes)
        return structs.replace(goal, revision=goal.revision + 1)

    async def _new_goal(self, scope: Scope, text: str, turns: int, cost: float | None) -> Goal:
        before, now = await self._store.goals.get(scope.session), self._clock.now()
        return Goal(
            session=scope.session,
            text=_checked(text),
            scope=scope,
            created_at=now if before is None else max(now, before.created_at),
            revision=0 if before is None else before.revision,
            max_turns=turns,
            max_cost=cost,
            cost_before=await self._store.goals.cost(scope.session),
        )

    def _parse(self, text: str) -> tuple[str, int, float | None]:
        """Split leading limits off the text. Raises `UsageError`."""
        turns, cost, rest = self._max_turns, self._max_cost, f"{text.strip()} "
        while found := _FLAG.match(rest):
            name, value = found.groups()
            rest = rest[found.end() :]
            try:
                if name == "max-turns":
                    turns = int(value)
                else:
                    cost = float(value.removeprefix("$"))
            except ValueError as error:
                raise UsageError(f"--{name} needs a number, not {value!r}.") from error
        if turns < 1 or (cost is not None and not cost > 0):
            raise UsageError("The limits of a goal must be greater than zero.")
        return rest.strip(), turns, cost

    async def _with_subgoals(self, goal: Goal, subgoals: tuple[str, ...]) -> Goal:
        return await self._save(structs.replace(goal, subgoals=subgoals))

    async def _session(self, goal: Goal) -> Session | None:
        try:
            return await self._store.archive_for(OWNER).get(goal.session)
        except NotFound:
            return None

    async def _wait_for_process(self, session: str, pid: int) -> None:
        await wait_for_exit(pid)
        try:
            goal = await self._store.goals.get(session)
            if goal is None or goal.wait_pid != pid or goal.state is not GoalState.ACTIVE:
                return
            reason = f"The process {pid} has ended."
            await self._proceed(structs.replace(goal, wait_pid=None, reason=reason))
        except HermesError as error:
            log.warning("the goal of session %s cannot be pursued: %s", session, error)


def _next_key(goal: Goal) -> str:
    """Names the next change; revisions begin again after `clear`, so they are not enough."""
    return f"goal:{goal.session}:{goal.created_at.timestamp():.6f}:{goal.revision + 1}"


def met_text(goal: Goal) -> str:
    quotes = ", ".join(f"“{quote}”" for quote in goal.evidence)
    return f"Goal met after {plural(goal.turns, 'turn')}. {goal.reason} Evidence: {quotes}"


def _checked(text: str) -> str:
    text = text.strip()
    if not text:
        raise UsageError("A goal needs a text.", hint="For example: /goal make the tests pass")
    if len(text) > MAX_TEXT:
        raise UsageError(f"The text is longer than {MAX_TEXT:,} characters.")
    return text


def _is_running(pid: int) -> bool:
    return pid > 0 and Path(f"/proc/{pid}").exists()


async def wait_for_exit(pid: int) -> None:
    """Return when the process has ended, or at once if there is none."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return
    try:
        await anyio.wait_readable(handle)
    finally:
        os.close(handle)
