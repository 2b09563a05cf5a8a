"""The far gateway's stream, however the network cuts it into pieces."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fars import DONE, LAST, says
from hermes.ports.runtime import Errand
from hermes.runtimes.proxy.wire import Hearing, question_of
from hermes.schema.errors import UsageError
from hermes.schema.messages import Stop, Text, Trust, Usage, User
from workbench import SCOPE, answer, call, result, user

WORDS = st.lists(st.text(min_size=1), max_size=5)
NOISE = st.sampled_from([b"", b": alive\n\n", b"event: hermes.tool.progress\ndata: {}\n\n"])
USED = b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}}\n\n'


@given(WORDS, NOISE, st.lists(st.integers(0, 2000), max_size=12))
def test_the_pieces_do_not_matter(words: list[str], noise: bytes, cuts: list[int]) -> None:
    stream = b"".join(noise + says(word) for word in words) + LAST + USED + DONE
    places = sorted({0, *(cut % len(stream) for cut in cuts), len(stream)})
    hearing = Hearing()
    told = [hearing.feed(stream[a:b]) for a, b in itertools.pairwise(places)]
    assert "".join(told) == hearing.text == "".join(words)
    said = hearing.answer()
    assert hearing.done
    assert (said.stop, said.usage) == (Stop.END, Usage(7, 2))


@given(WORDS, st.integers(0, 2000))
def test_what_was_heard_is_what_came_whole(words: list[str], cut: int) -> None:
    stream = b"".join(map(says, words))
    hearing = Hearing()
    hearing.feed(stream[: cut % (len(stream) + 1)])
    assert "".join(words).startswith(hearing.text)
    assert not hearing.whole
    assert hearing.partial().stop is Stop.CANCELLED


def test_nothing_counts_after_the_end() -> None:
    hearing = Hearing()
    hearing.feed(says("Yes.") + DONE + says(" No."))
    assert hearing.text == "Yes."


NOTE = User("msg_n", (Text("go on"),), Trust.HOUSE)


def test_a_note_of_ours_asks_only_when_nothing_else_does() -> None:
    begun = (user("do it"), answer("Let me see.", call("look", id="c")), result("c"))
    spoken = question_of(Errand(SCOPE, "", (*begun, NOTE))).messages
    assert [one.content for one in spoken] == ["do it", "Let me see.", "go on"]
    spoken = question_of(Errand(SCOPE, "", (user("do it"), NOTE))).messages
    assert [one.content for one in spoken] == ["do it"]


@pytest.mark.parametrize("said", [(), (user("a"), answer("b")), (user("  "),)])
def test_nothing_to_answer(said: tuple[User, ...]) -> None:
    with pytest.raises(UsageError):
        question_of(Errand(SCOPE, "", said))
