import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.models.key_pool import KeyRing
from hermes.models.settings import KeyStrategy


def taken(ring: KeyRing, count: int, now: float = 0.0) -> str:
    return "".join(ring.next_key(now) for _ in range(count))


@pytest.mark.parametrize(
    ("strategy", "order"),
    [
        (KeyStrategy.FILL_FIRST, "aaaaaa"),
        (KeyStrategy.ROUND_ROBIN, "abcabc"),
        (KeyStrategy.LEAST_USED, "abcabc"),
        (KeyStrategy.RANDOM, "bbbbbb"),
    ],
)
def test_strategies(strategy: KeyStrategy, order: str):
    assert taken(KeyRing("abc", strategy, chance=lambda: 0.5), 6) == order


@pytest.mark.parametrize("strategy", list(KeyStrategy))
def test_key_on_cooldown_is_skipped_until_ready(strategy: KeyStrategy):
    ring = KeyRing("abc", strategy)
    ring.cool_until("a", until=10.0)
    assert "a" not in taken(ring, 12, now=9.9)
    ring.cool_until("b", until=20.0)
    ring.cool_until("c", until=20.0)
    assert ring.has_ready(10.0)
    assert taken(ring, 3, now=10.0) == "aaa"


def test_soonest_key_is_used_if_all_are_on_cooldown():
    ring = KeyRing("abc")
    for key, until in zip("abc", (30.0, 10.0, 20.0), strict=True):
        ring.cool_until(key, until)
    assert not ring.has_ready(0.0)
    assert ring.next_key(0.0) == "b"


def test_cooldown_is_never_shortened():
    ring = KeyRing("ab")
    ring.cool_until("a", 100.0)
    ring.cool_until("a", 5.0)
    assert ring.next_key(50.0) == "b"


def test_least_used_balances_after_a_cooldown():
    ring = KeyRing("ab", KeyStrategy.LEAST_USED)
    ring.cool_until("a", 10.0)
    assert taken(ring, 4, now=0.0) == "bbbb"
    assert taken(ring, 5, now=10.0) == "aaaaa"


def test_ring_without_keys_has_an_empty_key():
    ring = KeyRing(())
    assert len(ring) == 1
    assert ring.next_key(0.0) == ""


def test_duplicate_keys_are_merged():
    assert len(KeyRing(("k", "k"))) == 1


@given(
    st.sampled_from(list(KeyStrategy)),
    st.lists(st.tuples(st.sampled_from("abcd"), st.floats(0, 100)), max_size=20),
)
def test_ready_key_is_always_preferred(strategy: KeyStrategy, rests: list[tuple[str, float]]):
    ring = KeyRing("abcd", strategy)
    until = dict.fromkeys("abcd", 0.0)
    for key, end in rests:
        ring.cool_until(key, end)
        until[key] = max(until[key], end)
    ready = {key for key in "abcd" if until[key] <= 50.0}
    key = ring.next_key(50.0)
    assert key in ready or not ready
    assert ring.has_ready(50.0) == bool(ready)
