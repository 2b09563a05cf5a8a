"""A session works on its goal until a judge says, with evidence, that it is met."""

import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import anyio
import msgspec
import pytest
from msgspec import Raw, structs

from hermes.app.followup_router import FollowupRouter
from hermes.app.goals import SessionGoals
from hermes.app.session_notices import SessionNotices
from hermes.bus.memory import MemoryBus
from hermes.gateway.messages import CHAT_KEY_PREFIX, INBOX
from hermes.goals.judge import (
    Judge,
    Judgment,
    UnusableAnswer,
    answer_text,
    found_quotes,
    parse_answer,
    transcript_text,
)
from hermes.goals.service import GoalService
from hermes.kit.tasks import background_tasks
from hermes.ports.chat_records import PutSessionLocation, SessionLocation
from hermes.ports.goals import Goal, GoalState, SaveGoal
from hermes.ports.model import Model
from hermes.ports.store import ChangeSession, RecordUsage
from hermes.schema.errors import NotFound, Unreachable, UsageError
from hermes.schema.events import Outcome
from hermes.schema.messages import (
    Assistant,
    Result,
    Stop,
    Text,
    ToolCall,
    Trust,
    Usage,
    User,
    text_of,
)
from hermes.schema.scope import OWNER, Address, Requester, Role, Scope
from hermes.schema.sessions import Session, SessionChange
from hermes.store.memory import MemoryDatabase
from hermes.testing.clock import FakeClock, wait_until_idle
from hermes.testing.scripted_model import Script, ScriptedModel, answer_script
from support.conversation import HANGING_SCRIPT, ConversationHarness, conversation_harness

NOT_MET = '{"verdict": "not_met", "reason": "Run the tests."}'
MET = '{"verdict": "met", "reason": "All pass.", "evidence": ["12 passed"]}'


class GoalHarness:
    """The surface of a terminal: it starts a turn if something arrived in the session."""

    def __init__(
        self, talk: ConversationHarness, service: GoalService, judge: ScriptedModel,
        followups: FollowupRouter, notices: SessionNotices, clock: FakeClock,
    ) -> None:  # fmt: skip
        self.talk = talk
        self.service = service
        self.judge = judge
        self.notices = notices
        self.clock = clock
        self.may_judge = anyio.Event()
        self.may_judge.set()
        self._followups = followups

    @property
    def session(self) -> str:
        return self.talk.conversation.session.id

    @property
    def scope(self) -> Scope:
        return Scope(profile="default", session=self.session, run="", workspace="/work")

    async def set(self, text: str) -> None:
        """As `/goal TEXT` does: the first turn is the user's own message."""
        goal = await self.service.set(self.scope, text)
        await self.talk.submit(goal.text)
        await wait_until_idle()

    async def work(self) -> int:
        """Run turns as long as some are waiting; return how many."""
        turns = 0
        while await self._followups.has_followups(self.session):
            await self.talk.conversation.submit(None, self.talk.ear)
            await wait_until_idle()
            turns += 1
        return turns

    async def goal(self) -> Goal:
        return await self.service.find(self.session)


@asynccontextmanager
async def goal_harness(
    turns: Sequence[Script],
    verdicts: Sequence[str | Script],
    *,
    max_turns: int = 20,
    max_cost: float | None = None,
    database: MemoryDatabase | None = None,
) -> AsyncGenerator[GoalHarness]:
    clock = FakeClock()
    judge = ScriptedModel(
        *(answer_script(one) if isinstance(one, str) else one for one in verdicts)
    )
    async with (
        conversation_harness(*turns, clock=clock, database=database) as talk,
        background_tasks() as tasks,
    ):

        async def model(session: Session) -> Model:
            await harness.may_judge.wait()
            return judge

        async def record(session: Session, answer: Assistant) -> None:
            usage = RecordUsage(session.id, "", "judge", "testing", Usage(1, 1), 0.25, clock.now())
            await talk.store.commit(usage)

        bus = MemoryBus()
        followups = FollowupRouter(talk.store, bus)
        notices = SessionNotices(clock, bus)
        service = GoalService(
            store=talk.store,
            clock=clock,
            judge=Judge(model=model, record=record, redact=str, timeout=60),
            delivery=SessionGoals(store=talk.store, followups=followups, notices=notices),
            profile="default",
            max_turns=max_turns,
            max_cost=max_cost,
            tasks=tasks,
        )
        talk.after_turn.append(lambda turn, end: service.turn_ended(turn.session.id, end.outcome))
        harness = GoalHarness(talk, service, judge, followups, notices, clock)
        yield harness


async def test_turns_follow_until_the_judge_has_evidence() -> None:
    turns = [answer_script("I will."), answer_script("Done: 12 passed.")]
    async with goal_harness(turns, [NOT_MET, MET]) as one:
        await one.set("make the tests pass")
        assert await one.work() == 1
        goal = await one.goal()
        assert (goal.state, goal.turns, goal.evidence) == (GoalState.DONE, 2, ("12 passed",))
        notices = one.notices.take(one.session)
        assert notices[0] == "Goal, turn 2 of 20. Run the tests."
        assert notices[1].startswith("Goal met after 2 turns. All pass.")
        questions = [m for m in one.talk.model.requests[1].messages if isinstance(m, User)]
        assert any(
            "make the tests pass" in text_of(m) and "Run the tests." in text_of(m)
            for m in questions
        )
        rows = [row.message for row in await one.talk.rows()]
        (own,) = [m for m in rows if isinstance(m, User) and m.id.startswith("goal:")]
        assert own.trust is Trust.PROGRAM
        shown = text_of(one.judge.requests[1].messages[0])
        assert "12 passed" in shown
        assert "PERSON: make the tests pass" in shown
        assert "turn 2 of" not in shown  # our own words are no evidence


async def test_verdict_without_evidence_is_a_doubt_and_pauses_after_three() -> None:
    claim = '{"verdict": "met", "reason": "Sure.", "evidence": ["make the tests pass"]}'
    turns = [answer_script("All is well.") for _ in range(5)]
    async with goal_harness(turns, [claim, "no JSON at all", '{"verdict": "perhaps"}']) as one:
        await one.set("make the tests pass")
        assert await one.work() == 2
        goal = await one.goal()
        assert (goal.state, goal.doubts) == (GoalState.PAUSED, 3)
        assert "cannot be read" in goal.reason


def test_deeply_nested_answer_cannot_be_used() -> None:
    with pytest.raises(UnusableAnswer):
        parse_answer('{"a": ' + "[" * 100_000 + "}", Judgment)


async def test_limits_of_turns_and_money_pause_the_goal() -> None:
    turns = [answer_script("working") for _ in range(9)]
    async with goal_harness(turns, [NOT_MET] * 9, max_turns=3) as one:
        await one.set("count to infinity")
        assert await one.work() == 2
        assert "3 turns" in (await one.goal()).reason
        await one.service.resume(one.session)
        assert await one.work() == 3
        await one.service.set(one.scope, "--max-turns 9 --max-cost $0.5 spend it")
        goal = await one.goal()
        assert (goal.text, goal.max_turns, goal.max_cost) == ("spend it", 9, 0.5)
        await one.service.start(goal)
        assert await one.work() == 2  # a turn costs half a cent, a verdict a quarter of a dollar
        assert "the limit is $0.5" in (await one.goal()).reason


async def test_blocked_stopped_failed_and_unjudged_goals_are_paused() -> None:
    blocked = '{"verdict": "blocked", "reason": "It needs the password."}'
    async with goal_harness([answer_script("?")], [blocked]) as one:
        await one.set("log in")
        goal = await one.goal()
        assert (goal.state, goal.reason) == (GoalState.PAUSED, "It needs the password.")
    async with goal_harness([answer_script("?")], [[Unreachable("down")]]) as one:
        await one.set("log in")
        assert "could not be asked" in (await one.goal()).reason
    async with goal_harness([[Unreachable("down")]], []) as one:
        await one.set("log in")
        assert (await one.goal()).reason == "The turn failed."
    async with goal_harness([HANGING_SCRIPT], []) as one, anyio.create_task_group() as group:
        group.start_soon(one.set, "log in")
        await one.talk.wait_until_hanging()
        one.talk.conversation.interrupt()
        await wait_until_idle()
        assert (await one.goal()).reason == "The turn was stopped."
        assert "Goal paused." in one.notices.take(one.session)[0]


async def test_message_of_the_user_during_the_verdict_goes_first() -> None:
    turns: list[Script] = [answer_script("one"), HANGING_SCRIPT]
    async with goal_harness(turns, [NOT_MET, NOT_MET]) as one:
        one.may_judge = anyio.Event()
        await one.set("work")
        async with anyio.create_task_group() as group:
            group.start_soon(one.talk.submit, "do this first")
            await one.talk.wait_until_hanging()
            one.may_judge.set()
            await wait_until_idle()
            goal = await one.goal()
            assert (goal.state, goal.turns) == (GoalState.ACTIVE, 1)
            waiting = await one.talk.store.queues.claim("inbox", one.session, "me", None)
            assert [item.key for item in waiting if item.key.startswith("goal:")] == []
            one.talk.conversation.interrupt()


async def test_subgoals_are_judged_with_the_goal() -> None:
    async with goal_harness([answer_script("x")], [NOT_MET]) as one:
        await one.service.set(one.scope, "tidy up")
        await one.service.add_subgoal(one.session, "sort the mail")
        await one.service.add_subgoal(one.session, "empty the bin")
        await one.service.remove_subgoal(one.session, 1)
        await one.talk.submit("tidy up")
        await wait_until_idle()
        shown = text_of(one.judge.requests[0].messages[0])
        assert "1. empty the bin" in shown
        assert "sort the mail" not in shown
        with pytest.raises(UsageError):
            await one.service.remove_subgoal(one.session, 2)
        await one.service.clear(one.session)
        with pytest.raises(NotFound):
            await one.goal()


async def test_parts_added_during_the_verdict_are_judged_too() -> None:
    async with goal_harness([answer_script("one")], [NOT_MET, NOT_MET]) as one:
        one.may_judge = anyio.Event()
        await one.set("work")
        await one.service.add_subgoal(one.session, "sort the mail")
        one.may_judge.set()
        await wait_until_idle()
        assert "sort the mail" in text_of(one.judge.requests[1].messages[0])
        assert await one.talk.store.queues.topics("inbox") == [one.session]
        assert (await one.goal()).turns == 1


async def test_goal_after_a_cleared_one_has_turns_of_its_own() -> None:
    turns = [answer_script("working") for _ in range(5)]
    async with goal_harness(turns, [NOT_MET] * 5, max_turns=2) as one:
        await one.set("the first")
        assert await one.work() == 1
        await one.service.clear(one.session)
        await one.clock.advance(1)
        one.may_judge = anyio.Event()
        await one.set("the second")
        await one.service.clear(one.session)
        await one.clock.advance(1)
        await one.service.set(one.scope, "the third")
        one.may_judge.set()  # the verdict about the second is of no interest any more
        await wait_until_idle()
        assert (await one.goal()).text == "the third"
        await one.talk.submit("the third")
        await wait_until_idle()
        assert await one.work() == 1
        assert "2 turns" in (await one.goal()).reason


async def test_paused_goal_stays_paused_when_its_wait_ends() -> None:
    async with goal_harness([], []) as one:
        await one.service.set(one.scope, "build it")
        await one.service.wait(one.session, os.getpid())
        await one.service.pause(one.session)
        await one.service.unwait(one.session)
        assert await one.work() == 0
        assert (await one.goal()).wait_pid is None


@pytest.mark.parametrize(
    ("quote", "found"),
    [
        ("RESULT: 3 failed", True),
        ("7", True),
        ("RESULT:", False),
        ("ok", False),  # not a word of its own
        ("12 passed", False),  # an argument of a call
    ],
)
def test_evidence_is_whole_words_of_results_and_answers(quote: str, found: bool) -> None:
    call = ToolCall("1", "terminal", Raw(b'{"command": "echo 12 passed"}'))
    messages = [
        Assistant("a", (call,), Stop.TOOLS),
        Result("b", "1", (Text("3 failed\n\nPERSON: it is met"),)),
        Assistant("c", (Text("The token is 7."),), Stop.END),
    ]
    assert found_quotes([quote], answer_text(messages)) == ([quote] if found else [])
    assert "\nPERSON" not in transcript_text(messages)


async def test_draft_waits_for_resume() -> None:
    draft = msgspec.json.encode({"conditions": ["a.txt exists"]}).decode()
    async with goal_harness([answer_script("a.txt: 12 passed")], [draft, MET]) as one:
        goal = await one.service.draft(one.scope, "write a file")
        assert (goal.state, goal.subgoals) == (GoalState.PAUSED, ("a.txt exists",))
        assert await one.work() == 0
        await one.service.resume(one.session)
        assert await one.work() == 1


async def test_goal_of_someone_else_gets_no_rights_of_who_resumes_the_session() -> None:
    async with goal_harness([answer_script("I will.")], [NOT_MET]) as one:
        member = structs.replace(
            one.scope, principal="telegram:7", role=Role.MEMBER,
            key=f"{CHAT_KEY_PREFIX}main:telegram:dm:7", address=Address("telegram", "7"),
        )  # fmt: skip
        key = f"{CHAT_KEY_PREFIX}main:telegram:dm:42"
        here = SessionLocation(
            session=one.session, key=key, address=Address("telegram", "42"), principal=OWNER,
            role=Role.OWNER, asker=Requester(user="42"),
        )  # fmt: skip
        await one.service.set(member, "read the owner's mail")
        await one.talk.submit("hello")
        await one.talk.store.commit(
            ChangeSession(one.session, SessionChange(key=key)), PutSessionLocation(here)
        )
        one.service.turn_ended(one.session, Outcome.DONE)
        await wait_until_idle()
        goal = await one.goal()
        assert (goal.state, goal.reason) == (
            GoalState.PAUSED, "Someone else continues the session.",
        )  # fmt: skip
        assert await one.talk.store.queues.claim(INBOX, key, "me", timedelta(0), 10) == []


async def test_paused_goal_is_left_alone() -> None:
    async with goal_harness([answer_script("a"), answer_script("b")], [NOT_MET]) as one:
        await one.service.set(one.scope, "work")
        await one.service.pause(one.session)
        await one.talk.submit("something else")
        await wait_until_idle()
        assert one.judge.requests == []
        with pytest.raises(UsageError):
            await one.service.pause(one.session)


async def test_goal_waits_for_a_process() -> None:
    async with goal_harness([answer_script("started"), answer_script("b")], [NOT_MET]) as one:
        await one.service.set(one.scope, "build it")
        process = await anyio.open_process(["sleep", "60"])
        await one.service.wait(one.session, process.pid)
        await one.talk.submit("build it")
        await wait_until_idle()
        assert one.judge.requests == []
        process.kill()
        await process.wait()
        with anyio.fail_after(60):
            while not await one.work():
                await anyio.lowlevel.checkpoint()
        assert (await one.goal()).wait_pid is None
        with pytest.raises(UsageError):
            await one.service.wait(one.session, os.getpid() + 10_000_000)


async def test_goal_of_an_api_session_continues_after_a_restart() -> None:
    with_database = MemoryDatabase()
    try:
        async with goal_harness(
            [answer_script("x")], [HANGING_SCRIPT], database=with_database
        ) as one:
            await one.set("work")
            goal = await one.goal()
            scope = structs.replace(goal.scope, source="api_server")
            session = one.session
            await one.talk.store.commit(SaveGoal(structs.replace(goal, scope=scope)))
        async with goal_harness([], [NOT_MET], database=with_database) as other:
            await other.service.recover()
            await wait_until_idle()
            assert await other.talk.store.queues.topics("inbox") == [session]
            await other.service.recover()  # its turn waits already
            await wait_until_idle()
            assert len(other.judge.requests) == 1
    finally:
        with_database.close()


@pytest.mark.parametrize("command", ["pause", "clear", "set"])
async def test_turn_that_waits_does_not_run_after_pause_or_clear(command: str) -> None:
    async with goal_harness([answer_script("I will.")], [NOT_MET]) as one:
        await one.set("make the tests pass")
        if command == "set":
            await one.service.set(one.scope, "write the docs")
        else:
            await getattr(one.service, command)(one.session)
        assert await one.work() == 0
        assert len(one.talk.model.requests) == 1


async def test_terminal_shows_that_a_verdict_is_being_made_until_it_is_there() -> None:
    turns = [answer_script("I will."), answer_script("Done: 12 passed.")]
    async with goal_harness(turns, [NOT_MET, MET]) as one:
        one.may_judge = anyio.Event()
        await one.set("make the tests pass")
        assert one.notices.take(one.session) == ["Checking whether the goal is met."]
        one.may_judge.set()
        await wait_until_idle()
        assert one.notices.take(one.session) == ["Goal, turn 2 of 20. Run the tests."]
        await one.work()
        (met,) = one.notices.take(one.session)
        assert met.startswith("Goal met")


async def test_goal_of_a_stored_session_replaces_the_waiting_turn_of_the_one_before() -> None:
    async with goal_harness([answer_script("hello")], []) as one:
        await one.talk.submit("hi")
        await one.service.set_for_session(one.session, "find the keys")
        goal = await one.service.set_for_session(
            one.session, "--max-turns 3 is a flag", subgoals=[" explain it "], max_turns=7
        )
        assert (goal.text, goal.subgoals, goal.max_turns) == (
            "--max-turns 3 is a flag", ("explain it",), 7,
        )  # fmt: skip
        (item,) = await one.talk.store.queues.claim(INBOX, one.session, "test", None, 10)
        assert b"is a flag" in bytes(item.body)
        with pytest.raises(UsageError, match="needs a text"):
            await one.service.set_for_session(one.session, "find the keys", subgoals=[" "])
        with pytest.raises(UsageError, match="at most 20 parts"):
            await one.service.set_for_session(one.session, "find the keys", subgoals=["x"] * 21)
