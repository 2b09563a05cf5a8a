"""Turns with client tools or instructions for a single turn."""

from msgspec import Raw

from hermes.agent.turn import CLIENT_CALLS
from hermes.schema.events import Outcome, RunEnded
from hermes.schema.messages import Assistant, Message, Result, Stop, Text, ToolCall, User, text_of
from hermes.schema.tools import ToolSpec
from hermes.session.turn_request import TurnRequest
from hermes.testing.scripted_model import Script
from support.conversation import ConversationHarness, conversation_harness
from support.turns import FakeTool

WEATHER = ToolSpec("weather", "The weather.", {"type": "object"})


def calling(*names: str) -> Script:
    calls = tuple(ToolCall(f"c_{name}", name, Raw(b"{}")) for name in names)
    return [Assistant("m_calls", calls, Stop.TOOLS)]


def saying(text: str) -> Script:
    return [Assistant("m_said", (Text(text),), Stop.END)]


async def said(one: ConversationHarness) -> list[Message]:
    return [row.message for row in await one.rows()]


def turn(one: ConversationHarness, question: User | None, **more: object) -> TurnRequest:
    session, new = one.conversation.session, question is not None
    return TurnRequest(session=session, message=question, new=new, client_tools=(WEATHER,), **more)  # pyright: ignore[reportArgumentType]


async def test_client_call_ends_the_turn_and_its_result_starts_the_next() -> None:
    own = FakeTool("look")
    async with conversation_harness(
        calling("weather", "look"), saying("Rain."), tools=[own]
    ) as one:
        first = turn(one, User("u1", (Text("weather?"),)))
        assert await one.run(first) is Outcome.DONE
        ended = [event for event in one.ear.events if isinstance(event, RunEnded)][-1]
        assert ended.code == CLIENT_CALLS
        assert [type(message) for message in await said(one)] == [User, Assistant, Result]
        results = (
            Result("r1", "c_weather", (Text("rain"),)),
            Result("r2", "c_unknown", (Text("x"),)),
        )
        await one.run(turn(one, None, results=results))
        messages = await said(one)
        assert [text_of(message) for message in messages[3:]] == ["rain", "Rain."]
        assert isinstance(messages[3], Result)
        assert not messages[3].failed
        offered = [spec.name for spec in one.model.requests[0].tools]
        assert offered == ["look", "weather"]


async def test_client_call_without_a_result_is_marked_interrupted() -> None:
    async with conversation_harness(calling("weather"), saying("Never mind.")) as one:
        await one.run(turn(one, User("u1", (Text("weather?"),))))
        again = TurnRequest(session=one.conversation.session, message=User("u2", (Text("well?"),)))
        await one.run(again)
        results = [message for message in await said(one) if isinstance(message, Result)]
        assert [(one.call, one.failed) for one in results] == [("c_weather", True)]


async def test_instructions_apply_to_one_turn_and_own_tools_can_be_left_out() -> None:
    async with conversation_harness(saying("Arr."), tools=[FakeTool("look")]) as one:
        question = User("u1", (Text("hi"),))
        await one.run(turn(one, question, instructions="Be a pirate.", no_tools=True, source="x"))
        (request,) = one.model.requests
        assert request.system.endswith("\n\nBe a pirate.")
        assert [spec.name for spec in request.tools] == ["weather"]
        session = await one.store.archive_for("owner").get(one.conversation.session.id)
        assert "pirate" not in session.system
