"""Call windows are bounded in number and time."""

from hypothesis import given
from hypothesis import strategies as st

from hermes.channels.webhook.calls import CallWindow


def test_window_allows_calls_again_after_its_period() -> None:
    window = CallWindow(2, 60.0)
    assert [window.wait(0.0), window.wait(10.0)] == [0.0, 0.0]
    assert window.wait(30.0) == 30.0
    assert window.wait(59.5) == 0.5
    assert window.wait(60.0) == 0.0
    assert window.wait(60.0) == 10.0


@given(st.integers(1, 5), st.lists(st.floats(0, 20), max_size=60))
def test_window_never_exceeds_its_limit(limit: int, gaps: list[float]) -> None:
    window, now = CallWindow(limit, 60.0), 0.0
    taken: list[float] = []
    for gap in gaps:
        now += gap
        if not window.wait(now):
            taken.append(now)
    for start in taken:
        assert sum(start <= at < start + 60.0 for at in taken) <= limit
