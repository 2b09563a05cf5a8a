"""Two real gateways, one lending its mind to the other, with the link between them cut anywhere."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from api_house import KEY, House, house
from gateways import Lobby, until
from hermes.schema.messages import text_of
from hermes.testing.mock_openai import Call, Reply, Rule, Script
from nears import near, session_of

pytestmark = pytest.mark.anyio

SCRIPT = Script(
    rules=[
        Rule("look", [Reply("", calls=[Call("todo", {})]), Reply("I looked.")]),
        Rule("second", [Reply("The second answer.", chunk=4)]),
        Rule("first", [Reply("The first answer.", chunk=4)]),
    ]
)


class Link:
    """Between the two; `cut` is after how many bytes of an answer it breaks."""

    def __init__(self, port: int) -> None:
        self.url = ""
        self.cut: int | None = None
        self._port = port

    async def serve(self, near_end: SocketStream) -> None:
        far_end = await anyio.connect_tcp("127.0.0.1", self._port)
        async with near_end, far_end, anyio.create_task_group() as group:
            group.start_soon(self._up, near_end, far_end, group.cancel_scope)
            await self._down(far_end, near_end)
            group.cancel_scope.cancel()

    async def _up(self, source: SocketStream, to: SocketStream, over: anyio.CancelScope) -> None:
        async for data in source:
            await to.send(data)
        over.cancel()

    async def _down(self, source: SocketStream, to: SocketStream) -> None:
        left = self.cut
        async for data in source:
            await to.send(data if left is None else data[:left])
            left = None if left is None else left - len(data)
            if left is not None and left <= 0:
                return


@asynccontextmanager
async def linked(far: House) -> AsyncGenerator[Link]:
    link = Link(far.server.port)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(SocketAttribute.local_port)  # noqa: S610 - no database here
    link.url = f"http://127.0.0.1:{port}"
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, link.serve)
        yield link
        group.cancel_scope.cancel()


@asynccontextmanager
async def both(path: Path) -> AsyncGenerator[tuple[Lobby, House, Link]]:
    (path / "near").mkdir()
    (path / "far").mkdir()
    async with (
        house(path / "far", SCRIPT) as far,
        linked(far) as link,
        near(path / "near", link.url, key=KEY) as lobby,
    ):
        yield lobby, far, link


async def test_a_talk_goes_on_in_the_same_session_there(tmp_path: Path) -> None:
    async with both(tmp_path) as (lobby, far, _):
        await lobby.channel.say("first?")
        await lobby.sees("The first answer.")
        await lobby.channel.say("second?")
        await lobby.sees("The first answer.", "The second answer.")
        await lobby.calm()
        whole = ["first?", "The first answer.", "second?", "The second answer."]
        assert await lobby.texts() == whole
        there = await far.said(await session_of(lobby))
        assert [text_of(message) for message in there] == whole
        last = far.asked(1)["messages"]
        assert [one["content"] for one in last if one["role"] != "system"] == whole[:3]


async def test_the_tools_there_do_the_work(tmp_path: Path) -> None:
    async with both(tmp_path) as (lobby, far, _):
        await lobby.channel.say("look!")
        await lobby.sees("I looked.")
        await lobby.calm()
        assert await lobby.texts() == ["look!", "I looked."]
        assert len(far.mock.requests) == 2


async def test_a_wrong_key_is_told_in_the_chat(tmp_path: Path) -> None:
    async with house(tmp_path, SCRIPT) as far:
        (tmp_path / "near").mkdir()
        async with near(tmp_path / "near", far.url, key="wrong-0123456789abc") as lobby:
            await lobby.channel.say("first?")
            await until(lambda: bool(lobby.channel.seen_in("1")))
    (told,) = lobby.channel.seen_in("1")
    assert told.startswith("⚠️ Proxy error (401): ")
    assert told.endswith("Set GATEWAY_PROXY_KEY to the key of the far gateway.")
    assert far.mock.requests == []


@pytest.mark.parametrize("cut", [1, 40, 200, 400, 600, 800, 1000, 1300, 1700, 2200])
async def test_wherever_the_link_breaks_the_talk_goes_on(tmp_path: Path, cut: int) -> None:
    """Either the answer came through or the person is told; the next question is answered."""
    async with both(tmp_path) as (lobby, _, link):
        link.cut = cut
        await lobby.channel.say("first?")
        await until(lambda: bool(lobby.channel.seen_in("1")))
        await lobby.calm()
        (told,) = lobby.channel.seen_in("1")
        assert told == "The first answer." or told.startswith("⚠️ Proxy connection error: ")
        heard = (await lobby.texts())[1:]
        assert all("The first answer.".startswith(text) for text in heard)
        link.cut = None
        await lobby.channel.say("second?")
        await lobby.sees(told, "The second answer.")
        await lobby.calm()
        assert await lobby.texts() == ["first?", *heard, "second?", "The second answer."]
        assert await lobby.open_rows() == []
