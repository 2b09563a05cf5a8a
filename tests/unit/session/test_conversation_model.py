"""Whatever people do in whatever order, each answer belongs to its question."""

from collections.abc import Sequence
from typing import TypeAlias

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from hermes.ports.model import ModelRequest
from hermes.schema.errors import UsageError
from hermes.schema.events import Event, Outcome, TextDelta
from hermes.schema.messages import Assistant, User, text_of
from hermes.store.memory import MemoryDatabase
from hermes.testing.clock import FakeClock
from hermes.testing.memory_store import open_memory_store
from hermes.testing.scripted_model import ScriptedModel, ScriptStep
from support.conversation import ConversationHarness
from support.examples import at_most
from support.history_validators import check_request
from support.turns import EventRecorder, FakeTool, assistant_message, tool_call


class Say(Struct, frozen=True):
    """`stop` interrupts the turn at that event number; -1 lets it run."""

    stop: int = -1


class Retry(Struct, frozen=True):
    stop: int = -1


class Undo(Struct, frozen=True):
    turns: int


class New(Struct, frozen=True):
    pass


class Back(Struct, frozen=True):
    """Go back to the first session."""


class Reopen(Struct, frozen=True):
    """Close the conversation and resume it later."""


Move: TypeAlias = Say | Retry | Undo | New | Back | Reopen

stops = st.sampled_from([-1, -1, -1, 0, 1, 2, 3, 4, 5, 7, 8])
moves = st.one_of(
    st.builds(Say, stops),
    st.builds(Say, stops),
    st.builds(Retry, stops),
    st.builds(Undo, st.integers(1, 3)),
    st.just(New()),
    st.just(Back()),
    st.just(Reopen()),
)


class Asked(Struct):
    """What a session should contain of one turn."""

    question: str
    outcome: Outcome | None = None


def echo(request: ModelRequest) -> Sequence[ScriptStep]:
    """First call a tool, then echo the last question."""
    last = request.messages[-1]
    if isinstance(last, User):
        return [TextDelta("Let me see."), assistant_message("Let me see.", tool_call("look"))]
    question = [text_of(m) for m in request.messages if isinstance(m, User)][-1]
    return [TextDelta("re: "), assistant_message(f"re: {question}")]


class Interrupting(EventRecorder):
    def __init__(self, one: ConversationHarness, stop: int) -> None:
        super().__init__()
        self._one = one
        self._stop = stop

    async def __call__(self, event: Event) -> None:
        await super().__call__(event)
        if len(self.events) - 1 == self._stop:
            self._one.conversation.interrupt()


class Person:
    """Makes moves and knows the expected state after each."""

    def __init__(self) -> None:
        self._sessions: dict[str, list[Asked]] = {}
        self._count = 0
        self._clock = FakeClock(auto=True)

    async def play(self, script: Sequence[Move]) -> None:
        rest, database = list(script), MemoryDatabase()
        current: str | None = None
        while rest:
            async with open_memory_store(self._clock, database) as store:
                one = ConversationHarness(store, self._clock, [], [FakeTool("look")])
                one.planner.model = ScriptedModel(*[echo] * 100)
                if current in self._sessions:
                    await one.conversation.resume(current)
                while rest:
                    move = rest.pop(0)
                    if isinstance(move, Reopen):
                        break
                    await self._make(one, move)
                    await self._check(one)
                current = one.conversation.session.id

    async def _make(self, one: ConversationHarness, move: Move) -> None:
        talk = self._sessions.get(one.conversation.session.id, [])
        match move:
            case Say(stop=stop):
                self._count += 1
                await self._ask(one, f"question {self._count}", stop)
            case Retry(stop=stop):
                await self._retry(one, talk, stop)
            case Undo(turns=turns):
                await self._undo(one, talk, turns)
            case New():
                one.conversation.start_new()
            case Back():
                if self._sessions:
                    await one.conversation.resume(next(iter(self._sessions)))
            case Reopen():
                pass

    async def _ask(self, one: ConversationHarness, question: str, stop: int) -> None:
        recorder = Interrupting(one, stop)
        outcome = await one.submit(question, recorder)
        assert recorder.ended.outcome is outcome
        turn = Asked(question, outcome)
        self._sessions.setdefault(one.conversation.session.id, []).append(turn)
        if outcome is Outcome.DONE:
            final = recorder.said[-1]
            assert isinstance(final, Assistant)
            assert final.text.endswith(question)
        for request in one.model.requests:
            check_request(request.messages)

    async def _retry(self, one: ConversationHarness, talk: list[Asked], stop: int) -> None:
        if not talk:
            with pytest.raises(UsageError):
                await one.conversation.replace_last()
            return
        question = await one.conversation.replace_last()
        assert text_of(question) == talk[-1].question
        talk.pop()
        await self._ask(one, text_of(question), stop)

    async def _undo(self, one: ConversationHarness, talk: list[Asked], turns: int) -> None:
        if not talk:
            with pytest.raises(UsageError):
                await one.conversation.undo(turns)
            return
        taken = await one.conversation.undo(turns)
        assert [text_of(q) for q in taken] == [turn.question for turn in talk[-turns:]]
        del talk[-turns:]

    async def _check(self, one: ConversationHarness) -> None:
        rows = [row.message for row in await one.rows()]
        expected = self._sessions.get(one.conversation.session.id, [])
        question = [text_of(m) for m in rows if isinstance(m, User)]
        assert question == [turn.question for turn in expected]
        finals = [text_of(m) for m in rows if isinstance(m, Assistant) and not m.calls]
        whole = [text for text in finals if text.startswith("re: q")]
        done = [turn for turn in expected if turn.outcome is Outcome.DONE]
        assert len(whole) >= len(done)


def play(script: Sequence[Move]) -> None:
    anyio.run(Person().play, script)


@pytest.mark.slow
@given(st.lists(moves, max_size=8))
@at_most(25)
def test_answers_belong_to_their_questions(script: list[Move]) -> None:
    play(script)


@pytest.mark.soak
@pytest.mark.timeout(3_600)
@given(st.lists(moves, max_size=20))
@settings(max_examples=2000, deadline=None)
def test_a_night_of_talk(script: list[Move]) -> None:
    play(script)
