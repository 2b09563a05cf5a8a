"""The rate limiter respects platform limits and prefers answers over progress."""

import anyio

from hermes.gateway.rate_limiter import RateLimiter
from hermes.ports.channel import ChannelCapabilities, Throttled
from hermes.schema.scope import Address
from hermes.testing.clock import FakeClock

A, B = Address("fake", "a"), Address("fake", "b")


async def moments(limiter: RateLimiter, clock: FakeClock, *addresses: Address) -> list[float]:
    """Return when each address got capacity, in seconds from now."""
    started = clock.monotonic()
    got: list[float] = []

    async def ask(to: Address) -> None:
        await limiter.acquire(to)
        got.append(round(clock.monotonic() - started, 3))

    async with anyio.create_task_group() as group:
        for to in addresses:
            group.start_soon(ask, to)
        while len(got) < len(addresses):
            await clock.advance(0.05)
    return sorted(got)


async def test_no_limits_means_no_waiting() -> None:
    clock = FakeClock()
    limiter = RateLimiter(clock, ChannelCapabilities(100))
    assert await moments(limiter, clock, *[A] * 50) == [0.0] * 50


async def test_chat_rate_is_independent_per_chat() -> None:
    clock = FakeClock()
    limiter = RateLimiter(clock, ChannelCapabilities(100, chat_rate=1.0))
    got = await moments(limiter, clock, A, A, A, A, B)
    assert got[:3] == [0.0] * 3
    assert [round(one) for one in got[3:]] == [1, 2]


async def test_account_rate_applies_to_all_chats() -> None:
    clock = FakeClock()
    limiter = RateLimiter(clock, ChannelCapabilities(100, rate=10.0))
    addresses = [Address("fake", str(address)) for address in range(30)]
    got = await moments(limiter, clock, *addresses)
    assert sum(one == 0.0 for one in got) == 10
    for second in (0.5, 1.0, 1.5):
        assert sum(one <= second for one in got) <= 10 + 10 * second + 1
    assert got[-1] <= 2.2


async def test_progress_is_skipped_when_capacity_is_low() -> None:
    clock = FakeClock()
    limiter = RateLimiter(clock, ChannelCapabilities(100, rate=10.0))
    granted = sum(limiter.try_acquire(Address("fake", str(address))) for address in range(20))
    assert 1 < granted < 10
    assert await moments(limiter, clock, A) == [0.0]


async def test_throttling_pauses_sending() -> None:
    clock = FakeClock()
    limiter = RateLimiter(clock, ChannelCapabilities(100))
    limiter.pause(Throttled("Too many posts.", wait=7.0), A)
    assert (limiter.try_acquire(A), limiter.try_acquire(B)) == (False, True)
    assert [round(one) for one in await moments(limiter, clock, A, B)] == [0, 7]
    limiter.pause(Throttled("Too many posts.", wait=7.0, all_chats=True), A)
    assert [round(one) for one in await moments(limiter, clock, A, B)] == [7, 7]
    assert limiter.try_acquire(A)


async def test_groups_have_a_limit_per_minute() -> None:
    clock = FakeClock()
    caps = ChannelCapabilities(100, chat_rate=1.0, group_rate=20 / 60, group_prefix="-")
    limiter = RateLimiter(clock, caps)
    group = Address("fake", "-100")
    got = await moments(limiter, clock, *[group] * 30)
    assert got[:4] == [0.0] * 4
    windows = [sum(start <= one < start + 60 for one in got) for start in got]
    assert 18 <= max(windows) <= 20
    assert [round(one) for one in await moments(limiter, clock, A, A, A)] == [0, 0, 1]


async def test_progress_leaves_an_answer_to_its_chat() -> None:
    """However often progress is tried, an answer and the next one do not wait for it."""
    clock = FakeClock()
    limiter = RateLimiter(clock, ChannelCapabilities(100, chat_rate=1.0))
    for _ in range(30):
        shown = sum(limiter.try_acquire(A) for _ in range(5))
        assert shown <= 1
        await clock.advance(0.1)
    assert await moments(limiter, clock, A) == [0.0]
    assert not limiter.try_acquire(A)


async def test_typing_leaves_more_capacity_than_progress() -> None:
    clock = FakeClock()
    limiter = RateLimiter(clock, ChannelCapabilities(100, rate=12.0, chat_rate=1.0))
    chats = [Address("fake", str(number)) for number in range(20)]
    assert 1 < sum(map(limiter.try_type, chats)) < 6
    assert sum(map(limiter.try_acquire, chats)) > 0
    assert await moments(limiter, clock, A, A) == [0.0, 0.0]


async def test_typing_is_repeated_only_after_a_while() -> None:
    clock = FakeClock()
    limiter = RateLimiter(clock, ChannelCapabilities(100))
    assert (limiter.try_type(A), limiter.try_type(A), limiter.try_type(B)) == (True, False, True)
    assert limiter.try_type(A, on=False)
    await clock.advance(4.0)
    assert limiter.try_type(A)
    limiter.pause(Throttled("slow down", wait=5.0), A)
    assert not limiter.try_type(A, on=False)


async def test_limit_of_one_kind_of_call_does_not_stop_others() -> None:
    clock = FakeClock()
    limiter = RateLimiter(clock, ChannelCapabilities(100))
    limiter.pause(Throttled("no more edits", wait=30.0, one_kind=True), A)
    assert limiter.try_acquire(A)


async def test_reaction_does_not_delay_an_answer() -> None:
    clock = FakeClock()
    limiter = RateLimiter(clock, ChannelCapabilities(100, rate=20.0, chat_rate=1.0))
    assert limiter.try_react(A)
    assert await moments(limiter, clock, A) == [0.0]
    assert limiter.try_react(A), "the answer does not take the place of the last reaction"
    assert not limiter.try_react(A), "reactions have a limit of their own"
    assert limiter.try_react(B)


async def test_reactions_leave_the_account_room_for_an_answer() -> None:
    clock = FakeClock()
    limiter = RateLimiter(clock, ChannelCapabilities(100, rate=4.0))
    for number in range(20):
        limiter.try_react(Address("fake", str(number)))
    assert await moments(limiter, clock, A) == [0.0]
    slow = RateLimiter(clock, ChannelCapabilities(100, rate=0.5))
    assert not slow.try_react(A)


async def test_no_reaction_while_the_platform_asks_to_wait() -> None:
    clock = FakeClock()
    limiter = RateLimiter(clock, ChannelCapabilities(100))
    limiter.pause(Throttled("slow down", wait=5.0), A)
    assert not limiter.try_react(A)
    assert limiter.try_react(B)
    await clock.advance(6)
    assert limiter.try_react(A)
