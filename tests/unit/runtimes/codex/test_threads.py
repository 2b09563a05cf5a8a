"""What a thread has not heard of a session."""

from hypothesis import given
from hypothesis import strategies as st

from hermes.runtimes.codex.threads import messages_since, split_question
from hermes.schema.messages import Message, User
from support.turns import assistant_message, user_message

TALK = st.lists(st.booleans(), min_size=1, max_size=12).map(
    lambda sides: [
        *(user_message() if side else assistant_message("yes") for side in sides),
        user_message(),
    ]
)


def test_a_new_question_is_asked() -> None:
    first, said, second = user_message(), assistant_message("yes"), user_message()
    assert messages_since([first, said, second], said.id) == ([], [second])


def test_what_was_said_elsewhere_is_told_first() -> None:
    first, said, more, other, second = (
        user_message(),
        assistant_message("yes"),
        user_message(),
        assistant_message("no"),
        user_message(),
    )
    assert messages_since([first, said, more, other, second], said.id) == ([more, other], [second])


def test_after_a_failure_the_old_question_is_not_asked_twice() -> None:
    first, second = user_message(), user_message()
    assert messages_since([first, second], first.id) == ([], [second])


def test_a_turn_that_is_taken_up_again_asks_again() -> None:
    first = user_message()
    assert messages_since([first], first.id) == ([], [first])


def test_what_was_taken_back_is_not_found() -> None:
    assert messages_since([user_message()], "msg_gone") is None


@given(TALK, st.data())
def test_nothing_is_left_out_and_nothing_comes_twice(
    talk: list[Message], data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(talk) - 1))
    found = messages_since(talk, talk[place].id)
    assert found is not None
    said, asked = found
    assert asked
    assert all(isinstance(one, User) for one in asked)
    if place < len(talk) - 1:
        assert [*said, *asked] == talk[place + 1 :]


@given(TALK)
def test_all_of_it_is_told_to_a_new_thread(talk: list[Message]) -> None:
    said, asked = split_question(talk)
    assert [*said, *asked] == talk
    assert messages_since(talk, "") == (said, asked)
