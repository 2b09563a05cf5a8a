"""Classifying answers and joining truncated ones."""

import pytest

from hermes.agent.answers import AnswerKind, classify_answer, nudge, runnable_calls
from hermes.schema.messages import Assistant, Message, Reasoning, Stop, Trust, final_text, text_of
from support.cases import cases
from support.turns import assistant_message, tool_call, tool_result, user_message


@cases(
    ("answer", "verdict"),
    [
        (assistant_message("done"), AnswerKind.FINAL),
        (assistant_message("done", stop=Stop.TOOLS), AnswerKind.FINAL),
        (assistant_message("so far", stop=Stop.CANCELLED), AnswerKind.FINAL),
        (assistant_message("look", tool_call("look")), AnswerKind.CALLS),
        (assistant_message(tool_call("look"), stop=Stop.END), AnswerKind.CALLS),
        (assistant_message(tool_call("look"), stop=Stop.LENGTH), AnswerKind.CALLS),
        (assistant_message(), AnswerKind.EMPTY),
        (assistant_message(" \n\t"), AnswerKind.EMPTY),
        (assistant_message(Reasoning("hm")), AnswerKind.EMPTY),
        (assistant_message("half", stop=Stop.LENGTH), AnswerKind.CUT_OFF),
        (assistant_message(Reasoning("hm"), stop=Stop.LENGTH), AnswerKind.CUT_OFF),
        (assistant_message("no", stop=Stop.REFUSED), AnswerKind.REFUSED),
        (assistant_message(tool_call("look"), stop=Stop.REFUSED), AnswerKind.REFUSED),
    ],
)
def test_answers_are_classified(answer: Assistant, verdict: AnswerKind) -> None:
    assert classify_answer(answer) is verdict


def test_only_a_truncated_answer_has_a_broken_call() -> None:
    whole = assistant_message(tool_call("a"), tool_call("b"))
    assert runnable_calls(whole) == whole.calls
    cut = runnable_calls(assistant_message(tool_call("a"), tool_call("b"), stop=Stop.LENGTH))
    assert [bool(c.broken) for c in cut] == [False, True]
    assert runnable_calls(assistant_message("text", stop=Stop.LENGTH)) == []


@pytest.mark.parametrize("name", ["empty", "continue", "exhausted"])
def test_reminders_are_program_messages(name: str) -> None:
    reminder = nudge(name)
    assert reminder.trust is Trust.PROGRAM
    assert text_of(reminder)
    assert nudge(name).id != reminder.id


HALF = Stop.LENGTH


@cases(
    ("messages", "text"),
    [
        ([], ""),
        ([user_message()], ""),
        ([user_message(), assistant_message("all")], "all"),
        (
            [
                user_message(),
                assistant_message("a ", stop=HALF),
                nudge("continue"),
                assistant_message("b"),
            ],
            "a b",
        ),
        (
            [
                user_message(),
                assistant_message("a ", stop=HALF),
                nudge("continue"),
                assistant_message("b ", stop=HALF),
            ],
            "a b ",
        ),
        (
            [user_message(), assistant_message("old"), user_message(), assistant_message("new")],
            "new",
        ),
        (
            [
                user_message(),
                assistant_message("look", tool_call("x", "c")),
                tool_result("c"),
                assistant_message("seen"),
            ],
            "seen",
        ),
        ([user_message(), assistant_message("look", tool_call("x", "c")), tool_result("c")], ""),
        (
            [user_message(), assistant_message(), nudge("empty"), assistant_message("words")],
            "words",
        ),
        (
            [
                user_message(),
                assistant_message("first"),
                user_message("and?"),
                assistant_message("second"),
            ],
            "second",
        ),
        ([user_message(), assistant_message("so f", stop=Stop.CANCELLED)], "so f"),
    ],
)
def test_final_text_joins_continued_answers(messages: list[Message], text: str) -> None:
    assert final_text(messages) == text
