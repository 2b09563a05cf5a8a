"""Decoding of the remote gateway's chat stream, for any chunking."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.ports.runtime import RuntimeRequest
from hermes.runtimes.proxy.chat_runtime import ChatStreamMapper, chat_request
from hermes.schema.errors import UsageError
from hermes.schema.messages import Stop, Text, Trust, Usage, User
from support.remote_gateway import DONE_EVENT, FINISH_EVENT, delta_events
from support.turns import SCOPE, assistant_message, tool_call, tool_result, user_message

WORDS = st.lists(st.text(min_size=1), max_size=5)
NOISE = st.sampled_from([b"", b": alive\n\n", b"event: hermes.tool.progress\ndata: {}\n\n"])
USED = b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}}\n\n'


@given(WORDS, NOISE, st.lists(st.integers(0, 2000), max_size=12))
def test_result_does_not_depend_on_the_chunking(
    texts: list[str], noise: bytes, cuts: list[int]
) -> None:
    stream = (
        b"".join(noise + delta_events(word) for word in texts) + FINISH_EVENT + USED + DONE_EVENT
    )
    places = sorted({0, *(cut % len(stream) for cut in cuts), len(stream)})
    mapper = ChatStreamMapper()
    outputs = [mapper.feed(stream[a:b]) for a, b in itertools.pairwise(places)]
    assert "".join(outputs) == mapper.text == "".join(texts)
    messages = mapper.answer()
    assert mapper.done
    assert (messages.stop, messages.usage) == (Stop.END, Usage(7, 2))


@given(WORDS, st.integers(0, 2000))
def test_only_complete_events_count(texts: list[str], cut: int) -> None:
    stream = b"".join(map(delta_events, texts))
    mapper = ChatStreamMapper()
    mapper.feed(stream[: cut % (len(stream) + 1)])
    assert "".join(texts).startswith(mapper.text)
    assert not mapper.is_complete
    assert mapper.answer(interrupted=True).stop is Stop.CANCELLED


def test_data_after_the_end_is_ignored() -> None:
    mapper = ChatStreamMapper()
    mapper.feed(delta_events("Yes.") + DONE_EVENT + delta_events(" No."))
    assert mapper.text == "Yes."


NOTE = User("msg_n", (Text("go on"),), Trust.PROGRAM)


def test_internal_note_is_the_question_only_without_a_message() -> None:
    begun = (
        user_message("do it"),
        assistant_message("Let me see.", tool_call("look", id="c")),
        tool_result("c"),
    )
    spoken = chat_request(RuntimeRequest(SCOPE, "", (*begun, NOTE))).messages
    assert [one.content for one in spoken] == ["do it", "Let me see.", "go on"]
    spoken = chat_request(RuntimeRequest(SCOPE, "", (user_message("do it"), NOTE))).messages
    assert [one.content for one in spoken] == ["do it"]


@pytest.mark.parametrize(
    "messages", [(), (user_message("a"), assistant_message("b")), (user_message("  "),)]
)
def test_missing_question_is_an_error(messages: tuple[User, ...]) -> None:
    with pytest.raises(UsageError):
        chat_request(RuntimeRequest(SCOPE, "", messages))
