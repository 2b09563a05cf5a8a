"""What a model is told to write down, and what is written down without one."""

from hermes.agent.compression.summary import (
    PLAIN_LIMIT,
    SECTIONS,
    Kept,
    Told,
    asked_for,
    framed,
    plain_summary,
    question,
)
from hermes.kit.redact import Redactor
from hermes.schema.messages import Message
from workbench import answer, call, result, user

SECRET = "sk-" + "a1b2c3d4" * 4
TALK: list[Message] = [
    user(f"Fix the build in /srv/app/main.py, the key is {SECRET}"),
    answer("Looking.", call("read_file", "c1", path="/srv/app/main.py")),
    result("c1", "import os\n" * 500),
    answer("It is fixed."),
    user("Now the tests"),
]
redact = Redactor().redact


def test_the_request_names_every_section_and_its_length() -> None:
    system = asked_for(4_000)
    assert all(f"## {name}" in system for name in SECTIONS)
    assert "3000 words" in system


def test_the_text_to_summarise_has_no_secrets_and_short_results() -> None:
    text = question(Told(messages=TALK, previous="Before.", focus="the tests"), redact, 100_000)
    assert SECRET not in text
    assert "[redacted]" in text
    assert text.index("Before.") < text.index("the tests") < text.index("PERSON: Fix")
    assert "[calls read_file" in text
    assert "[read_file answered: 5,000 characters] import os" in text
    assert len(text) < 1_500


def test_a_text_that_is_too_long_keeps_both_ends() -> None:
    text = question(Told(messages=[user("x" * 5_000) for _ in range(50)]), redact, 10_000)
    assert len(text) < 10_200
    assert "left out" in text


def test_without_a_model_there_is_still_a_summary() -> None:
    text = plain_summary(Told(messages=TALK), redact)
    assert "Fix the build" in text
    assert "1. read_file" in text
    assert "- /srv/app/main.py" in text
    assert SECRET not in text
    many = [one for _ in range(300) for one in TALK]
    assert len(plain_summary(Told(messages=many, previous="y" * 50_000), redact)) <= PLAIN_LIMIT


def test_pins_and_questions_stand_below_whatever_was_written() -> None:
    text = framed("It went well.", Kept(pins=["Never push."], questions=["May I? rm x"]))
    assert text.index("It went well.") < text.index("- Never push.") < text.index("- May I? rm x")
    assert text.endswith("goes on below.]")
    assert "Pinned" not in framed("It went well.", Kept())
