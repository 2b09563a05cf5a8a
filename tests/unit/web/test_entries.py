"""Entries of a conversation."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from html import unescape

import msgspec

from hermes.schema.messages import Result, Text, ToolCall, Trust, User
from hermes.schema.questions import Question, QuestionKind
from hermes.web.entries import question_entry, tool_card, user_entry


def card_text(arguments: Mapping[str, object], words: str, *, shown: str = "") -> str:
    """The text of a tool card."""
    call = ToolCall("c1", "tool", msgspec.Raw(msgspec.json.encode(arguments)))
    result = Result("r1", "c1", (Text(words),), shown=shown)
    return unescape(re.sub("<[^>]+>", "", tool_card(call, result, seconds=1.25)))


def test_card_shows_the_command_its_output_and_its_duration():
    arguments = {"command": "seq 2\necho done", "timeout": 5}
    found = card_text(arguments, '{"output":"1\\n2\\n","exit_code":3}')
    for words in ("seq 2\necho done", '"timeout": 5', "1\n2\nexit_code: 3", "1.2 s"):
        assert words in found
    assert '"command"' not in found
    assert '"output"' not in found


def test_card_of_a_change_shows_its_diff_alone():
    diff = "--- a/tea\n+++ b/tea\n@@ -1 +1 @@\n-green\n+black\n"
    found = card_text({"path": "tea", "content": "black\n"}, '{"success":true}', shown=diff)
    assert diff in found
    assert '"content"' not in found
    assert "success" not in found


def test_approval_shows_the_decision_before_the_model_reason():
    question = Question(
        id="q1",
        kind=QuestionKind.APPROVAL,
        session="s1",
        run="r1",
        text="Run this command outside the sandbox?",
        subject="rm -r /",
        reason="Harmless.",
        choices=("once", "deny"),
        until=datetime(2026, 1, 1, tzinfo=UTC),
    )
    shown = question_entry(question)
    places = [shown.index(one) for one in (question.text, question.subject, "Reason: Harmless.")]
    assert places == sorted(places)


def test_report_is_shown_without_notes_for_the_model():
    report = "[IMPORTANT: Delegated work has ended. Tell the person about it.]\n## 1. count"
    at = datetime(2026, 1, 1, tzinfo=UTC)
    shown = user_entry(User("m", (Text(report),), Trust.DATA), at)
    assert "Delegated work has ended." in shown
    assert "Tell the person" not in shown
    assert "Tell the person" in user_entry(User("m", (Text(report),)), at)
