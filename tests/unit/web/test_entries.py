"""Entries of a conversation."""

from datetime import UTC, datetime

from hermes.schema.messages import Text, Trust, User
from hermes.schema.questions import Question, QuestionKind
from hermes.web.entries import question_entry, user_entry


def test_approval_shows_what_is_decided_before_the_model_speaks():
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


def test_report_is_shown_without_what_is_meant_for_the_model():
    report = "[IMPORTANT: Delegated work has ended. Tell the person about it.]\n## 1. count"
    at = datetime(2026, 1, 1, tzinfo=UTC)
    shown = user_entry(User("m", (Text(report),), Trust.DATA), at)
    assert "Delegated work has ended." in shown
    assert "Tell the person" not in shown
    assert "Tell the person" in user_entry(User("m", (Text(report),)), at)
