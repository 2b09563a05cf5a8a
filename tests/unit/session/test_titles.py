"""A session gets a name from how it began, unless it has one or nobody can give one."""

from pathlib import Path

import pytest
from msgspec import structs

from hermes.ports.model import Model
from hermes.schema.errors import Overloaded
from hermes.schema.messages import Assistant, Stop, Text, Usage
from hermes.schema.sessions import SessionChange
from hermes.session.titles import SessionTitles, TitleSettings
from hermes.testing.clock import FakeClock
from hermes.testing.scripted_model import ScriptedModel, ScriptStep, answer_script
from support.compaction import PRICE_PER_TOKEN, token_price
from support.conversation import ConversationHarness, conversation_harness

pytestmark = pytest.mark.anyio


def titles(
    one: ConversationHarness, *scripts: list[ScriptStep]
) -> tuple[SessionTitles, ScriptedModel]:
    model = ScriptedModel(*scripts)

    async def found() -> Model:
        return model

    return SessionTitles(
        one.store, FakeClock(), token_price, TitleSettings(model=found, redact=str)
    ), model


async def test_it_is_named_after_its_beginning(tmp_path: Path) -> None:
    async with conversation_harness(tmp_path, answer_script("They are far away.")) as one:
        await one.submit("Tell me about stars")
        usage = Usage(input=10, output=5)
        answer = Assistant("m", (Text('"About the stars."\n'),), Stop.END, usage, "small", "p")
        giver, model = titles(one, [answer])
        await giver.generate(one.conversation.session)
        await one.conversation.resume(one.conversation.session.id)
        assert one.conversation.session.title == "About the stars"
        (request,) = model.requests
        assert request.tools == ()
        (use,) = [use for use in await one.conversation.usage() if use.model == "small"]
        assert use.cost == pytest.approx(15 * PRICE_PER_TOKEN)


async def test_a_name_that_is_taken_gets_an_end_of_its_own(tmp_path: Path) -> None:
    async with conversation_harness(tmp_path, answer_script("Yes."), answer_script("No.")) as one:
        await one.submit("hi")
        await one.conversation.change(SessionChange(title="Stars"))
        one.conversation.start_new()
        await one.submit("hello")
        giver, _ = titles(one, answer_script("Stars"))
        session = one.conversation.session
        await giver.generate(session)
        await one.conversation.resume(session.id)
        assert one.conversation.session.title == f"Stars ({session.id[-6:]})"


async def test_a_name_that_was_given_meanwhile_stays(tmp_path: Path) -> None:
    async with conversation_harness(tmp_path, answer_script("Yes.")) as one:
        await one.submit("hi")
        before = one.conversation.session
        await one.conversation.change(SessionChange(title="Mine"))
        giver, _ = titles(one, answer_script("Another"))
        await giver.generate(structs.replace(before))
        await one.conversation.resume(before.id)
        assert one.conversation.session.title == "Mine"


@pytest.mark.parametrize(
    ("trouble", "told"), [(Overloaded("busy"), "busy"), (RuntimeError("a defect"), "a defect")]
)
async def test_trouble_stays_without_consequences(
    tmp_path: Path, trouble: Exception, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def found() -> Model:
        raise trouble

    async with conversation_harness(tmp_path, answer_script("Yes.")) as one:
        await one.submit("hi")
        giver = SessionTitles(
            one.store, FakeClock(), token_price, TitleSettings(model=found, redact=str)
        )
        await giver.generate(one.conversation.session)
        await one.conversation.resume(one.conversation.session.id)
        assert one.conversation.session.title == ""
    assert told in caplog.text
