"""Backoff delays."""

from hypothesis import given
from hypothesis import strategies as st

from hermes.kit.retry import Backoff


def test_delays_double_up_to_the_cap() -> None:
    backoff = Backoff(base=2, cap=60, jitter=0.5)
    assert [backoff.delay(n, lambda: 0) for n in range(1, 8)] == [2, 4, 8, 16, 32, 60, 60]


def test_jitter_is_bounded() -> None:
    assert Backoff(base=4, jitter=0.5).delay(1, lambda: 1) == 6
    assert Backoff(base=4, jitter=0).delay(1, lambda: 1) == 4


@given(st.integers(1, 10**9), st.floats(0, 1))
def test_no_delay_is_out_of_bounds(attempt: int, chance: float) -> None:
    backoff = Backoff(base=0.5, cap=30, jitter=0.25)
    assert 0.5 <= backoff.delay(attempt, lambda: chance) <= 30 * 1.25


def test_default_jitter_is_random() -> None:
    delays = {Backoff().delay(1) for _ in range(50)}
    assert len(delays) > 1
    assert all(2 <= delay <= 3 for delay in delays)
