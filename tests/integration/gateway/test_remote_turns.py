"""A gateway whose turns run on a remote gateway, with real settings, store and sockets."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio.abc import SocketStream

from hermes.app.build import App, AppOptions, open_app
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.gateway.messages import BusyMode
from hermes.schema.messages import Assistant, Stop, Text
from support.gateway import wait_until
from support.local_gateway import local_gateway, session_of
from support.remote_gateway import (
    STREAM_HEAD,
    FakeRemoteGateway,
    delta_events,
    error_response,
    fake_remote_gateway,
    full_answer,
    respond_then_hang,
)
from support.turns import EventRecorder

HALF = respond_then_hang(STREAM_HEAD + delta_events("Half"))
SILENT = respond_then_hang(STREAM_HEAD)


def texts_of(remote: FakeRemoteGateway) -> list[list[str]]:
    return [[one["content"] for one in call.body["messages"]] for call in remote.asked]


async def test_chat_is_answered_by_the_remote_gateway(tmp_path: Path) -> None:
    async with (
        fake_remote_gateway(full_answer("Hello."), full_answer("Still here.")) as remote,
        local_gateway(tmp_path, remote.url) as local,
    ):
        await local.channel.say("hi")
        await local.wait_for_posts("Hello.")
        await local.channel.say("there?")
        await local.wait_for_posts("Hello.", "Still here.")
        await local.wait_until_idle()
        assert await local.texts() == ["hi", "Hello.", "there?", "Still here."]
        assert await local.open_rows() == []
        session = await session_of(local)
    assert texts_of(remote) == [["Be kind.", "hi"], ["Be kind.", "hi", "Hello.", "there?"]]
    assert {call.headers["x-hermes-session-id"] for call in remote.asked} == {session}


async def test_refusal_reaches_the_chat_and_the_session_continues(tmp_path: Path) -> None:
    async with (
        fake_remote_gateway(error_response(500, b"no disk"), full_answer("Back.")) as remote,
        local_gateway(tmp_path, remote.url) as local,
    ):
        await local.channel.say("hi")
        hint = "Try again, or check the remote gateway's log."
        reply = f"⚠️ Proxy error (500): no disk. {hint}"
        await local.wait_for_posts(reply)
        await local.channel.say("again")
        await local.wait_for_posts(reply, "Back.")
        await local.wait_until_idle()
        assert await local.texts() == ["hi", "again", "Back."]


async def test_stop_closes_the_connection_and_keeps_the_partial_answer(tmp_path: Path) -> None:
    async with (
        fake_remote_gateway(HALF, full_answer("Anew.")) as remote,
        local_gateway(tmp_path, remote.url) as local,
    ):
        await local.channel.say("hi")
        await wait_until(lambda: bool(remote.asked))
        await local.channel.say("/stop")
        await wait_until(remote.left.is_set)
        await local.wait_until_idle()
        await local.channel.say("again")
        await wait_until(lambda: "Anew." in local.channel.texts_in("1"))
        await local.wait_until_idle()
        kept = [one for one in await local.transcript() if isinstance(one, Assistant)]
        assert kept[-1].stop is Stop.END
        assert all(one.stop is Stop.CANCELLED for one in kept[:-1])
        assert await local.open_rows() == []


async def test_interruption_replaces_the_request(tmp_path: Path) -> None:
    manner = BusyMode.INTERRUPT
    async with (
        fake_remote_gateway(SILENT, full_answer("Second.")) as remote,
        local_gateway(tmp_path, remote.url, busy=manner) as local,
    ):
        await local.channel.say("first")
        await wait_until(lambda: bool(remote.asked))
        await local.channel.say("second")
        await wait_until(lambda: "Second." in local.channel.texts_in("1"))
        await wait_until(remote.left.is_set)
        await local.wait_until_idle()
        assert texts_of(remote)[1] == ["Be kind.", "first", "second"]


async def test_two_chats_are_answered_concurrently(tmp_path: Path) -> None:
    both = anyio.Event()
    waiting: list[str] = []

    async def meets(stream: SocketStream) -> None:
        """Answer no one before both have asked."""
        mine = remote.asked[len(waiting)].body["messages"][-1]["content"]
        waiting.append(mine)
        if len(waiting) == 2:
            both.set()
        await both.wait()
        await stream.send(full_answer(f"re: {mine}"))

    async with fake_remote_gateway(meets) as remote, local_gateway(tmp_path, remote.url) as local:
        await local.channel.say("one", chat="1")
        await local.channel.say("two", chat="2")
        await local.wait_for_posts("re: one", chat="1")
        await local.wait_for_posts("re: two", chat="2")
        await local.wait_until_idle()
        assert await session_of(local, "1") != await session_of(local, "2")
    assert sorted(call[-1] for call in texts_of(remote)) == ["one", "two"]
    assert len({call.headers["x-hermes-session-id"] for call in remote.asked}) == 2


async def test_question_is_repeated_after_a_crash(tmp_path: Path) -> None:
    async with fake_remote_gateway(SILENT, full_answer("All.")) as remote:
        async with local_gateway(tmp_path, remote.url) as local:
            await local.channel.say("hi")
            await wait_until(lambda: bool(remote.asked))
        first = len(remote.asked)
        async with local_gateway(tmp_path, remote.url) as local:
            await local.wait_for_posts("All.")
            await local.wait_until_idle()
    assert (first, len(remote.asked)) == (1, 2)
    assert remote.asked[0].body == remote.asked[1].body


@asynccontextmanager
async def opened(path: Path, **env: str) -> AsyncGenerator[App]:
    variables = Env({"HOME": str(path), "PATH": "/bin", **env})
    async with open_app(
        Home(root=path, path=path), variables, AppOptions(workspace=str(path))
    ) as app:
        yield app


async def test_local_turns_use_the_local_gateway(tmp_path: Path) -> None:
    async with fake_remote_gateway(full_answer("From afar.")) as remote:
        model = {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1", "OPENAI_API_KEY": "sk-x"}
        chosen = {"HERMES_INFERENCE_PROVIDER": "openai", "HERMES_INFERENCE_MODEL": "m"}
        async with opened(tmp_path, GATEWAY_PROXY_URL=remote.url, **model, **chosen) as app:
            recorder = EventRecorder()
            await app.conversation.submit([Text("hi")], recorder)
        assert remote.asked == []
        assert recorder.ended.code == "network"
