"""Who writes far too fast is told so; what was taken is never refused, and nothing twice."""

from pathlib import Path

import pytest

from gateways import key_of, lobby, rules, update
from hermes.gateway.flood import BURST, NOTICE, QUIET
from hermes.gateway.letters import Busy, Welcome
from hermes.ports.channel import Inbound, NotTaken
from hermes.schema.scope import Role
from hermes.testing.clock import FakeClock
from hermes.testing.world import RoughChannel

pytestmark = pytest.mark.anyio


async def member(inbound: Inbound) -> Welcome:
    return Welcome(key=key_of(inbound), principal=f"fake:{inbound.sender}", role=Role.MEMBER)


async def test_repetitions_do_not_count(tmp_path: Path) -> None:
    async with lobby(tmp_path, door=member, rules=rules(Busy.QUEUE)) as one:
        for _ in range(BURST + 1):
            await one.channel.type(update("hello", "k1"))
            await one.channel.type(update("/title Trip", "c1"))
        for number in range(3):
            await one.channel.type(update(f"new {number}", f"n{number}"))
        await one.calm()
        assert sorted(one.channel.seen_in("1")) == [
            "This session is now called “Trip”.", "re: hello", "re: new 0", "re: new 1", "re: new 2"
        ]  # fmt: skip


async def test_who_is_too_fast_is_told_once_and_nothing_refused_is_taken_later(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    async with lobby(tmp_path, door=member, rules=rules(Busy.COLLECT), clock=clock) as one:
        # Something that is taken and says nothing, so that what is said can be told apart.
        for number in range(BURST):
            await one.channel.type(update("/queue x", f"k{number}", chat="2"))
        for number in range(3):
            await one.channel.type(update("too much", f"r{number}"))
        await one.sees(NOTICE)
        await one.channel.type(update("/queue x", "k0", chat="2"))
        await clock.advance(QUIET)
        await one.channel.type(update("too much", "r0"))
        await one.channel.type(update("at last", "n1"))
        await one.sees(NOTICE, "re: at last")
        await one.calm()
        assert len([text for text in one.channel.seen_in("2") if text == "re: x"]) == BURST


async def test_what_can_be_sent_again_is_not_taken_at_all(tmp_path: Path) -> None:
    clock = FakeClock()
    channel = RoughChannel(name="webhook")
    async with lobby(tmp_path, door=member, channel=channel, clock=clock) as one:
        calls = [update("hi", f"w{number}", channel="webhook") for number in range(BURST + 1)]
        for call in calls[:-1]:
            await channel.type(call)
        with pytest.raises(NotTaken) as refused:
            await channel.type(calls[-1])
        assert refused.value.wait == 0.5
        await channel.type(calls[0])
        await clock.advance(refused.value.wait)
        await channel.type(calls[-1])
        await one.calm()
    assert NOTICE not in channel.seen_in("1")
