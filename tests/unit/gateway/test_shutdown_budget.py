"""The time budget of a gateway shutdown."""

from pathlib import Path

import anyio

from hermes.app.service.control import STOP_TIMEOUT
from hermes.gateway.shutdown_budget import DRAIN_SECONDS, shutdown_seconds, stop_timeout
from hermes.testing.channel import FakeFaultyChannel, SendFault
from hermes.testing.clock import FakeClock
from hermes.testing.scripted_model import answer_script
from support.gateway import (
    GATED_SCRIPT,
    NO_POLLING,
    gated_tool,
    gateway_harness,
    start_gated_turn,
    wait_until,
)


async def test_slowest_shutdown_fits_the_budget(tmp_path: Path) -> None:
    """A turn ends at the last moment, and the platform does not respond to its answer."""
    gates, tool = gated_tool()
    clock, channel = FakeClock(), FakeFaultyChannel(*[SendFault.HANGS] * 100)
    async with gateway_harness(
        tmp_path,
        GATED_SCRIPT,
        answer_script("Done."),
        tools=[tool],
        channel=channel,
        clock=clock,
        rules=NO_POLLING,
    ) as harness:
        await start_gated_turn(harness, gates)
        started = clock.monotonic()
        harness.gateway.close()
        await clock.advance(NO_POLLING.drain - 1)
        gates.open("a")
        await wait_until(lambda: channel.calls == 1)
        with anyio.fail_after(60):
            while not harness.gateway.delivered.is_set():
                await clock.advance(1.0)
        took = clock.monotonic() - started
        assert NO_POLLING.drain < took <= harness.gateway.shutdown_seconds
        assert harness.gateway.shutdown_seconds == shutdown_seconds(NO_POLLING.drain)


def test_stop_timeouts_cover_the_budget() -> None:
    assert (
        STOP_TIMEOUT
        == stop_timeout(DRAIN_SECONDS)
        > shutdown_seconds(DRAIN_SECONDS)
        > DRAIN_SECONDS
    )
