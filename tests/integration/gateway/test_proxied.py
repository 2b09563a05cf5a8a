"""A gateway whose turns another one runs: real settings, a real store, a chat and real sockets."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketStream

from fars import HEAD, FarGateway, far_gateway, refusal, says, then_silence, whole
from gateways import until
from hermes.app.build import App, Choices, open_app
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.gateway.letters import Busy
from hermes.schema.messages import Assistant, Stop, Text
from nears import near, session_of
from workbench import Ear

pytestmark = pytest.mark.anyio

HALF = then_silence(HEAD + says("Half"))
HUSH = then_silence(HEAD)


def words_of(far: FarGateway) -> list[list[str]]:
    return [[one["content"] for one in asked.body["messages"]] for asked in far.asked]


async def test_a_chat_is_answered_from_afar(tmp_path: Path) -> None:
    async with (
        far_gateway(whole("Hello."), whole("Still here.")) as far,
        near(tmp_path, far.url) as lobby,
    ):
        await lobby.channel.say("hi")
        await lobby.sees("Hello.")
        await lobby.channel.say("there?")
        await lobby.sees("Hello.", "Still here.")
        await lobby.calm()
        assert await lobby.texts() == ["hi", "Hello.", "there?", "Still here."]
        assert await lobby.open_rows() == []
        session = await session_of(lobby)
    assert words_of(far) == [["Be kind.", "hi"], ["Be kind.", "hi", "Hello.", "there?"]]
    assert {asked.headers["x-hermes-session-id"] for asked in far.asked} == {session}


async def test_a_refusal_reaches_the_chat_and_the_talk_goes_on(tmp_path: Path) -> None:
    async with (
        far_gateway(refusal(500, b"no disk"), whole("Back.")) as far,
        near(tmp_path, far.url) as lobby,
    ):
        await lobby.channel.say("hi")
        hint = "Ask again, or look into the log of the far gateway."
        told = f"⚠️ Proxy error (500): no disk. {hint}"
        await lobby.sees(told)
        await lobby.channel.say("again")
        await lobby.sees(told, "Back.")
        await lobby.calm()
        assert await lobby.texts() == ["hi", "again", "Back."]


async def test_a_stop_hangs_up_and_what_was_heard_stays(tmp_path: Path) -> None:
    async with far_gateway(HALF, whole("Anew.")) as far, near(tmp_path, far.url) as lobby:
        await lobby.channel.say("hi")
        await until(lambda: bool(far.asked))
        await lobby.channel.say("/stop")
        await until(far.left.is_set)
        await lobby.calm()
        await lobby.channel.say("again")
        await until(lambda: "Anew." in lobby.channel.seen_in("1"))
        await lobby.calm()
        kept = [one for one in await lobby.transcript() if isinstance(one, Assistant)]
        assert kept[-1].stop is Stop.END
        assert all(one.stop is Stop.CANCELLED for one in kept[:-1])
        assert await lobby.open_rows() == []


async def test_an_interruption_takes_the_line(tmp_path: Path) -> None:
    manner = Busy.INTERRUPT
    async with (
        far_gateway(HUSH, whole("Second.")) as far,
        near(tmp_path, far.url, busy=manner) as lobby,
    ):
        await lobby.channel.say("first")
        await until(lambda: bool(far.asked))
        await lobby.channel.say("second")
        await until(lambda: "Second." in lobby.channel.seen_in("1"))
        await until(far.left.is_set)
        await lobby.calm()
        assert words_of(far)[1] == ["Be kind.", "first", "second"]


async def test_two_chats_are_answered_at_once_and_apart(tmp_path: Path) -> None:
    both = anyio.Event()
    waiting: list[str] = []

    async def meets(stream: SocketStream) -> None:
        """Nobody is answered before both have asked."""
        mine = far.asked[len(waiting)].body["messages"][-1]["content"]
        waiting.append(mine)
        if len(waiting) == 2:
            both.set()
        await both.wait()
        await stream.send(whole(f"re: {mine}"))

    async with far_gateway(meets) as far, near(tmp_path, far.url) as lobby:
        await lobby.channel.say("one", chat="1")
        await lobby.channel.say("two", chat="2")
        await lobby.sees("re: one", chat="1")
        await lobby.sees("re: two", chat="2")
        await lobby.calm()
        assert await session_of(lobby, "1") != await session_of(lobby, "2")
    assert sorted(asked[-1] for asked in words_of(far)) == ["one", "two"]
    assert len({asked.headers["x-hermes-session-id"] for asked in far.asked}) == 2


async def test_after_a_power_cut_the_same_question_is_asked_again(tmp_path: Path) -> None:
    async with far_gateway(HUSH, whole("All.")) as far:
        async with near(tmp_path, far.url) as lobby:
            await lobby.channel.say("hi")
            await until(lambda: bool(far.asked))
        first = len(far.asked)
        async with near(tmp_path, far.url) as lobby:
            await lobby.sees("All.")
            await lobby.calm()
    assert (first, len(far.asked)) == (1, 2)
    assert far.asked[0].body == far.asked[1].body


@asynccontextmanager
async def opened(path: Path, **env: str) -> AsyncGenerator[App]:
    given = Env({"HOME": str(path), "PATH": "/bin", **env})
    async with open_app(Home(root=path, path=path), given, Choices(workspace=str(path))) as app:
        yield app


async def test_who_sits_at_this_machine_talks_to_this_one(tmp_path: Path) -> None:
    async with far_gateway(whole("From afar.")) as far:
        model = {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1", "OPENAI_API_KEY": "sk-x"}
        chosen = {"HERMES_INFERENCE_PROVIDER": "openai", "HERMES_INFERENCE_MODEL": "m"}
        async with opened(tmp_path, GATEWAY_PROXY_URL=far.url, **model, **chosen) as app:
            ear = Ear()
            await app.conversation.say([Text("hi")], ear)
        assert far.asked == []
        assert ear.ended.code == "network"
