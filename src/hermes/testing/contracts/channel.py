"""Contract of channels: subclass `ChannelContract` and provide the fixture `bench`."""

from collections.abc import Awaitable, Callable

import anyio
from msgspec import Struct

from hermes.ports.channel import Channel, Inbound, Outbound, SupportsEdit
from hermes.schema.messages import Text
from hermes.schema.scope import Address


class ChannelBench(Struct, frozen=True):
    """A channel under test and the other side of its platform.

    `arrive` sends a message to the channel and returns once it is acknowledged; `shown` returns
    the texts visible in a chat.
    """

    channel: Channel
    home: Address
    arrive: Callable[[str], Awaitable[None]]
    shown: Callable[[Address], Awaitable[list[str]]]


def _post(text: str) -> Outbound:
    return Outbound((Text(text),))


class ChannelContract:
    async def test_incoming_message_is_delivered(self, bench: ChannelBench) -> None:
        received: list[Inbound] = []

        async def deliver(update: Inbound) -> None:
            received.append(update)

        async with anyio.create_task_group() as group:
            group.start_soon(bench.channel.run, deliver)
            await bench.arrive("hello")
            group.cancel_scope.cancel()
        assert [
            part.text for update in received for part in update.parts if isinstance(part, Text)
        ] == ["hello"]
        assert received[0].key
        assert received[0].sender
        assert received[0].address.channel == bench.home.channel

    async def test_update_is_not_acknowledged_before_deliver_returns(
        self, bench: ChannelBench
    ) -> None:
        delivering, durable, arrived = anyio.Event(), anyio.Event(), anyio.Event()

        async def deliver(update: Inbound) -> None:
            delivering.set()
            await durable.wait()

        async def arrive() -> None:
            await bench.arrive("hello")
            arrived.set()

        async with anyio.create_task_group() as group:
            group.start_soon(bench.channel.run, deliver)
            group.start_soon(arrive)
            await delivering.wait()
            assert not arrived.is_set()
            durable.set()
            await arrived.wait()
            group.cancel_scope.cancel()

    async def test_each_send_returns_its_own_receipt(self, bench: ChannelBench) -> None:
        first = await bench.channel.send(bench.home, _post("one"))
        second = await bench.channel.send(bench.home, _post("two"))
        assert first.id != second.id
        assert await bench.shown(bench.home) == ["one", "two"]

    async def test_edit_replaces_the_sent_message(self, bench: ChannelBench) -> None:
        if not isinstance(bench.channel, SupportsEdit):
            return
        receipt = await bench.channel.send(bench.home, _post("draft"))
        await bench.channel.edit(receipt, _post("final"))
        assert await bench.shown(bench.home) == ["final"]
