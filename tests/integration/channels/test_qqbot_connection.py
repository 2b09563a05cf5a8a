"""The connection to QQ on the emulator: sessions, heartbeats, tokens, errors and setup."""

from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from emulators.qqbot.state import (
    APP_ID,
    GROUP,
    SECRET,
    EmulatedQq,
    Refusal,
)
from hermes.channels.account import BadToken
from hermes.channels.qqbot.event_socket import INTENTS
from hermes.channels.qqbot.objects import ChatKind
from hermes.channels.qqbot.setup import REPLIES, SANDBOX, check_account
from hermes.ports.channel import (
    Inbound,
    NotSent,
    Offline,
    TargetGone,
    Throttled,
    UnknownOutcome,
)
from hermes.schema.errors import ConfigError
from hermes.testing.clock import FakeClock
from hermes.testing.contracts.channel import listening, text_of
from support.qqbot import QqBench, post, qq_bench, written


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncGenerator[QqBench]:
    async with qq_bench(tmp_path) as one:
        yield one


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
        for seconds, tokens, known in ((0, 1, 1), (7100, 1, 1), (55, 2, 2), (7200, 3, 3)):
            await clock.advance(seconds)
            await one.channel.send(one.home, post("hello"))
            assert one.server.calls.count("token") == tokens
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
