"""How long the end of a gateway may take, in truth and as others are told."""

from pathlib import Path

import anyio
import pytest

from gateways import RARELY, WAITS, busy_with_a_tool, gated, lobby, until
from hermes.daemon.control import PATIENCE
from hermes.gateway.ending import DRAIN, ends_within, waited_for
from hermes.testing.clock import FakeClock
from hermes.testing.scripted import says
from hermes.testing.world import Fault, RoughChannel

pytestmark = pytest.mark.anyio


async def test_the_slowest_end_is_within_the_sum(tmp_path: Path) -> None:
    """A turn ends at the last moment, and the platform does not answer to what it said."""
    gates, tool = gated()
    clock, channel = FakeClock(), RoughChannel(*[Fault.HANGS] * 100)
    async with lobby(
        tmp_path, WAITS, says("Done."), tools=[tool], channel=channel, clock=clock, rules=RARELY
    ) as one:
        await busy_with_a_tool(one, gates)
        begun = clock.monotonic()
        one.gateway.close()
        await clock.advance(RARELY.drain - 1)
        gates.open("a")
        await until(lambda: channel.calls == 1)
        with anyio.fail_after(60):
            while not one.gateway.delivered.is_set():
                await clock.advance(1.0)
        took = clock.monotonic() - begun
        assert RARELY.drain < took <= one.gateway.ends_within
        assert one.gateway.ends_within == ends_within(RARELY.drain)


def test_nobody_gives_up_before_it_has_ended() -> None:
    assert PATIENCE == waited_for(DRAIN) > ends_within(DRAIN) > DRAIN
