"""Memories are bounded, in number and in time."""

from hypothesis import given
from hypothesis import strategies as st

from hermes.channels.webhook.calls import CallWindow, RecentCalls


def test_a_window_has_room_again_when_its_oldest_call_is_old() -> None:
    window = CallWindow(2, 60.0)
    assert [window.wait(0.0), window.wait(10.0)] == [0.0, 0.0]
    assert window.wait(30.0) == 30.0
    assert window.wait(59.5) == 0.5
    assert window.wait(60.0) == 0.0
    assert window.wait(60.0) == 10.0


@given(st.integers(1, 5), st.lists(st.floats(0, 20), max_size=60))
def test_no_window_lets_more_through(limit: int, gaps: list[float]) -> None:
    window, now = CallWindow(limit, 60.0), 0.0
    taken: list[float] = []
    for gap in gaps:
        now += gap
        if not window.wait(now):
            taken.append(now)
    for start in taken:
        assert sum(start <= at < start + 60.0 for at in taken) <= limit


def test_the_oldest_are_forgotten_first() -> None:
    recent = RecentCalls(2)
    for name in ("a", "b", "a", "c"):
        recent.remember(name, "", 0.0)
    assert [recent.recall(name, 1e9) for name in "abc"] == ["", None, ""]


def test_what_is_too_old_is_forgotten() -> None:
    recent = RecentCalls(2, 60.0)
    recent.remember("a", "word", 0.0)
    assert recent.recall("a", 60.0) == "word"
    assert recent.recall("a", 60.1) is None
