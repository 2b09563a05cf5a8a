"""The recap of a resumed session: last messages, and where a turn was interrupted."""

from datetime import UTC, datetime

from msgspec import Raw

from hermes.schema.messages import Assistant, Message, Result, Stop, Text, ToolCall, Trust, User
from hermes.schema.sessions import StoredMessage
from hermes.session.recap import INTERRUPTED, failed_at, interrupted_at, recap

AT = datetime(2026, 1, 31, tzinfo=UTC)
LS = ToolCall("c1", "terminal", Raw(b'{"command": "ls"}'))
SLEEP = ToolCall("c2", "terminal", Raw(b'{"command": "sleep 9"}'))
LISTED = Result("r1", "c1", (Text("a\nb"),))
CUT = ("", INTERRUPTED)


def rows(*messages: tuple[str, Message]) -> list[StoredMessage]:
    return [
        StoredMessage(place, AT, run, message) for place, (run, message) in enumerate(messages, 1)
    ]


def asks(text: str, trust: Trust = Trust.OWNER) -> User:
    return User(f"q-{text}", (Text(text),), trust)


def says(*parts: Text | ToolCall, stop: Stop = Stop.END) -> Assistant:
    return Assistant("a", parts, stop)


def test_unanswered_question_is_marked() -> None:
    history = rows(("1", asks("hi")), ("1", says(Text("Hello."))), ("2", asks("a story")))
    before = [("you", "hi"), ("hermes", "Hello."), ("you", "a story")]
    assert recap(history, 3) == [*before, CUT]
    assert interrupted_at(history) == {3}
    assert recap(history, 3, running=True) == before
    assert interrupted_at(history, running=True) == frozenset()


def test_question_before_the_loaded_rows_counts() -> None:
    history = rows(("1", LISTED), ("1", says(SLEEP, stop=Stop.TOOLS)))
    assert interrupted_at(history, partial=True) == {2}
    assert interrupted_at(history) == frozenset()
    assert recap(history, 3, partial=True) == []
    ended = rows(("1", LISTED), ("1", says(Text("Done."))), ("2", asks("and?")))
    assert interrupted_at(ended, partial=True) == {3}
    assert recap(ended, 3, partial=True) == [("hermes", "Done."), ("you", "and?"), CUT]
    brought = rows(("", asks("news", Trust.DATA)), ("2", asks("hi")), ("2", says(Text("Hello."))))
    assert interrupted_at(brought, partial=True) == frozenset()


def test_finished_calls_of_an_interrupted_turn_are_shown() -> None:
    history = rows(
        ("1", asks("look")),
        ("1", says(Text("Let me see."), LS, stop=Stop.TOOLS)),
        ("1", LISTED),
        ("1", says(SLEEP, stop=Stop.TOOLS)),
    )
    words = [("you", "look"), ("hermes", "Let me see."), ("", "✓ terminal ls"), CUT]
    assert recap(history, 3) == words
    # As it is once the next turn has closed the call that was lost.
    lost = Result("r2", "c2", (Text("interrupted"),), failed=True)
    later = [*history, *rows(("", lost), ("2", asks("and?")), ("2", says(Text("Well."))))]
    later = [StoredMessage(place, AT, row.run, row.message) for place, row in enumerate(later, 1)]
    assert recap(later, 3) == [
        *words[:-1], ("", "✗ terminal sleep 9"), CUT, ("you", "and?"), ("hermes", "Well."),
    ]  # fmt: skip
    assert interrupted_at(later) == {5}


def test_calls_of_a_finished_turn_are_not_shown() -> None:
    history = rows(
        ("1", asks("look")), ("1", says(LS, stop=Stop.TOOLS)), ("1", LISTED), ("1", says())
    )
    assert recap(history, 3) == [("you", "look")]
    assert interrupted_at(history) == frozenset()


def test_rows_without_a_run_are_not_interrupted() -> None:
    """A follow-up, or a message from another conversation."""
    history = rows(("", asks("hi")), ("", asks("hello")), ("", asks("news", Trust.DATA)))
    assert interrupted_at(history) == frozenset()


def test_report_is_shown_without_notes_for_the_model() -> None:
    report = (
        "[IMPORTANT: Delegated work has ended, 1 of 1 completed. Tell the person about it.]\n## 1."
    )
    history = rows(("1", asks(report, Trust.DATA)), ("1", says(Text("It is done."))))
    shown = "Delegated work has ended, 1 of 1 completed."
    assert recap(history, 3) == [("news", shown), ("hermes", "It is done.")]


def test_client_calls_are_not_an_interruption() -> None:
    history = rows(
        ("1", asks("look")),
        ("1", says(LS, stop=Stop.TOOLS)),
        ("2", LISTED),
        ("2", says(Text("Two."))),
    )
    assert interrupted_at(history) == frozenset()


def test_finished_calls_do_not_count_as_exchanges() -> None:
    history = rows(
        *((str(number), asks(f"q{number}")) for number in range(5)), ("9", says(Text("News.")))
    )
    assert recap(history, 1) == [("you", "q4"), CUT, ("hermes", "News.")]
    assert recap([], 3) == []


def test_failed_turn_is_not_interrupted() -> None:
    history = rows(("1", asks("hi")), ("2", asks("a story")), ("3", asks("and?")))
    ends = {"1": "The model refused.", "3": ""}
    assert recap(history, 3, failures=ends) == [
        ("you", "hi"), ("", "(not answered: The model refused.)"), ("you", "a story"), CUT,
        ("you", "and?"), ("", "(not answered)"),
    ]  # fmt: skip
    assert interrupted_at(history, failures=ends) == {2}
    assert failed_at(history, ends) == {1: "The model refused.", 3: ""}
