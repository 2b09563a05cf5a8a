"""Generated session titles."""

import pytest
from msgspec import structs

from hermes.ports.model import Model
from hermes.schema.errors import Overloaded
from hermes.schema.messages import Assistant, Stop, Text, Trust, Usage, User
from hermes.schema.sessions import SessionChange
from hermes.session.titles import DerivedTitles, SessionTitles, TitleSettings, derive_title
from hermes.testing.clock import FakeClock
from hermes.testing.scripted_model import ScriptedModel, ScriptStep, answer_script
from support.cases import cases
from support.compaction import PRICE_PER_TOKEN, token_price
from support.conversation import ConversationHarness, conversation_harness


def titles(
    harness: ConversationHarness, *scripts: list[ScriptStep]
) -> tuple[SessionTitles, ScriptedModel]:
    model = ScriptedModel(*scripts)

    async def found() -> Model:
        return model

    return SessionTitles(
        harness.store, FakeClock(), token_price, TitleSettings(model=found, redact=str)
    ), model


async def test_title_comes_from_the_beginning() -> None:
    async with conversation_harness(answer_script("They are far away.")) as harness:
        await harness.submit("Tell me about stars")
        usage = Usage(input=10, output=5)
        answer = Assistant("m", (Text('"About the stars."\n'),), Stop.END, usage, "small", "p")
        giver, model = titles(harness, [answer])
        await giver.generate(harness.conversation.session)
        await harness.conversation.resume(harness.conversation.session.id)
        assert harness.conversation.session.title == "About the stars"
        (request,) = model.requests
        assert request.tools == ()
        (use,) = [use for use in await harness.conversation.usage() if use.model == "small"]
        assert use.cost == pytest.approx(15 * PRICE_PER_TOKEN)


async def test_duplicate_title_gets_a_suffix() -> None:
    async with conversation_harness(answer_script("Yes."), answer_script("No.")) as harness:
        await harness.submit("hi")
        await harness.conversation.change(SessionChange(title="Stars"))
        harness.conversation.start_new()
        await harness.submit("hello")
        giver, _ = titles(harness, answer_script("Stars"))
        session = harness.conversation.session
        await giver.generate(session)
        await harness.conversation.resume(session.id)
        assert harness.conversation.session.title == f"Stars ({session.id[-6:]})"


async def test_title_set_meanwhile_is_kept() -> None:
    async with conversation_harness(answer_script("Yes.")) as harness:
        await harness.submit("hi")
        before = harness.conversation.session
        await harness.conversation.change(SessionChange(title="Mine"))
        giver, _ = titles(harness, answer_script("Another"))
        await giver.generate(structs.replace(before))
        await harness.conversation.resume(before.id)
        assert harness.conversation.session.title == "Mine"


@pytest.mark.parametrize(
    ("trouble", "expected"), [(Overloaded("busy"), "busy"), (RuntimeError("a defect"), "a defect")]
)
async def test_failure_has_no_consequences(
    trouble: Exception, expected: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def found() -> Model:
        raise trouble

    async with conversation_harness(answer_script("Yes.")) as harness:
        await harness.submit("hi")
        giver = SessionTitles(
            harness.store, FakeClock(), token_price, TitleSettings(model=found, redact=str)
        )
        await giver.generate(harness.conversation.session)
        await harness.conversation.resume(harness.conversation.session.id)
        assert harness.conversation.session.title == ""
    assert expected in caplog.text


@cases(
    ("message", "title"),
    [
        ("please fix the test in calc.py, it breaks", "Fix the test in calc.py, it breaks"),
        ("The greeting looks wrong. Can you fix it?", "The greeting looks wrong"),
        ("hello, could you water the beds\nand more", "Water the beds"),
        (f"look at {'very ' * 20}long lines", f"Look at {'very ' * 10}".rstrip() + "…"),
        ("hi", ""),
        ("", ""),
    ],
)  # fmt: skip
def test_title_is_derived_from_the_first_message(message: str, title: str) -> None:
    assert derive_title(message) == title


async def test_derived_titles_are_unique_and_keep_a_chosen_one() -> None:
    async with conversation_harness(answer_script("1"), answer_script("2")) as harness:
        message = User("m", (Text("water the beds"),), Trust.OWNER)
        names = DerivedTitles(harness.store, str)
        found: list[str] = []
        for _ in range(2):
            await harness.submit("water the beds")
            session = harness.conversation.session
            await names.name(session, message)
            await names.name(session, User("m", (Text("something else"),), Trust.OWNER))
            archive = harness.store.archive_for(session.principal)
            found.append((await archive.get(session.id)).title)
            harness.conversation.start_new()
        assert found[0] == "Water the beds"
        assert found[1].startswith("Water the beds (")
