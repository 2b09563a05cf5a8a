"""What a homeserver refused once is not tried faster than it allows."""

from hermes.channels.matrix.event_limit import MAX_EACH, RECOVERY, EventLimit
from hermes.ports.channel import Throttled
from hermes.testing.clock import FakeClock


def refusal(limit: EventLimit, *, optional: bool) -> Throttled | None:
    try:
        limit.count(optional=optional)
    except Throttled as error:
        return error
    return None


async def test_nothing_is_refused_before_the_homeserver_does() -> None:
    limit = EventLimit(FakeClock())
    assert [refusal(limit, optional=optional) for optional in (True, False) * 50] == [None] * 100


async def test_answers_come_one_by_one_after_a_refusal() -> None:
    clock = FakeClock()
    limit = EventLimit(clock)
    limit.refused(5.0)
    waiting = refusal(limit, optional=False)
    assert waiting is not None
    assert waiting.all_chats
    assert waiting.wait == 5.0
    await clock.advance(5.0)
    assert refusal(limit, optional=False) is None
    assert refusal(limit, optional=False) is not None


async def test_progress_pauses_until_the_burst_is_back() -> None:
    clock = FakeClock()
    limit = EventLimit(clock)
    limit.refused(5.0)
    await clock.advance(5.0)
    assert refusal(limit, optional=False) is None
    # That answer used up one interval more.
    await clock.advance((RECOVERY + 1) * 5.0 - 1)
    refused = refusal(limit, optional=True)
    assert refused is not None
    assert refused.one_kind
    await clock.advance(2.0)
    assert refusal(limit, optional=True) is None


async def test_long_pause_is_kept_once_and_is_not_the_rate() -> None:
    clock = FakeClock()
    limit = EventLimit(clock)
    limit.refused(60.0)
    await clock.advance(59.0)
    assert refusal(limit, optional=False) is not None
    await clock.advance(1.0)
    for _ in range(20):
        assert refusal(limit, optional=False) is None
        assert refusal(limit, optional=False) is not None
        await clock.advance(MAX_EACH)


async def test_pause_longer_than_the_recovery_is_kept() -> None:
    clock = FakeClock()
    limit = EventLimit(clock)
    limit.refused(300.0)
    await clock.advance(299.0)
    assert refusal(limit, optional=False) is not None
    await clock.advance(1.0 + RECOVERY * MAX_EACH)
    assert refusal(limit, optional=True) is None
