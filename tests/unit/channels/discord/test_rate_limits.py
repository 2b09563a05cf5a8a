"""Discord's limits are known from its answers, and calls that would exceed them are not made."""

import pytest

from hermes.channels.discord.rate_limits import FIRST_CALLS, MOST_CALLS, WINDOW, RateLimits
from hermes.ports.channel import Throttled
from hermes.testing.clock import FakeClock

ROUTE = "POST /channels/id/messages"


def headers(remaining: int, reset_after: float, limit: int = 5) -> dict[str, str]:
    return {
        "X-RateLimit-Bucket": "create",
        "X-RateLimit-Limit": str(limit),
        "X-RateLimit-Remaining": str(remaining),
        "X-RateLimit-Reset-After": str(reset_after),
    }


def accepted(limits: RateLimits, calls: int, major: str = "1", *, optional: bool = False) -> int:
    for done in range(calls):
        try:
            limits.count(ROUTE, major, optional=optional)
        except Throttled:
            return done
    return calls


async def ready_limits(clock: FakeClock) -> RateLimits:
    limits = RateLimits(clock)
    await clock.advance(WINDOW)
    return limits


async def test_one_call_finds_out_about_a_bucket() -> None:
    clock = FakeClock()
    limits = await ready_limits(clock)
    assert accepted(limits, 5) == 1
    limits.learn(ROUTE, "1", headers(4, 5.0))
    assert accepted(limits, 5) == 4
    await clock.advance(5.0)
    assert accepted(limits, 9) == 5, "the limit is known in the next period, too"


async def test_call_without_an_answer_does_not_block_its_bucket() -> None:
    clock = FakeClock()
    limits = await ready_limits(clock)
    assert accepted(limits, 2) == 1
    await clock.advance(2.0)
    assert accepted(limits, 2) == 1


async def test_route_without_a_bucket_has_no_limit_of_its_own() -> None:
    limits = await ready_limits(FakeClock())
    limits.count(ROUTE, "1")
    limits.learn(ROUTE, "1", {})
    assert accepted(limits, 5) == 5


async def test_progress_leaves_a_call_to_the_answer() -> None:
    clock = FakeClock()
    limits = await ready_limits(clock)
    limits.count(ROUTE, "1")
    limits.learn(ROUTE, "1", headers(4, 5.0))
    assert accepted(limits, 5, optional=True) == 3
    with pytest.raises(Throttled) as caught:
        limits.count(ROUTE, "1", optional=True)
    assert caught.value.one_kind
    assert accepted(limits, 5) == 1


async def test_calls_of_a_killed_process_count() -> None:
    """It may have made the others in the same second."""
    clock = FakeClock()
    limits = RateLimits(clock)
    chats = [str(number) for number in range(100)]
    assert sum(accepted(limits, 1, chat) for chat in chats) == FIRST_CALLS
    await clock.advance(WINDOW)
    assert sum(accepted(limits, 1, f"{chat}-") for chat in chats) == MOST_CALLS
