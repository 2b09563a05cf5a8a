"""Contract of channels: subclass `ChannelContract` and provide the fixture `bench`.

A bench leaves out what its platform cannot do; the capabilities must match.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest
from msgspec import Struct, structs

from hermes.kit.ids import new_id
from hermes.ports.channel import (
    Attachment,
    ChangedReaction,
    Channel,
    Choice,
    Choices,
    DeletedMessage,
    EditedMessage,
    Inbound,
    Markup,
    MarkupRejected,
    NewMessage,
    NotSent,
    Offline,
    Outbound,
    PressedButton,
    Receipt,
    SupportsEdit,
    SupportsLiveness,
    SupportsReactions,
    SupportsTyping,
    Throttled,
)
from hermes.schema.messages import Media, Text
from hermes.schema.scope import Address

TIMEOUT = 30.0
PNG = b"\x89PNG\r\n\x1a\n"
LITERAL = "2 * 3 * 4 < _x_ & `y` [a](b) <b>c</b>"


class PlatformEvents(Struct, frozen=True, kw_only=True):
    """Actions of people on the platform besides writing; each returns once acknowledged."""

    edit: Callable[[str, str], Awaitable[None]] | None = None
    """Change the text of the message with this id."""
    delete: Callable[[str], Awaitable[None]] | None = None
    react: Callable[[str, str], Awaitable[None]] | None = None
    press: Callable[[str, str], Awaitable[None]] | None = None
    """Press the button with this value below the post with this id."""
    reply: Callable[[str, str], Awaitable[None]] | None = None
    """Write a text in reply to the message with this id."""
    unreadable: Callable[[], Awaitable[None]] | None = None
    """Send the same update again, one that no program can read."""


class PlatformView(Struct, frozen=True, kw_only=True):
    """The platform's view for people, besides texts."""

    typing: Callable[[Address], bool] | None = None
    reactions: Callable[[], Sequence[tuple[str, str]]] | None = None
    buttons: Callable[[str], Mapping[str, str]] | None = None
    """Values and labels below the post with this id."""
    files: Callable[[str], Mapping[str, bytes]] | None = None
    quoted: Callable[[str], str | None] | None = None
    """The id of the message that the post with this id replies to."""


class PlatformFaults(Struct, frozen=True, kw_only=True):
    """Functions that make the platform fail from now on."""

    unreachable: Callable[[], Awaitable[None]] | None = None
    throttled: Callable[[], None] | None = None
    reject_markup: Callable[[], None] | None = None


class Admission:
    """Decides like the gateway whether a sender is admitted, for the channel's `admits`."""

    def __init__(self) -> None:
        self.admits = True

    async def __call__(self, update: Inbound) -> bool:
        return self.admits


class PlatformFiles(Struct, frozen=True, kw_only=True):
    """How people send files.

    `send` writes a message with a picture and returns once it is acknowledged. The channel was
    built with `admission`, and stores files below `folder`.
    """

    send: Callable[[str, bytes], Awaitable[None]]
    admission: Admission
    folder: Path

    def stored(self) -> set[Path]:
        return {path for path in self.folder.rglob("*") if path.is_file()}


class ChannelBench(Struct, frozen=True):
    """A channel under test and the other side of its platform.

    `arrive` sends a message to the channel and returns once it is acknowledged; `again` sends the
    last one once more; `shown` returns the texts visible in a chat. `store` puts a file where the
    channel reads it.
    """

    channel: Channel
    home: Address
    arrive: Callable[[str], Awaitable[None]]
    shown: Callable[[Address], Awaitable[list[str]]]
    again: Callable[[], Awaitable[None]]
    events: PlatformEvents = PlatformEvents()
    view: PlatformView = PlatformView()
    faults: PlatformFaults = PlatformFaults()
    store: Callable[[bytes, str], Awaitable[Media]] | None = None
    files: PlatformFiles | None = None


def _post(text: str, **more: object) -> Outbound:
    return structs.replace(Outbound((Text(text),), plain=text), **more)


@asynccontextmanager
async def listening(channel: Channel) -> AsyncGenerator[list[Inbound]]:
    """Run the channel during the block and collect what it delivers."""
    received: list[Inbound] = []

    async def deliver(update: Inbound) -> None:
        received.append(update)

    async with anyio.create_task_group() as group:
        group.start_soon(channel.run, deliver)
        with anyio.fail_after(TIMEOUT):
            yield received
        group.cancel_scope.cancel()


def text_of(update: Inbound) -> str:
    return "".join(part.text for part in update.parts if isinstance(part, Text))


class InboundContract:
    async def test_incoming_message_is_delivered(self, bench: ChannelBench) -> None:
        async with listening(bench.channel) as received:
            await bench.arrive("hello")
        (update,) = received
        assert text_of(update) == "hello"
        assert update.update == NewMessage()
        assert update.key
        assert update.sender
        assert update.address.channel == bench.home.channel

    async def test_incoming_text_is_unchanged(self, bench: ChannelBench) -> None:
        text = "שלום 你好 👩‍👧 é * _ ` < &"
        async with listening(bench.channel) as received:
            await bench.arrive(text)
        assert [text_of(update) for update in received] == [text]

    async def test_message_has_an_id_of_the_platform(self, bench: ChannelBench) -> None:
        async with listening(bench.channel) as received:
            await bench.arrive("one")
            await bench.arrive("two")
        ids = [update.message for update in received]
        assert all(ids)
        assert len(set(ids)) == 2

    async def test_message_was_written_just_now_if_the_platform_says(
        self, bench: ChannelBench
    ) -> None:
        async with listening(bench.channel) as received:
            await bench.arrive("hello")
        written_at = received[0].written_at or datetime.now(UTC)
        assert abs(written_at - datetime.now(UTC)) < timedelta(hours=1)

    async def test_messages_of_one_sender_have_the_same_sender_id(
        self, bench: ChannelBench
    ) -> None:
        async with listening(bench.channel) as received:
            await bench.arrive("one")
            await bench.arrive("two")
        assert len({update.sender for update in received}) == 1

    async def test_updates_have_different_keys(self, bench: ChannelBench) -> None:
        async with listening(bench.channel) as received:
            for text in ("one", "two", "three"):
                await bench.arrive(text)
        assert len({update.key for update in received}) == 3

    async def test_messages_arrive_in_order(self, bench: ChannelBench) -> None:
        texts = [f"message {number}" for number in range(5)]
        async with listening(bench.channel) as received:
            for text in texts:
                await bench.arrive(text)
        assert [text_of(update) for update in received] == texts

    async def test_repeated_update_has_the_same_key(self, bench: ChannelBench) -> None:
        async with listening(bench.channel) as received:
            await bench.arrive("hello")
            await bench.again()
        assert len({update.key for update in received}) == 1

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

    async def test_channel_can_run_again_after_it_was_cancelled(self, bench: ChannelBench) -> None:
        texts: list[str] = []
        for text in ("before", "after"):
            async with listening(bench.channel) as received:
                await bench.arrive(text)
            texts += map(text_of, received)
        assert texts == ["before", "after"]

    async def test_reply_names_the_message_it_replies_to(self, bench: ChannelBench) -> None:
        if bench.events.reply is None:
            return
        async with listening(bench.channel) as received:
            await bench.arrive("hello")
            await bench.events.reply(received[0].message or "", "more")
        assert received[1].reply_to == received[0].message

    async def test_unreadable_update_is_kept_logged_once_and_skipped(
        self, bench: ChannelBench, caplog: pytest.LogCaptureFixture
    ) -> None:
        if bench.events.unreadable is None:
            return
        async with listening(bench.channel) as received:
            await bench.arrive("one")
            await bench.events.unreadable()
            await bench.events.unreadable()
            await bench.arrive("two")
        assert [text_of(update) for update in received] == ["one", "two"]
        (logged,) = [
            message for message in caplog.messages if "an update could not be read" in message
        ]
        kept = anyio.Path(logged.rpartition("(kept in ")[2].removesuffix(")"))
        assert len((await kept.read_text()).splitlines()) == 1

    async def test_file_of_an_admitted_sender_is_stored(self, bench: ChannelBench) -> None:
        if bench.files is None:
            return
        data, before = PNG + new_id("file").encode(), bench.files.stored()
        async with listening(bench.channel) as received:
            await bench.files.send("a.png", data)
        (update,) = received
        assert [part for part in update.parts if isinstance(part, Media)]
        assert data in [path.read_bytes() for path in bench.files.stored() - before]

    async def test_file_of_a_sender_who_is_not_admitted_is_not_stored(
        self, bench: ChannelBench
    ) -> None:
        """Otherwise anyone who can write to the account could fill the disk."""
        if bench.files is None:
            return
        bench.files.admission.admits = False
        data, before = PNG + new_id("file").encode(), bench.files.stored()
        async with listening(bench.channel) as received:
            await bench.files.send("a.png", data)
        (update,) = received
        assert not [part for part in update.parts if isinstance(part, Media)]
        assert update.sender
        assert bench.files.stored() == before

    async def test_edit_of_a_message_is_an_update(self, bench: ChannelBench) -> None:
        if bench.events.edit is None:
            return
        async with listening(bench.channel) as received:
            await bench.arrive("helo")
            await bench.events.edit(received[0].message or "", "hello")
        first, edit = received
        assert edit.update == EditedMessage()
        assert text_of(edit) == "hello"
        assert (edit.message, edit.sender) == (first.message, first.sender)
        assert edit.key != first.key

    async def test_deletion_of_a_message_is_an_update(self, bench: ChannelBench) -> None:
        if bench.events.delete is None:
            return
        async with listening(bench.channel) as received:
            await bench.arrive("hello")
            await bench.events.delete(received[0].message or "")
        first, deletion = received
        assert deletion.update == DeletedMessage()
        assert deletion.parts == ()
        assert deletion.message == first.message
        assert deletion.key != first.key

    async def test_reaction_is_an_update(self, bench: ChannelBench) -> None:
        if bench.events.react is None:
            return
        async with listening(bench.channel) as received:
            await bench.arrive("hello")
            await bench.events.react(received[0].message or "", "👍")
        assert received[1].update == ChangedReaction("👍")
        assert received[1].message == received[0].message

    async def test_pressed_button_reports_its_value_and_post(self, bench: ChannelBench) -> None:
        if bench.events.press is None:
            return
        post = Outbound((Text("Which?"), Choices((Choice("A", "q:1"), Choice("B", "q:2")))))
        async with listening(bench.channel) as received:
            receipt = await bench.channel.send(bench.home, post)
            await bench.events.press(receipt.id, "q:2")
        (press,) = received
        assert press.update == PressedButton("q:2")
        assert press.message == receipt.id
        assert press.about.mentions, "a press is always meant for the bot"


class OutboundContract:
    async def test_each_send_returns_its_own_receipt(self, bench: ChannelBench) -> None:
        first = await bench.channel.send(bench.home, _post("one"))
        second = await bench.channel.send(bench.home, _post("two"))
        assert first.id != second.id
        assert await bench.shown(bench.home) == ["one", "two"]

    async def test_receipt_has_an_id_and_the_address(self, bench: ChannelBench) -> None:
        receipt = await bench.channel.send(bench.home, _post("one"))
        assert receipt.id
        assert receipt.address == bench.home

    async def test_concurrent_sends_have_different_receipts(self, bench: ChannelBench) -> None:
        texts = [f"post {number}" for number in range(5)]
        ids: list[str] = []

        async def send(text: str) -> None:
            ids.append((await bench.channel.send(bench.home, _post(text))).id)

        async with anyio.create_task_group() as group:
            for text in texts:
                group.start_soon(send, text)
        assert len(set(ids)) == 5
        assert sorted(await bench.shown(bench.home)) == texts

    async def test_text_without_markup_is_shown_literally(self, bench: ChannelBench) -> None:
        await bench.channel.send(bench.home, _post(LITERAL, markup=Markup.PLAIN))
        assert await bench.shown(bench.home) == [LITERAL]

    async def test_text_of_the_greatest_length_is_shown(self, bench: ChannelBench) -> None:
        text = "x" * bench.channel.caps.max_text
        await bench.channel.send(bench.home, _post(text))
        assert await bench.shown(bench.home) == [text]

    async def test_unicode_text_is_shown(self, bench: ChannelBench) -> None:
        text = "שלום 你好 👩‍👧 é"
        await bench.channel.send(bench.home, _post(text))
        assert await bench.shown(bench.home) == [text]

    async def test_address_of_another_channel_is_refused(self, bench: ChannelBench) -> None:
        other = Address("elsewhere", bench.home.chat)
        with pytest.raises((NotSent, ValueError)):
            await bench.channel.send(other, _post("one"))
        assert await bench.shown(bench.home) == []

    async def test_post_quotes_the_message_it_replies_to(self, bench: ChannelBench) -> None:
        if bench.view.quoted is None:
            return
        first = await bench.channel.send(bench.home, _post("one"))
        receipt = await bench.channel.send(bench.home, _post("two", reply_to=first.id))
        assert bench.view.quoted(receipt.id) == first.id

    async def test_edit_replaces_the_sent_message(self, bench: ChannelBench) -> None:
        if not isinstance(bench.channel, SupportsEdit):
            return
        receipt = await bench.channel.send(bench.home, _post("draft"))
        await bench.channel.edit(receipt, _post("final"))
        assert await bench.shown(bench.home) == ["final"]

    async def test_edit_can_be_repeated(self, bench: ChannelBench) -> None:
        if not isinstance(bench.channel, SupportsEdit):
            return
        receipt = await bench.channel.send(bench.home, _post("draft"))
        for _ in range(2):
            await bench.channel.edit(receipt, _post("final"))
        assert await bench.shown(bench.home) == ["final"]

    async def test_edit_of_an_unknown_post_is_certain_to_fail(self, bench: ChannelBench) -> None:
        if not isinstance(bench.channel, SupportsEdit):
            return
        with pytest.raises(NotSent):
            await bench.channel.edit(Receipt(bench.home, "no-such-post"), _post("final"))

    async def test_typing_is_shown_and_ends(self, bench: ChannelBench) -> None:
        if not isinstance(bench.channel, SupportsTyping) or bench.view.typing is None:
            return
        await bench.channel.typing(bench.home, True)
        assert bench.view.typing(bench.home)
        await bench.channel.typing(bench.home, False)
        assert not bench.view.typing(bench.home)

    async def test_reaction_is_shown(self, bench: ChannelBench) -> None:
        if not isinstance(bench.channel, SupportsReactions) or bench.view.reactions is None:
            return
        post = await bench.channel.send(bench.home, _post("one"))
        await bench.channel.react(bench.home, post.id, "👀")
        assert list(bench.view.reactions()) == [(post.id, "👀")]

    async def test_choices_are_shown_as_buttons(self, bench: ChannelBench) -> None:
        if not bench.channel.caps.buttons or bench.view.buttons is None:
            return
        post = Outbound((Text("Which?"), Choices((Choice("A", "q:1"), Choice("B", "q:2")))))
        receipt = await bench.channel.send(bench.home, post)
        assert dict(bench.view.buttons(receipt.id)) == {"q:1": "A", "q:2": "B"}
        assert await bench.shown(bench.home) == ["Which?"]

    async def test_file_is_sent_with_its_bytes(self, bench: ChannelBench) -> None:
        if bench.store is None or bench.view.files is None:
            return
        media = await bench.store(b"\x00data", "a.bin")
        receipt = await bench.channel.send(bench.home, Outbound((Attachment(media, 5),)))
        assert dict(bench.view.files(receipt.id)) == {"a.bin": b"\x00data"}

    async def test_send_while_unreachable_is_certain_to_fail(self, bench: ChannelBench) -> None:
        if bench.faults.unreachable is None:
            return
        await bench.faults.unreachable()
        with pytest.raises(Offline):
            await bench.channel.send(bench.home, _post("one"))

    async def test_throttled_send_says_how_long_to_wait(self, bench: ChannelBench) -> None:
        if bench.faults.throttled is None:
            return
        bench.faults.throttled()
        with pytest.raises(Throttled) as caught:
            await bench.channel.send(bench.home, _post("one"))
        assert caught.value.wait > 0
        assert await bench.shown(bench.home) == []

    async def test_rejected_markup_has_an_error_of_its_own(self, bench: ChannelBench) -> None:
        if bench.faults.reject_markup is None:
            return
        bench.faults.reject_markup()
        post = _post("*one*", markup=bench.channel.caps.markup)
        with pytest.raises(MarkupRejected):
            await bench.channel.send(bench.home, post)
        await bench.channel.send(bench.home, post.without_markup())
        assert await bench.shown(bench.home) == ["*one*"]


class CapabilitiesContract:
    async def test_capabilities_match_the_methods(self, bench: ChannelBench) -> None:
        channel, caps = bench.channel, bench.channel.caps
        assert caps.edit == isinstance(channel, SupportsEdit)
        assert caps.typing == isinstance(channel, SupportsTyping)
        assert caps.reactions == isinstance(channel, SupportsReactions)

    async def test_capabilities_match_what_the_platform_does(self, bench: ChannelBench) -> None:
        caps = bench.channel.caps
        assert bool(caps.buttons) == (bench.events.press is not None)
        assert bool(caps.buttons) == (bench.view.buttons is not None)
        assert (caps.media_out.limit_for("application/pdf") > 0) == (bench.store is not None)
        assert (caps.media_in.limit_for("image/png") > 0) == (bench.files is not None)

    async def test_limits_are_usable(self, bench: ChannelBench) -> None:
        caps = bench.channel.caps
        assert caps.max_text >= 100
        assert caps.rate >= 0
        assert caps.chat_rate >= 0
        assert caps.button_label >= 10

    async def test_channel_shows_that_it_is_alive(self, bench: ChannelBench) -> None:
        if not isinstance(bench.channel, SupportsLiveness):
            return
        async with listening(bench.channel):
            await bench.arrive("hello")
            assert bench.channel.last_seen_at() is not None


class ChannelContract(InboundContract, OutboundContract, CapabilitiesContract):
    """The contract that the gateway relies on."""
