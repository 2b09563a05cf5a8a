"""Summaries written with and without a model."""

from hermes.compaction.summary import (
    MAX_PLAIN_SUMMARY,
    SECTIONS,
    KeptText,
    SummaryInput,
    frame_summary,
    plain_summary,
    summary_prompt,
    summary_source,
)
from hermes.kit.redact import Redactor
from hermes.schema.messages import Message
from support.turns import assistant_message, tool_call, tool_result, user_message

SECRET = "sk-" + "a1b2c3d4" * 4
TALK: list[Message] = [
    user_message(f"Fix the build in /srv/app/main.py, the key is {SECRET}"),
    assistant_message("Looking.", tool_call("read_file", "c1", path="/srv/app/main.py")),
    tool_result("c1", "import os\n" * 500),
    assistant_message("It is fixed."),
    user_message("Now the tests"),
]
redact = Redactor().redact


def test_request_names_every_section_and_the_length() -> None:
    system = summary_prompt(4_000)
    assert all(f"## {name}" in system for name in SECTIONS)
    assert "3000 words" in system


def test_summary_source_is_redacted_and_results_shortened() -> None:
    text = summary_source(
        SummaryInput(messages=TALK, previous="Before.", focus="the tests"), redact, 100_000
    )
    assert SECRET not in text
    assert "[redacted]" in text
    assert text.index("Before.") < text.index("the tests") < text.index("PERSON: Fix")
    assert "[calls read_file" in text
    assert "[read_file answered: 5,000 characters] import os" in text
    assert len(text) < 1_500


def test_long_summary_source_keeps_both_ends() -> None:
    text = summary_source(
        SummaryInput(messages=[user_message("x" * 5_000) for _ in range(50)]), redact, 10_000
    )
    assert len(text) < 10_200
    assert "left out" in text


def test_plain_summary_is_written_without_a_model() -> None:
    text = plain_summary(SummaryInput(messages=TALK), redact)
    assert "Fix the build" in text
    assert "1. read_file" in text
    assert "- /srv/app/main.py" in text
    assert SECRET not in text
    many = [one for _ in range(300) for one in TALK]
    assert (
        len(plain_summary(SummaryInput(messages=many, previous="y" * 50_000), redact))
        <= MAX_PLAIN_SUMMARY
    )


def test_pins_and_questions_follow_every_summary() -> None:
    text = frame_summary("It went well.", KeptText(pins=["Never push."], questions=["May I? rm x"]))
    assert text.index("It went well.") < text.index("- Never push.") < text.index("- May I? rm x")
    assert text.endswith("conversation continues below.]")
    assert "Pinned" not in frame_summary("It went well.", KeptText())
