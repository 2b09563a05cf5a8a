"""Nobody speaks faster than a platform allows, and answers come before progress."""

import anyio
import pytest

from hermes.gateway.rate_limiter import RateLimiter
from hermes.ports.channel import ChannelCapabilities, Throttled
from hermes.schema.scope import Address
from hermes.testing.clock import FakeClock

pytestmark = pytest.mark.anyio

A, B = Address("fake", "a"), Address("fake", "b")


async def moments(pacer: RateLimiter, clock: FakeClock, *places: Address) -> list[float]:
    """When each of them got room, in seconds from now."""
    begun = clock.monotonic()
    got: list[float] = []

    async def ask(to: Address) -> None:
        await pacer.room(to)
        got.append(round(clock.monotonic() - begun, 3))

    async with anyio.create_task_group() as group:
        for to in places:
            group.start_soon(ask, to)
        while len(got) < len(places):
            await clock.advance(0.05)
    return sorted(got)


async def test_without_limits_nobody_waits() -> None:
    clock = FakeClock()
    pacer = RateLimiter(clock, ChannelCapabilities(100))
    assert await moments(pacer, clock, *[A] * 50) == [0.0] * 50


async def test_one_chat_gets_one_a_second_and_others_do_not_wait_for_it() -> None:
    clock = FakeClock()
    pacer = RateLimiter(clock, ChannelCapabilities(100, chat_rate=1.0))
    got = await moments(pacer, clock, A, A, A, B)
    assert got[:2] == [0.0, 0.0]
    assert [round(one) for one in got[2:]] == [1, 2]


async def test_an_account_has_a_rate_of_its_own() -> None:
    clock = FakeClock()
    pacer = RateLimiter(clock, ChannelCapabilities(100, rate=10.0))
    places = [Address("fake", str(place)) for place in range(30)]
    got = await moments(pacer, clock, *places)
    assert sum(one == 0.0 for one in got) == 10
    for second in (0.5, 1.0, 1.5):
        assert sum(one <= second for one in got) <= 10 + 10 * second + 1
    assert got[-1] <= 2.2


async def test_progress_is_left_out_when_room_is_scarce() -> None:
    clock = FakeClock()
    pacer = RateLimiter(clock, ChannelCapabilities(100, rate=10.0))
    given = sum(pacer.spare(Address("fake", str(place))) for place in range(20))
    assert 1 < given < 10
    assert await moments(pacer, clock, A) == [0.0]


async def test_a_platform_that_wants_quiet_gets_it() -> None:
    clock = FakeClock()
    pacer = RateLimiter(clock, ChannelCapabilities(100))
    pacer.hush(Throttled("Too many posts.", wait=7.0), A)
    assert (pacer.spare(A), pacer.spare(B)) == (False, True)
    assert [round(one) for one in await moments(pacer, clock, A, B)] == [0, 7]
    pacer.hush(Throttled("Too many posts.", wait=7.0, everywhere=True), A)
    assert [round(one) for one in await moments(pacer, clock, A, B)] == [7, 7]
    assert pacer.spare(A)
