"""The inbound limit refuses messages that come too fast, but never accepted ones."""

from pathlib import Path

import pytest

from hermes.gateway.messages import Admitted, BusyMode
from hermes.gateway.user_limits import INBOUND_BURST, NOTICE_INTERVAL, TOO_FAST_NOTICE
from hermes.ports.channel import Inbound, InboundRefused
from hermes.schema.scope import Role
from hermes.testing.channel import FakeFaultyChannel
from hermes.testing.clock import FakeClock
from support.gateway import gateway_harness, gateway_rules, make_inbound, session_key_of


async def member(inbound: Inbound) -> Admitted:
    return Admitted(
        key=session_key_of(inbound), principal=f"fake:{inbound.sender}", role=Role.MEMBER
    )


@pytest.mark.slow
async def test_repeated_updates_are_not_counted(tmp_path: Path) -> None:
    async with gateway_harness(
        tmp_path, authorize=member, rules=gateway_rules(BusyMode.QUEUE)
    ) as harness:
        for _ in range(INBOUND_BURST + 1):
            await harness.channel.type(make_inbound("hello", "k1"))
            await harness.channel.type(make_inbound("/title Trip", "c1"))
        for number in range(3):
            await harness.channel.type(make_inbound(f"new {number}", f"n{number}"))
        await harness.wait_until_idle()
        assert sorted(harness.channel.texts_in("1")) == [
            "Session title: “Trip”.", "re: hello", "re: new 0", "re: new 1", "re: new 2"
        ]  # fmt: skip


@pytest.mark.slow
async def test_too_fast_user_is_notified_once_and_refusals_are_final(tmp_path: Path) -> None:
    clock = FakeClock()
    async with gateway_harness(
        tmp_path, authorize=member, rules=gateway_rules(BusyMode.COLLECT), clock=clock
    ) as harness:
        # A command that is accepted and says nothing, so that replies can be distinguished.
        for number in range(INBOUND_BURST):
            await harness.channel.type(make_inbound("/queue x", f"k{number}", chat="2"))
        for number in range(3):
            await harness.channel.type(make_inbound("too much", f"r{number}"))
        await harness.wait_for_posts(TOO_FAST_NOTICE)
        await harness.channel.type(make_inbound("/queue x", "k0", chat="2"))
        await clock.advance(NOTICE_INTERVAL)
        await harness.channel.type(make_inbound("too much", "r0"))
        await harness.channel.type(make_inbound("at last", "n1"))
        await harness.wait_for_posts(TOO_FAST_NOTICE, "re: at last")
        await harness.wait_until_idle()
        assert (
            len([text for text in harness.channel.texts_in("2") if text == "re: x"])
            == INBOUND_BURST
        )


@pytest.mark.slow
async def test_webhook_call_over_the_limit_is_refused(tmp_path: Path) -> None:
    clock = FakeClock()
    channel = FakeFaultyChannel(name="webhook")
    async with gateway_harness(tmp_path, authorize=member, channel=channel, clock=clock) as harness:
        calls = [
            make_inbound("hi", f"w{number}", channel="webhook")
            for number in range(INBOUND_BURST + 1)
        ]
        for call in calls[:-1]:
            await channel.type(call)
        with pytest.raises(InboundRefused) as refused:
            await channel.type(calls[-1])
        assert refused.value.wait == 0.5
        await channel.type(calls[0])
        await clock.advance(refused.value.wait)
        await channel.type(calls[-1])
        await harness.wait_until_idle()
    assert TOO_FAST_NOTICE not in channel.texts_in("1")
