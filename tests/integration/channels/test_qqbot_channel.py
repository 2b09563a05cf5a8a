"""QQ messages on the emulator: one test per documented rule, quoted from https://bot.q.qq.com/wiki."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from emulators.qqbot.state import (
    ANN,
    ANN_IN_GROUP,
    ANN_IN_GUILD,
    CHANNEL,
    DIRECT_GUILD,
    GROUP,
    GUILD,
)
from hermes.channels.qqbot.channel import CLOSED
from hermes.channels.qqbot.objects import ChatKind
from hermes.ports.channel import (
    Attachment,
    Choice,
    Choices,
    DeletedMessage,
    Markup,
    MarkupRejected,
    NotSent,
    Offline,
    Outbound,
    PressedButton,
    Throttled,
)
from hermes.schema.messages import Media, Text
from hermes.testing.clock import FakeClock
from hermes.testing.contracts.channel import listening, text_of
from support.qqbot import HOMES, QqBench, address, post, qq_bench, written


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncGenerator[QqBench]:
    async with qq_bench(tmp_path) as one:
        yield one


async def test_messages_of_all_kinds_of_chats_are_received(bench: QqBench) -> None:
    """C2C_MESSAGE_CREATE, GROUP_AT_MESSAGE_CREATE, AT_MESSAGE_CREATE, DIRECT_MESSAGE_CREATE."""
    async with listening(bench.channel) as received:
        await bench.connected()
        for kind in ChatKind:
            bench.qq.say("a < b & c", kind)
        await bench.acknowledged()
    by_chat = {one.address.chat: one for one in received}
    assert {text_of(one) for one in received} == {"a < b & c"}
    assert {chat: one.sender for chat, one in by_chat.items()} == {
        ANN: ANN, GROUP: ANN_IN_GROUP, CHANNEL: ANN_IN_GUILD, DIRECT_GUILD: ANN_IN_GUILD,
    }  # fmt: skip
    types = {chat: one.about.chat_type for chat, one in by_chat.items()}
    assert types == {ANN: "dm", GROUP: "group", CHANNEL: "group", DIRECT_GUILD: "dm"}
    assert by_chat[CHANNEL].about.guild == GUILD
    assert all(one.about.mentions for one in received)


async def test_replies_have_the_id_of_a_message_and_numbers(bench: QqBench) -> None:
    """「相同的 msg_id + msg_seq 重复发送会失败」: each reply has a number of its own."""
    async with listening(bench.channel):
        await bench.connected()
        ids = [bench.qq.say("hello", kind) for kind in ChatKind]
        await bench.acknowledged()
        for kind in ChatKind:
            for text in ("one", "two"):
                await bench.channel.send(address(kind), post(text, key=text))
    for kind, message in zip(ChatKind, ids, strict=True):
        assert [one.text for one in bench.qq.shown(HOMES[kind])] == ["one", "two"]
        assert {one.reply for one in bench.qq.shown(HOMES[kind])} == {message}
    assert bench.qq.pushes == {}


async def test_repeated_post_is_shown_once(bench: QqBench, tmp_path: Path) -> None:
    """「相同的 msg_id + msg_seq 重复发送会失败」, also after a restart."""
    await written(bench, ChatKind.USER)
    await bench.channel.send(bench.home, post("hello", key="k:0"))
    await bench.channel.send(bench.home, post("(recovered) hello", key="k:0"))
    async with qq_bench(tmp_path, bench.qq) as later:
        await later.channel.send(bench.home, post("(recovered) hello", key="k:0"))
    assert [one.text for one in bench.qq.posts] == ["hello"]


@pytest.mark.parametrize("kind", [ChatKind.USER, ChatKind.GROUP])
async def test_a_message_gets_five_replies_and_then_the_next_one(
    bench: QqBench, kind: ChatKind
) -> None:
    """「每个消息最多回复 5 次」"""
    first, second = await written(bench, kind, kind)
    bench.qq.push_quota = 0
    for number in range(7):
        await bench.channel.send(address(kind), post("more", key=f"k:{number}", reply_to=first))
    assert [one.reply for one in bench.qq.posts] == [first] * 5 + [second] * 2


@pytest.mark.parametrize(
    ("kind", "minutes"),
    [(ChatKind.USER, 60), (ChatKind.GROUP, 5), (ChatKind.DIRECT, 5)],
)
async def test_late_answer_waits_for_the_next_message(
    tmp_path: Path, kind: ChatKind, minutes: int
) -> None:
    """「被动消息（回复类）有效时间为 60 分钟」; in groups and guilds 5."""  # noqa: RUF002
    clock = FakeClock()
    async with qq_bench(tmp_path, clock=clock) as one:
        await written(one, kind)
        one.qq.push_quota = 0
        await clock.advance(minutes * 60 - 30)
        await one.channel.send(address(kind), post("in time", key="k:0"))
        await clock.advance(30)
        for _ in range(2):
            with pytest.raises(Offline) as caught:
                await one.channel.send(address(kind), post("late", key="k:1"))
            assert str(caught.value) == CLOSED
        calls = one.server.calls.count("send")
        assert calls == 2, "QQ is asked once, not with each attempt"
        await written(one, kind)
        await one.channel.send(address(kind), post("late", key="k:1"))
    assert [shown.text for shown in one.qq.posts] == ["in time", "late"]


async def test_message_without_a_question_is_a_push_with_a_quota(bench: QqBench) -> None:
    """「主动消息每月 4 条」"""
    for number in range(4):
        await bench.channel.send(bench.home, post("push", key=f"k:{number}"))
    with pytest.raises(Offline):
        await bench.channel.send(bench.home, post("push", key="k:4"))
    assert [one.reply for one in bench.qq.posts] == [""] * 4


async def test_refused_question_is_not_used_again(bench: QqBench) -> None:
    """「msg_id 无效」: the reply goes to another message."""
    first, second = await written(bench, ChatKind.USER, ChatKind.USER)
    del bench.qq.written[second]
    await bench.channel.send(bench.home, post("one", key="k:0"))
    calls = bench.server.calls.count("send")
    await bench.channel.send(bench.home, post("two", key="k:1"))
    assert [one.reply for one in bench.qq.posts] == [first, first]
    assert bench.server.calls.count("send") == calls + 1


async def test_guild_limits_messages_per_second(tmp_path: Path) -> None:
    """「每秒 最多可发送 5 条 消息」"""
    clock = FakeClock()
    async with qq_bench(tmp_path, clock=clock) as one, listening(one.channel):
        await one.connected()
        one.qq.say("hello", ChatKind.CHANNEL)
        await one.acknowledged()
        for _ in range(5):
            await one.channel.send(address(ChatKind.CHANNEL), post("more"))
        with pytest.raises(Throttled) as caught:
            await one.channel.send(address(ChatKind.CHANNEL), post("more"))
        assert not caught.value.all_chats
        assert one.channel.caps.chat_rate == 5


async def test_guild_takes_messages_only_while_the_bot_is_connected(bench: QqBench) -> None:
    """「要求机器人接口需要连接到 WebSocket 上保持在线状态」"""
    await written(bench, ChatKind.CHANNEL)
    await bench.server.until(lambda: not bench.server.connections)
    with pytest.raises(Offline):
        await bench.channel.send(address(ChatKind.CHANNEL), post("hello"))


async def test_markup_in_guilds_is_escaped_and_mentions_no_one(tmp_path: Path) -> None:
    """「发消息会将转义后字符转为源字符后抄再发」; `<@id>` and `@everyone` call people."""
    text = "<@1234> & @everyone <emoji:4> <qqbot-at-everyone />"
    extra = {"markdown_support": False}
    async with qq_bench(tmp_path, extra=extra) as one, listening(one.channel):
        await one.connected()
        for kind in (ChatKind.CHANNEL, ChatKind.USER):
            one.qq.say("hello", kind)
        await one.acknowledged()
        for kind in (ChatKind.CHANNEL, ChatKind.USER):
            await one.channel.send(address(kind), Outbound((Text(text),)))
    in_guild, direct = one.qq.posts
    assert in_guild.text == text.replace("@everyone <", "@\u200beveryone <")
    assert "<@" not in direct.text
    assert "<qqbot" not in direct.text
    assert direct.text.replace("\u200b", "") == text
    assert one.channel.caps.markup is Markup.PLAIN
    assert one.channel.caps.buttons == 0


async def test_bot_without_markdown_sends_text(bench: QqBench) -> None:
    """「不允许发送 markdown content」: Markdown needs a permission."""
    await written(bench, ChatKind.USER)
    bench.qq.may_markdown = False
    with pytest.raises(MarkupRejected):
        await bench.channel.send(bench.home, post("**a**", key="k:0"))
    choices = Choices((Choice("Yes", "q:1"), Choice("No", "q:2")))
    await bench.channel.send(bench.home, Outbound((Text("Go?"), choices), key="k:1"))
    await bench.channel.send(bench.home, post("**a**", key="k:0"))
    assert [one.text for one in bench.qq.posts] == ["Go?\n\n1. Yes\n2. No", "**a**"]
    assert bench.server.calls.count("send") == 3, "Markdown is not tried again"


async def test_bot_without_buttons_lists_the_choices(bench: QqBench) -> None:
    """「没有发消息按钮组件的权限」: buttons need a permission, too."""
    await written(bench, ChatKind.USER)
    bench.qq.may_buttons = False
    choices = Choices(tuple(Choice(f"Choice {number}", f"q:{number}") for number in range(2)))
    await bench.channel.send(bench.home, Outbound((Text("Go?"), choices)))
    (shown,) = bench.qq.posts
    assert (shown.text, shown.buttons) == ("Go?\n\n1. Choice 0\n2. Choice 1", {})


async def test_buttons_are_in_rows_and_presses_are_acknowledged(bench: QqBench) -> None:
    """「最多可以发送5行按钮」, five in each; a press that is not acknowledged stays busy."""
    choices = Choices(tuple(Choice(f"Choice {number}", f"q:{number}") for number in range(25)))
    async with listening(bench.channel) as received:
        await bench.connected()
        for kind in (ChatKind.USER, ChatKind.GROUP, ChatKind.CHANNEL):
            bench.qq.say("hello", kind)
            await bench.acknowledged()
            receipt = await bench.channel.send(address(kind), Outbound((Text("Go?"), choices)))
            interaction = bench.qq.press(receipt.id, "q:24")
            await bench.acknowledged()
            assert received[-1].update == PressedButton("q:24")
            assert received[-1].message == receipt.id
            assert bench.qq.acknowledged[-1] == interaction
    senders = [one.sender for one in received if isinstance(one.update, PressedButton)]
    assert senders == [ANN, ANN_IN_GROUP, ANN_IN_GUILD]


async def test_press_in_the_form_of_the_example_is_received(bench: QqBench) -> None:
    """「"resolved": {"button_data": …, "user_id": …}」 without `user_openid`."""
    choices = Choices((Choice("Yes", "q:1"),))
    async with listening(bench.channel) as received:
        await bench.connected()
        receipt = await bench.channel.send(bench.home, Outbound((Text("Go?"), choices)))
        pressed = bench.qq.press(receipt.id, "q:1", as_in_example=True)
        await bench.acknowledged()
    assert [(one.address.chat, one.sender) for one in received] == [(ANN, ANN)]
    assert bench.qq.acknowledged == [pressed]


async def test_press_can_be_replied_to(bench: QqBench) -> None:
    """「event_id」 of an INTERACTION_CREATE is for replies."""
    bench.qq.push_quota = 1
    choices = Choices((Choice("Yes", "q:1"),))
    async with listening(bench.channel):
        await bench.connected()
        receipt = await bench.channel.send(bench.home, Outbound((Text("Go?"), choices)))
        pressed = bench.qq.press(receipt.id, "q:1")
        await bench.acknowledged()
        await bench.channel.send(bench.home, post("Going."))
    assert bench.qq.posts[-1].reply == pressed


async def test_link_to_an_unknown_domain_is_made_harmless(bench: QqBench) -> None:
    """「含有 url 信息的消息」 are refused unless the domain is registered."""
    await written(bench, ChatKind.USER)
    await bench.channel.send(bench.home, post("See https://example.com/a", key="k:0"))
    await bench.channel.send(bench.home, post("See https://other.test/a.html", key="k:1"))
    await bench.channel.send(bench.home, post("See https://example.com/b", key="k:2"))
    texts = [one.text for one in bench.qq.posts]
    harmless = "See other[.]test/a.html"
    assert texts == ["See https://example.com/a", harmless, "See https://example.com/b"]


async def test_files_are_sent_by_kind(bench: QqBench) -> None:
    """「图片：png/jpg，视频：mp4，语音：silk/amr」; what a user gets is uploaded for users."""  # noqa: RUF002
    await written(bench, *ChatKind)
    kinds = {"a.png": "image/png", "b.mp4": "video/mp4", "c.silk": "audio/silk", "d.pdf": "x/y"}
    for chat in (ChatKind.USER, ChatKind.GROUP):
        for name, media_type in kinds.items():
            media = await bench.blobs.put(b"data", media_type, name)
            file = Attachment(media, 4, caption=f"This is {name}")
            await bench.channel.send(address(chat), Outbound((file,), key=name))
        shown = bench.qq.shown(HOMES[chat])
        assert [one.files for one in shown] == [{name: b"data"} for name in kinds]
        assert shown[0].text == "This is a.png"


async def test_guild_gets_images_only(bench: QqBench) -> None:
    picture = await bench.blobs.put(b"data", "image/png", "a.png")
    document = await bench.blobs.put(b"data", "application/pdf", "a.pdf")
    async with listening(bench.channel):
        await bench.connected()
        bench.qq.say("hello", ChatKind.CHANNEL)
        await bench.acknowledged()
        await bench.channel.send(
            address(ChatKind.CHANNEL), Outbound((Attachment(picture, 4, caption="Look"),))
        )
        with pytest.raises(NotSent, match=r"only take PNG and JPEG"):
            await bench.channel.send(
                address(ChatKind.CHANNEL), Outbound((Attachment(document, 4),))
            )
    assert [(one.text, one.files) for one in bench.qq.posts] == [("Look", {"a.png": b"data"})]


async def test_files_of_people_are_read(bench: QqBench) -> None:
    """「"image/jpeg"…"file","video/mp4","voice"」 are the types of attachments."""
    bench.qq.files = {"a.png": b"\x89PNG", "n.txt": b"a note", "v.silk": b"sound"}
    url = bench.server.url
    files: list[dict[str, object]] = [
        {"content_type": "image/png", "filename": "a.png", "url": f"{url}/files/a.png"},
        {"content_type": "file", "filename": "n.txt", "url": f"{url}/files/n.txt", "size": 6},
        {"content_type": "voice", "filename": "v.silk", "url": f"{url}/files/v.silk"},
    ]
    spoken: list[dict[str, object]] = [
        {"content_type": "voice", "url": "x", "asr_refer_text": "Turn on the light."}
    ]
    async with listening(bench.channel) as received:
        await bench.connected()
        bench.qq.say("look", attachments=files)
        bench.qq.say("", attachments=spoken)
        await bench.acknowledged()
    text, media, note, sound, remark = received[0].parts
    assert text == Text("look")
    assert isinstance(media, Media)
    assert isinstance(note, Text)
    assert "a note" in note.text
    assert isinstance(sound, Media)
    assert isinstance(remark, Text)
    assert "not transcribed" in remark.text
    assert text_of(received[1]).startswith("Turn on the light.\n")


async def test_unreadable_message_is_kept_and_later_ones_are_delivered(
    bench: QqBench,
) -> None:
    async with listening(bench.channel) as received:
        await bench.connected()
        bench.qq.emit("C2C_MESSAGE_CREATE", {"id": []})
        bench.qq.say("good")
        await bench.acknowledged()
    assert [text_of(one) for one in received] == ["good"]
    assert len(bench.server.sessions) == 1
    kept = (bench.folder / "cache" / "unreadable" / "qqbot.jsonl").read_text().splitlines()
    assert len(kept) == 1


async def test_deleted_message_of_a_guild_is_an_update(bench: QqBench) -> None:
    """PUBLIC_MESSAGE_DELETE and DIRECT_MESSAGE_DELETE."""
    async with listening(bench.channel) as received:
        await bench.connected()
        message = bench.qq.say("hello", ChatKind.CHANNEL)
        bench.qq.delete(message)
        await bench.acknowledged()
    assert received[1].update == DeletedMessage()
    assert received[1].message == received[0].message == message
