"""The streamed parts of a growing answer add up to the stored text."""

from hypothesis import given
from hypothesis import strategies as st

from hermes.api.answer_text import AnswerTextStream, assistant_text
from hermes.schema.messages import Assistant, Stop, Text

PIECES = st.lists(st.text("ab \n", max_size=3), max_size=5)
STOPS = st.sampled_from([Stop.END, Stop.LENGTH, Stop.TOOLS])
STEPS = st.lists(st.tuples(st.lists(PIECES, min_size=1, max_size=3), STOPS), max_size=4)


def answer(text: str, stop: Stop) -> Assistant:
    return Assistant("m", (Text(text),) if text else (), stop)


@given(STEPS)
def test_sent_text_equals_stored_text_or_is_marked_diverged(
    steps: list[tuple[list[list[str]], Stop]],
) -> None:
    stream = AnswerTextStream()
    sent = ""
    answers: list[Assistant] = []
    for tries, stop in steps:
        for number, pieces in enumerate(tries):
            if number:
                stream.reset()
            for piece in pieces:
                sent += stream.delta(piece)
        answers.append(answer("".join(tries[-1]), stop))
        sent += stream.finish(answers[-1])
    assert stream.text == assistant_text(answers)
    assert stream.diverged or sent == assistant_text(answers)


def test_restarted_answer_catches_up() -> None:
    stream = AnswerTextStream()
    assert stream.delta("abc") == "abc"
    stream.reset()
    assert stream.delta("ab") == ""
    assert stream.delta("cd") == "d"
    assert stream.finish(answer("abcde", Stop.END)) == "e"
    assert not stream.diverged


def test_answer_shorter_than_the_sent_text_diverges() -> None:
    stream = AnswerTextStream()
    assert stream.delta("abc") == "abc"
    stream.reset()
    assert stream.finish(answer("ab", Stop.END)) == ""
    assert stream.diverged


def test_answers_are_separated_unless_the_first_was_cut_off() -> None:
    stream = AnswerTextStream()
    assert stream.delta("a") + stream.finish(answer("a", Stop.TOOLS)) == "a"
    assert stream.delta("b") + stream.finish(answer("b", Stop.LENGTH)) == "\n\nb"
    assert stream.delta("c") + stream.finish(answer("c", Stop.END)) == "c"
