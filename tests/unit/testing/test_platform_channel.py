from collections.abc import AsyncGenerator

import anyio
import pytest

from hermes.kit.clock import SystemClock
from hermes.ports.channel import (
    Edits,
    Inbound,
    Lives,
    NotSent,
    Offline,
    Outgoing,
    Reacts,
    Throttled,
    Types,
)
from hermes.schema.messages import Text
from hermes.schema.scope import Address
from hermes.testing.contracts.channel import Bench, ChannelContract
from hermes.testing.platform.server import PlatformServer, serve
from hermes.testing.platform.truth import Truth
from hermes.testing.platform.weather import ROUGH, Weather
from hermes.testing.platform_channel import open_channel

pytestmark = pytest.mark.anyio

HOME = Address("test", "kitchen")
HELLO = Outgoing((Text("hello"),))


@pytest.fixture
async def server() -> AsyncGenerator[PlatformServer]:
    async with serve() as server:
        yield server


class TestPlatformChannel(ChannelContract):
    @pytest.fixture
    async def bench(self, server: PlatformServer) -> AsyncGenerator[Bench]:
        async def arrive(text: str) -> None:
            server.say("bot", "kitchen", "ann", text)
            await server.until(lambda: not server.truth.feed("bot").updates)

        async def shown(home: Address) -> list[str]:
            return [one.text for one in server.truth.seen("bot", home.chat)]

        async with open_channel(server.url, "bot", SystemClock()) as channel:
            yield Bench(channel, HOME, arrive, shown)


async def test_it_is_a_channel_with_everything(server: PlatformServer):
    async with open_channel(server.url, "bot", SystemClock()) as channel:
        for extra in (Edits, Types, Reacts, Lives):
            assert isinstance(channel, extra)
        await channel.typing(HOME, True)
        assert server.truth.typing == {("bot", "kitchen")}
        await channel.react(HOME, "u1", "!")
        assert server.truth.signs == [("u1", "!")]


@pytest.mark.parametrize(
    ("weather", "error"),
    [(Weather(refused=1), NotSent), (Weather(throttled=1), Throttled)],
)
async def test_a_post_that_was_not_taken_is_known(weather: Weather, error: type[NotSent]):
    async with (
        serve(weather) as server,
        open_channel(server.url, "bot", SystemClock()) as channel,
    ):
        with pytest.raises(error):
            await channel.send(HOME, HELLO)
        assert not server.truth.shown


@pytest.mark.parametrize("weather", [Weather(dropped=1), Weather(lost_reply=1)])
async def test_a_cut_connection_leaves_it_open(weather: Weather):
    async with (
        serve(weather) as server,
        open_channel(server.url, "bot", SystemClock()) as channel,
    ):
        with pytest.raises(Exception) as caught:  # noqa: PT011
            await channel.send(HOME, HELLO)
        assert not isinstance(caught.value, NotSent)
        assert len(server.truth.shown) == (weather.lost_reply == 1)


async def test_a_platform_that_is_not_there_is_offline():
    async with serve() as server:
        url = server.url
    async with open_channel(url, "bot", SystemClock()) as channel:
        with pytest.raises(Offline):
            await channel.send(HOME, HELLO)


async def test_what_was_not_acknowledged_comes_again(server: PlatformServer):
    heard: list[str] = []

    async def deliver(inbound: Inbound) -> None:
        heard.append(inbound.key)
        if len(heard) == 1:
            raise ConnectionError("the disk is full")

    async with open_channel(server.url, "bot", SystemClock()) as channel:
        server.say("bot", "kitchen", "ann", "hello")
        with pytest.raises(ConnectionError):
            await channel.run(deliver)
        async with anyio.create_task_group() as group:
            group.start_soon(channel.run, deliver)
            await server.until(lambda: not server.truth.feed("bot").updates)
            group.cancel_scope.cancel()
    assert heard == ["u0", "u0"]


def test_rough_weather_repeats_and_mixes_but_keeps_each_chat_in_order():
    truth = Truth(ROUGH, seed=7)
    said = [("bot", f"c{n % 5}", "ann", str(n)) for n in range(500)]
    truth.say_all(said)
    given = [update.spoken for update in truth.feed("bot").updates]
    assert 100 < len(given) - 500 < 200
    firsts = list(dict.fromkeys(given))
    assert firsts != truth.spoken
    for chat in range(5):
        texts = [int(one.text) for one in firsts if one.chat == f"c{chat}"]
        assert texts == sorted(texts)
    again = Truth(ROUGH, seed=7)
    again.say_all(said)
    assert [update.spoken for update in again.feed("bot").updates] == given
