"""The websocket of channels: connections that are refused, closed or silent."""

import anyio
import pytest

from emulators.homeassistant.server import EmulatedHome, serve_home
from hermes.channels.proxies import Proxy
from hermes.channels.websocket import PING_SECONDS, SILENT_SECONDS, open_websocket
from hermes.ports.channel import Offline
from hermes.testing.clock import FakeClock


async def test_silent_connection_is_noticed() -> None:
    clock = FakeClock()
    failures: list[Offline] = []

    async def keep_alive() -> None:
        try:
            await socket.keep_alive(lambda: {"type": "ping", "id": 1})
        except Offline as error:
            failures.append(error)

    async with serve_home(EmulatedHome()) as server:
        url = f"{server.url}/api/websocket"
        # Nothing is read, so no data arrives.
        async with (
            open_websocket("X", url, proxy=Proxy(), clock=clock, on_data=lambda: None) as socket,
            anyio.create_task_group() as group,
        ):
            group.start_soon(keep_alive)
            for _ in range(int(SILENT_SECONDS / PING_SECONDS)):
                await clock.advance(PING_SECONDS)
                assert failures == []
            await clock.advance(PING_SECONDS)
    assert str(failures[0]) == "X has stopped responding."


async def test_refused_connection_does_not_name_the_address() -> None:
    async with serve_home(EmulatedHome()) as server:
        url = f"{server.url}/nothing?token=secret"
        with pytest.raises(Offline) as caught:
            async with open_websocket(
                "X", url, proxy=Proxy(), clock=FakeClock(), on_data=lambda: None
            ):
                pass
    assert "secret" not in str(caught.value)
