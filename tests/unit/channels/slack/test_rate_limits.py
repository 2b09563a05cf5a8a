"""Slack's limits per minute: progress is spread over it and leaves a part to answers."""

from hermes.channels.slack.rate_limits import OPTIONAL_BURST, PER_MINUTE, RateLimits
from hermes.ports.channel import Throttled
from hermes.testing.clock import FakeClock

METHOD = "chat.update"


def is_accepted(limits: RateLimits, *, optional: bool) -> bool:
    try:
        limits.count(METHOD, optional=optional)
    except Throttled:
        return False
    return True


async def test_progress_is_spread_over_the_minute() -> None:
    clock = FakeClock()
    limits = RateLimits(clock)
    per_second: list[int] = []
    for _ in range(60):
        per_second.append(sum(is_accepted(limits, optional=True) for _ in range(20)))
        await clock.advance(1.0)
    assert per_second[0] <= OPTIONAL_BURST + 1
    assert all(sum(per_second[start : start + 4]) for start in range(1, 56)), "it never stalls"
    assert sum(per_second) < PER_MINUTE[METHOD] * 0.8
    answers = sum(is_accepted(limits, optional=False) for _ in range(60))
    assert answers >= PER_MINUTE[METHOD] * 0.2
