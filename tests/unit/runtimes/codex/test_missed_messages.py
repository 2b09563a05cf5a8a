"""Which messages of a session a thread has missed."""

from hypothesis import given
from hypothesis import strategies as st

from hermes.runtimes.codex.threads import messages_since, split_question
from hermes.schema.messages import Message, User
from support.turns import assistant_message, user_message

MESSAGES = st.lists(st.booleans(), min_size=1, max_size=12).map(
    lambda sides: [
        *(user_message() if side else assistant_message("yes") for side in sides),
        user_message(),
    ]
)


def test_new_question_is_asked() -> None:
    first, history, second = user_message(), assistant_message("yes"), user_message()
    assert messages_since([first, history, second], history.id) == ([], [second])


def test_missed_messages_come_first() -> None:
    first, history, more, other, second = (
        user_message(),
        assistant_message("yes"),
        user_message(),
        assistant_message("no"),
        user_message(),
    )
    assert messages_since([first, history, more, other, second], history.id) == (
        [more, other],
        [second],
    )


def test_question_is_not_asked_twice_after_a_failure() -> None:
    first, second = user_message(), user_message()
    assert messages_since([first, second], first.id) == ([], [second])


def test_resumed_turn_asks_again() -> None:
    first = user_message()
    assert messages_since([first], first.id) == ([], [first])


def test_undone_message_is_not_found() -> None:
    assert messages_since([user_message()], "msg_gone") is None


@given(MESSAGES, st.data())
def test_every_message_is_sent_once(messages: list[Message], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(messages) - 1))
    found = messages_since(messages, messages[index].id)
    assert found is not None
    history, question = found
    assert question
    assert all(isinstance(one, User) for one in question)
    if index < len(messages) - 1:
        assert [*history, *question] == messages[index + 1 :]


@given(MESSAGES)
def test_new_thread_gets_all_messages(messages: list[Message]) -> None:
    history, question = split_question(messages)
    assert [*history, *question] == messages
    assert messages_since(messages, "") == (history, question)
