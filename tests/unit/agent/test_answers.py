"""Judging answers, and joining the pieces of one."""

import pytest

from hermes.agent.answers import Verdict, final_text, judge, nudge, runnable_calls
from hermes.schema.messages import Assistant, Message, Reasoning, Stop, Trust, text_of
from workbench import answer, call, result, user


@pytest.mark.parametrize(
    ("given", "verdict"),
    [
        (answer("done"), Verdict.FINAL),
        (answer("done", stop=Stop.TOOLS), Verdict.FINAL),
        (answer("so far", stop=Stop.CANCELLED), Verdict.FINAL),
        (answer("look", call("look")), Verdict.CALLS),
        (answer(call("look"), stop=Stop.END), Verdict.CALLS),
        (answer(call("look"), stop=Stop.LENGTH), Verdict.CALLS),
        (answer(), Verdict.EMPTY),
        (answer(" \n\t"), Verdict.EMPTY),
        (answer(Reasoning("hm")), Verdict.EMPTY),
        (answer("half", stop=Stop.LENGTH), Verdict.CUT_OFF),
        (answer(Reasoning("hm"), stop=Stop.LENGTH), Verdict.CUT_OFF),
        (answer("no", stop=Stop.REFUSED), Verdict.REFUSED),
        (answer(call("look"), stop=Stop.REFUSED), Verdict.REFUSED),
    ],
)
def test_verdicts(given: Assistant, verdict: Verdict) -> None:
    assert judge(given) is verdict


def test_only_a_cut_off_answer_has_a_doubtful_call() -> None:
    whole = answer(call("a"), call("b"))
    assert runnable_calls(whole) == whole.calls
    cut = runnable_calls(answer(call("a"), call("b"), stop=Stop.LENGTH))
    assert [bool(c.broken) for c in cut] == [False, True]
    assert runnable_calls(answer("text", stop=Stop.LENGTH)) == []


@pytest.mark.parametrize("name", ["empty", "continue", "exhausted"])
def test_nudges_are_the_houses_own_words(name: str) -> None:
    said = nudge(name)
    assert said.trust is Trust.HOUSE
    assert text_of(said)
    assert nudge(name).id != said.id


HALF = Stop.LENGTH


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([], ""),
        ([user()], ""),
        ([user(), answer("all")], "all"),
        ([user(), answer("a ", stop=HALF), nudge("continue"), answer("b")], "a b"),
        ([user(), answer("a ", stop=HALF), nudge("continue"), answer("b ", stop=HALF)], "a b "),
        ([user(), answer("old"), user(), answer("new")], "new"),
        ([user(), answer("look", call("x", "c")), result("c"), answer("seen")], "seen"),
        ([user(), answer("look", call("x", "c")), result("c")], ""),
        ([user(), answer(), nudge("empty"), answer("words")], "words"),
        ([user(), answer("first"), user("and?"), answer("second")], "second"),
        ([user(), answer("so f", stop=Stop.CANCELLED)], "so f"),
    ],
)
def test_the_final_text(messages: list[Message], text: str) -> None:
    assert final_text(messages) == text
