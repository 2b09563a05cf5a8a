from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path

import anyio
import pytest

from hermes.kit.clock import SystemClock
from hermes.ports.channel import (
    Inbound,
    NotSent,
    Offline,
    Outbound,
    SupportsEdit,
    SupportsLiveness,
    SupportsReactions,
    SupportsTyping,
    Throttled,
)
from hermes.schema.messages import Media, Text
from hermes.schema.scope import Address
from hermes.store.blobs import FileBlobs
from hermes.testing.contracts.channel import (
    ChannelBench,
    ChannelContract,
    PlatformEvents,
    PlatformFaults,
    PlatformView,
)
from support.chat_platform.channel import open_platform_channel
from support.chat_platform.server import PlatformServer, serve_platform
from support.chat_platform.state import SOME_FAULTS, FakePlatform, FaultRates

HOME = Address("test", "kitchen")
HELLO = Outbound((Text("hello"),))


@pytest.fixture
async def server() -> AsyncGenerator[PlatformServer]:
    async with serve_platform() as server:
        yield server


class TestPlatformChannel(ChannelContract):
    @pytest.fixture
    async def bench(self, server: PlatformServer, tmp_path: Path) -> AsyncGenerator[ChannelBench]:
        platform = server.platform
        blobs = FileBlobs(tmp_path / "blobs")

        async def acknowledged() -> None:
            server.changed()
            await server.until(lambda: not platform.feed("bot").updates)

        async def arrive(text: str) -> None:
            platform.say("bot", "kitchen", "ann", text)
            await acknowledged()

        async def reply(message: str, text: str) -> None:
            platform.say("bot", "kitchen", "ann", text, message)
            await acknowledged()

        async def again() -> None:
            platform.repeat(platform.written[-1])
            await acknowledged()

        async def change(kind: str, message: str, value: str = "") -> None:
            platform.change("bot", "kitchen", "ann", kind, message, value)
            await acknowledged()

        async def shown(home: Address) -> list[str]:
            return [one.text for one in platform.posts_in("bot", home.chat)]

        async def store(data: bytes, name: str) -> Media:
            return await blobs.put(data, "application/octet-stream", name)

        def throttled() -> None:
            platform.fault_rates = FaultRates(throttled=1)

        opened = open_platform_channel(server.url, "bot", SystemClock(), blobs=blobs)
        async with opened as channel:
            yield ChannelBench(
                channel,
                HOME,
                arrive,
                shown,
                again,
                PlatformEvents(
                    edit=partial(change, "edit"),
                    delete=partial(change, "delete"),
                    react=partial(change, "reaction"),
                    press=partial(change, "press"),
                    reply=reply,
                ),
                PlatformView(
                    typing=lambda home: ("bot", home.chat) in platform.typing,
                    reactions=lambda: platform.reactions,
                    buttons=lambda post: platform.posts[post].buttons,
                    files=lambda post: platform.posts[post].files,
                    quoted=lambda post: platform.posts[post].reply_to,
                ),
                PlatformFaults(throttled=throttled),
                store,
            )


async def test_platform_channel_supports_all_capabilities(server: PlatformServer):
    async with open_platform_channel(server.url, "bot", SystemClock()) as channel:
        for extra in (SupportsEdit, SupportsTyping, SupportsReactions, SupportsLiveness):
            assert isinstance(channel, extra)
        await channel.typing(HOME, True)
        assert server.platform.typing == {("bot", "kitchen")}
        await channel.react(HOME, "u1", "!")
        assert server.platform.reactions == [("u1", "!")]


@pytest.mark.parametrize(
    ("weather", "error"),
    [(FaultRates(refused=1), NotSent), (FaultRates(throttled=1), Throttled)],
)
async def test_refused_post_raises_not_sent(weather: FaultRates, error: type[NotSent]):
    async with (
        serve_platform(weather) as server,
        open_platform_channel(server.url, "bot", SystemClock()) as channel,
    ):
        with pytest.raises(error):
            await channel.send(HOME, HELLO)
        assert not server.platform.posts


@pytest.mark.parametrize("weather", [FaultRates(dropped=1), FaultRates(lost_reply=1)])
async def test_cut_connection_does_not_raise_not_sent(weather: FaultRates):
    async with (
        serve_platform(weather) as server,
        open_platform_channel(server.url, "bot", SystemClock()) as channel,
    ):
        with pytest.raises(Exception) as caught:  # noqa: PT011
            await channel.send(HOME, HELLO)
        assert not isinstance(caught.value, NotSent)
        assert len(server.platform.posts) == (weather.lost_reply == 1)


async def test_send_without_a_server_raises_offline():
    async with serve_platform() as server:
        url = server.url
    async with open_platform_channel(url, "bot", SystemClock()) as channel:
        with pytest.raises(Offline):
            await channel.send(HOME, HELLO)


async def test_unacknowledged_update_is_delivered_again(server: PlatformServer):
    received: list[str] = []

    async def deliver(inbound: Inbound) -> None:
        received.append(inbound.key)
        if len(received) == 1:
            raise ConnectionError("the disk is full")

    async with open_platform_channel(server.url, "bot", SystemClock()) as channel:
        server.say("bot", "kitchen", "ann", "hello")
        with pytest.raises(ConnectionError):
            await channel.run(deliver)
        async with anyio.create_task_group() as group:
            group.start_soon(channel.run, deliver)
            await server.until(lambda: not server.platform.feed("bot").updates)
            group.cancel_scope.cancel()
    assert received == ["u0", "u0"]


def test_faults_repeat_and_mix_updates_but_keep_each_chat_in_order():
    truth = FakePlatform(SOME_FAULTS, seed=7)
    messages = [("bot", f"c{n % 5}", "ann", str(n)) for n in range(500)]
    truth.say_all(messages)
    delivered = [update.spoken for update in truth.feed("bot").updates]
    assert 100 < len(delivered) - 500 < 200
    first_deliveries = list(dict.fromkeys(delivered))
    assert first_deliveries != truth.written
    for chat in range(5):
        texts = [int(one.text) for one in first_deliveries if one.chat == f"c{chat}"]
        assert texts == sorted(texts)
    again = FakePlatform(SOME_FAULTS, seed=7)
    again.say_all(messages)
    assert [update.spoken for update in again.feed("bot").updates] == delivered
