import anyio
import pytest

from hermes.ports.channel import Inbound, Outbound
from hermes.schema.messages import Text
from hermes.schema.scope import Address
from hermes.testing.channel import ChannelDown, FakeChannel
from hermes.testing.contracts.channel import ChannelBench, ChannelContract

pytestmark = pytest.mark.anyio


class TestFakeChannel(ChannelContract):
    @pytest.fixture
    def bench(self) -> ChannelBench:
        channel = FakeChannel()

        async def arrive(text: str) -> None:
            await channel.say(text)

        async def shown(home: Address) -> list[str]:
            return channel.texts_in(home.chat)

        return ChannelBench(channel, Address("fake", "1"), arrive, shown)


async def test_repeated_update_is_delivered_again():
    channel = FakeChannel()
    received: list[Inbound] = []

    async def deliver(update: Inbound) -> None:
        received.append(update)

    async with anyio.create_task_group() as group:
        group.start_soon(channel.run, deliver)
        update = await channel.say("hi")
        await channel.type(update)
        group.cancel_scope.cancel()
    assert [update.key for update in received] == ["fake:1", "fake:1"]


async def test_send_fails_while_the_platform_is_down():
    channel = FakeChannel()
    channel.down = True
    with pytest.raises(ChannelDown):
        await channel.send(Address("fake", "1"), Outbound((Text("hi"),)))


async def test_send_to_another_channel_is_refused():
    with pytest.raises(ValueError, match="telegram"):
        await FakeChannel().send(Address("telegram", "1"), Outbound((Text("hi"),)))
