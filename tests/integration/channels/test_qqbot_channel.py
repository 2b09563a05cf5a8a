"""QQ on the emulator: one test per documented rule, quoted from https://bot.q.qq.com/wiki."""

from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from hermes.channels.account import BadToken
from hermes.channels.qqbot.channel import CLOSED
from hermes.channels.qqbot.event_socket import INTENTS
from hermes.channels.qqbot.objects import ChatKind
from hermes.channels.qqbot.setup import REPLIES, SANDBOX, check_account
from hermes.ports.channel import (
    Attachment,
    Choice,
    Choices,
    DeletedMessage,
    Inbound,
    Markup,
    MarkupRejected,
    NotSent,
    Offline,
    Outbound,
    PressedButton,
    TargetGone,
    Throttled,
    UnknownOutcome,
)
from hermes.schema.errors import ConfigError
from hermes.schema.messages import Media, Text
from hermes.schema.scope import Address
from hermes.testing.clock import FakeClock
from hermes.testing.contracts.channel import listening, text_of
from hermes.testing.qqbot.state import (
    ANN,
    ANN_IN_GROUP,
    ANN_IN_GUILD,
    APP_ID,
    CHANNEL,
    DIRECT_GUILD,
    GROUP,
    GUILD,
    SECRET,
    EmulatedQq,
    Refusal,
)
from support.qqbot import QqBench, qq_bench

pytestmark = pytest.mark.anyio

HOMES = {
    ChatKind.USER: ANN, ChatKind.GROUP: GROUP, ChatKind.CHANNEL: CHANNEL,
    ChatKind.DIRECT: DIRECT_GUILD,
}  # fmt: skip


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncGenerator[QqBench]:
    async with qq_bench(tmp_path) as one:
        yield one


def post(text: str, key: str = "", reply_to: str | None = None) -> Outbound:
    return Outbound((Text(text),), reply_to, Markup.MARKDOWN, text, key)


def address(kind: ChatKind) -> Address:
    return Address("qqbot", HOMES[kind])


async def written(bench: QqBench, *kinds: ChatKind) -> list[str]:
    """Have somebody write in chats of these kinds; return the ids of the messages."""
    async with listening(bench.channel):
        await bench.connected()
        said = [bench.qq.say("hello", kind) for kind in kinds]
        await bench.acknowledged()
    return said


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
        said = [bench.qq.say("hello", kind) for kind in ChatKind]
        await bench.acknowledged()
        for kind in ChatKind:
            for text in ("one", "two"):
                await bench.channel.send(address(kind), post(text, key=text))
    for kind, message in zip(ChatKind, said, strict=True):
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
async def test_late_answer_waits_until_somebody_writes(
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


async def test_signs_in_guilds_are_escaped_and_nobody_is_called(tmp_path: Path) -> None:
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


async def test_message_that_cannot_be_read_is_kept_and_the_next_ones_go_on(
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
        said = bench.qq.say("hello", ChatKind.CHANNEL)
        bench.qq.delete(said)
        await bench.acknowledged()
    assert received[1].update == DeletedMessage()
    assert received[1].message == received[0].message == said


async def test_connection_is_resumed_and_no_event_is_lost(bench: QqBench) -> None:
    """「断开之后短时间内重连会补发中间遗漏的事件」"""
    async with listening(bench.channel) as received:
        await bench.connected()
        bench.qq.say("one")
        await bench.acknowledged()
        bench.server.lost_events = 1
        bench.qq.say("two")
        bench.server.close_connections(4009)
        await bench.acknowledged()
        bench.server.ask_to_reconnect()
        bench.qq.say("three")
        await bench.acknowledged()
    assert [text_of(one) for one in received] == ["one", "two", "three"]
    assert bench.server.logins == [2, 6, 6]


async def test_messages_while_down_are_received_after_a_restart(
    bench: QqBench, tmp_path: Path
) -> None:
    """「websocket 会自动补发这个 seq 之后的事件」"""
    await written(bench, ChatKind.USER)
    await bench.server.until(lambda: not bench.server.connections)
    sessions = bench.server.sessions
    bench.qq.say("missed")
    async with qq_bench(tmp_path, bench.qq) as later:
        later.server.sessions = sessions
        later.server.tokens = bench.server.tokens
        async with listening(later.channel) as received:
            await later.connected()
            await later.acknowledged()
    assert [text_of(one) for one in received] == ["missed"]


async def test_message_that_could_not_be_stored_comes_again(bench: QqBench) -> None:
    """「我们推荐开发者在处理过事件之后记录下 s」, also if a later event was handled before."""
    file = bench.folder / "cache" / "qqbot" / "qqbot.json"
    in_group = anyio.Event()

    async def deliver(update: Inbound) -> None:
        if update.address.chat == GROUP:
            in_group.set()
            return
        bench.qq.say("in the group", ChatKind.GROUP)
        await in_group.wait()
        before = file.stat().st_mtime_ns
        with anyio.move_on_after(2):  # it may have been written before
            while file.stat().st_mtime_ns == before:
                await anyio.lowlevel.checkpoint()
        raise OSError("The disk is full.")

    async def write() -> None:
        await bench.connected()
        await bench.acknowledged()
        bench.qq.say("hello")

    async with anyio.create_task_group() as group:
        group.start_soon(write)
        with pytest.raises(OSError, match="full"):
            await bench.channel.run(deliver)
    async with listening(bench.channel) as received:
        await bench.connected()
        await bench.acknowledged()
    assert [text_of(one) for one in received] == ["hello"]


@pytest.mark.parametrize("code", [0, 4006, 4007, 4900])
async def test_lost_session_is_begun_again(bench: QqBench, code: int) -> None:
    """「4006 无效的 session id，无法继续 resume，请 identify」, and so after opcode 9."""  # noqa: RUF002
    async with listening(bench.channel) as received:
        await bench.connected()
        bench.server.sessions.clear()
        bench.server.close_connections(code or 4009)
        await bench.server.until(lambda: bool(bench.server.sessions and bench.server.connections))
        bench.qq.say("hello")
        await bench.acknowledged()
    assert [text_of(one) for one in received] == ["hello"]
    assert bench.server.logins == ([2, 2] if code else [2, 6, 2])


async def test_bot_with_fewer_permissions_asks_for_fewer_events(tmp_path: Path) -> None:
    """「4014 intent 无权限」"""
    qq = EmulatedQq()
    qq.intents = INTENTS[2]
    async with qq_bench(tmp_path, qq) as one, listening(one.channel) as received:
        await one.connected()
        qq.say("hello")
        await one.acknowledged()
    assert [text_of(update) for update in received] == ["hello"]
    assert one.server.logins == [2, 2, 2]


async def test_suspended_bot_is_not_connected_again(bench: QqBench) -> None:
    """「4914，4915 不可以连接，请联系官方解封」"""  # noqa: RUF002

    async def suspend() -> None:
        await bench.connected()
        bench.server.close_connections(4915)

    async with anyio.create_task_group() as group:
        group.start_soon(suspend)
        with pytest.raises(Offline, match="suspended"):
            await bench.channel.run(_nothing)
    assert bench.server.logins == [2]


async def test_heartbeats_have_the_last_number_and_silence_is_noticed(tmp_path: Path) -> None:
    """「d 为客户端收到的最新的消息的 s」; a connection without an ACK is replaced."""
    clock = FakeClock()
    async with qq_bench(tmp_path, clock=clock) as one, listening(one.channel):
        await one.connected()
        one.qq.say("hello")
        await one.acknowledged()
        first = one.server.connections[0]
        await clock.advance(30)
        await one.server.until(lambda: first.heartbeats == [2])
        first.answers = False
        began = clock.monotonic()
        while first in one.server.connections or not one.server.connections:
            await clock.advance(10)
        assert clock.monotonic() - began <= 120
    assert one.server.logins == [2, 6]


async def test_access_token_is_renewed_in_its_last_minute(tmp_path: Path) -> None:
    """「在上一个 access_token 接近过期时间 60 秒内」 a new one is given."""
    clock = FakeClock()
    async with qq_bench(tmp_path, clock=clock) as one:
        one.qq.push_quota = 100
        for seconds, asked, known in ((0, 1, 1), (7100, 1, 1), (55, 2, 2), (7200, 3, 3)):
            await clock.advance(seconds)
            await one.channel.send(one.home, post("hello"))
            assert one.server.calls.count("token") == asked
            assert len(one.server.tokens) == known


async def test_refused_access_token_is_replaced_at_once(bench: QqBench) -> None:
    """「401 认证失败」"""
    await bench.channel.send(bench.home, post("one"))
    bench.server.tokens.clear()
    await bench.channel.send(bench.home, post("two"))
    assert [one.text for one in bench.qq.posts] == ["one", "two"]


async def test_errors_say_whether_it_was_sent(bench: QqBench) -> None:
    """「429 频率限制」, 「500 处理失败」, 「1100104 该群已失效」"""
    errors: list[tuple[Refusal, type[Exception]]] = [
        (Refusal(1100300, "系统内部错误", 500), UnknownOutcome),
        (Refusal(1100104, "该群已失效"), TargetGone),
        (Refusal(40034006, "消息内容违规"), NotSent),
        (Refusal(1100308, "触发频道内限频"), Throttled),
    ]
    for refusal, kind in errors:
        bench.server.failing = refusal
        with pytest.raises(kind) as caught:
            await bench.channel.send(bench.home, post("hello"))
        assert type(caught.value) is kind
        assert str(refusal.code) in str(caught.value)


async def test_message_that_is_checked_by_people_counts_as_sent(bench: QqBench) -> None:
    """「201,202 异步操作成功」: a body with an error, but no failure."""
    bench.server.failing = Refusal(304023, "push message is waiting for audit now", 202)
    receipt = await bench.channel.send(bench.home, post("hello"))
    assert receipt.id


async def test_wrong_secret_is_named_and_can_be_replaced(tmp_path: Path) -> None:
    async with qq_bench(tmp_path, env={"QQ_CLIENT_SECRET": "wr0ng"}) as one:
        with pytest.raises(BadToken) as caught:
            await one.channel.run(_nothing)
        assert "wr0ng" not in f"{caught.value} {caught.value.hint}"
        one.server.secret = "wr0ng"
        async with listening(one.channel):
            await one.connected()


async def _nothing(update: Inbound) -> None:
    raise AssertionError(update)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"QQ_APP_ID": ""}, "needs QQ_APP_ID"),
        ({"QQ_CLIENT_SECRET": ""}, "needs QQ_CLIENT_SECRET"),
        ({"QQ_PROXY": "ftp://proxy"}, "is not supported"),
    ],
)
async def test_wrong_settings_are_refused(
    tmp_path: Path, env: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        async with qq_bench(tmp_path, env=env):
            pass


async def test_setup_names_the_bot_and_the_rules(bench: QqBench) -> None:
    extra = {"base_url": bench.server.url, "token_url": f"{bench.server.url}/app/getAppAccessToken"}
    env = {"QQ_APP_ID": APP_ID}
    found = await check_account(SECRET, extra, env)
    assert (found.account, found.notes) == ("hermes", (REPLIES,))
    with pytest.raises(BadToken):
        await check_account("other", extra, env)
    assert "sandbox" in SANDBOX
