import anyio
import pytest

from hermes.ports.channel import (
    ChangedReaction,
    DeletedMessage,
    EditedMessage,
    Inbound,
    Outbound,
)
from hermes.schema.messages import Media, Text
from hermes.schema.scope import Address
from hermes.testing.channel import ChannelDown, FakeChannel
from hermes.testing.contracts.channel import (
    ChannelBench,
    ChannelContract,
    PlatformEvents,
    PlatformFaults,
    PlatformView,
)


class People:
    """The other side of a fake channel."""

    def __init__(self, channel: FakeChannel) -> None:
        self.channel = channel
        self.blobs: dict[str, bytes] = {}
        self.said: dict[str, Inbound] = {}

    async def say(self, text: str, reply_to: str | None = None) -> None:
        update = await self.channel.say(text, reply_to=reply_to)
        self.said[update.message or ""] = update

    async def reply(self, message: str, text: str) -> None:
        await self.say(text, message)

    async def again(self) -> None:
        await self.channel.type(list(self.said.values())[-1])

    async def edit(self, message: str, text: str) -> None:
        await self.channel.change(EditedMessage(), self.said[message], Text(text))

    async def delete(self, message: str) -> None:
        await self.channel.change(DeletedMessage(), self.said[message])

    async def react(self, message: str, emoji: str) -> None:
        await self.channel.change(ChangedReaction(emoji), self.said[message])

    async def press(self, post: str, value: str) -> None:
        await self.channel.press(post, value)

    async def store(self, data: bytes, name: str) -> Media:
        self.blobs[name] = data
        return Media(name, "application/octet-stream", name)

    async def shown(self, home: Address) -> list[str]:
        return self.channel.texts_in(home.chat)

    def buttons(self, post: str) -> dict[str, str]:
        return {one.value: one.label for one in self.channel.posts[post][1].choices}

    def files(self, post: str) -> dict[str, bytes]:
        attachments = self.channel.posts[post][1].attachments
        return {one.media.name: self.blobs[one.media.digest] for one in attachments}

    async def make_unreachable(self) -> None:
        self.channel.down = True

    def reject_markup(self) -> None:
        self.channel.rejects_markup = True


class TestFakeChannel(ChannelContract):
    @pytest.fixture
    def bench(self) -> ChannelBench:
        channel = FakeChannel()
        people = People(channel)
        return ChannelBench(
            channel,
            Address("fake", "1"),
            people.say,
            people.shown,
            people.again,
            PlatformEvents(
                edit=people.edit,
                delete=people.delete,
                react=people.react,
                press=people.press,
                reply=people.reply,
            ),
            PlatformView(
                typing=lambda home: home in channel.typing_in,
                buttons=people.buttons,
                files=people.files,
                quoted=lambda post: channel.posts[post][1].reply_to,
            ),
            PlatformFaults(unreachable=people.make_unreachable, reject_markup=people.reject_markup),
            people.store,
        )


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
