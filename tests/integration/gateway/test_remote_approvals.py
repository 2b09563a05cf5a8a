"""Approvals and questions of a remote gateway are answered in the local chat."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from hermes.app.build import AppOptions, open_app
from hermes.app.chat_directory import ChatDirectory
from hermes.app.gateway import build_access, build_gateway
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.ports.channel import Channel
from hermes.testing.channel import FakeChannel
from hermes.testing.fake_openai import Call, Reply, Rule, Script
from support.api_server import KEY, api_harness
from support.gateway import wait_until

COLOUR = Call("clarify", {"question": "Which colour?", "choices": ["red", "blue"]})

OWNED = "platforms: {fake: {extra: {allow_from: [ann, bob], allow_admin_from: [ann]}}}\n"


def script(outside: Path) -> Script:
    arguments = {"command": f"touch '{outside}'", "escalate": "outside", "reason": "It lies there."}
    note = Call("terminal", arguments)
    return Script(
        rules=[
            Rule("note", [Reply("", calls=[note]), Reply("That was it.")]),
            Rule("paint", [Reply("", calls=[COLOUR]), Reply("Painted.")]),
        ]
    )


@asynccontextmanager
async def both(path: Path) -> AsyncGenerator[FakeChannel]:
    """A chat whose turns run on a remote gateway that works in its own folder."""
    near, remote = path / "near", path / "far"
    near.mkdir()
    (near / "config.yaml").write_text(OWNED)
    remote.mkdir()
    channel = FakeChannel()
    channels: dict[str, Channel] = {channel.name: channel}
    async with api_harness(remote, script(path / "note.txt")) as lender:
        env = Env(
            {
                "HOME": str(near),
                "PATH": "/bin",
                "GATEWAY_PROXY_URL": lender.url,
                "GATEWAY_PROXY_KEY": KEY,
            }
        )
        home = Home(root=near, path=near)
        async with open_app(home, env, AppOptions(workspace=str(near))) as app:
            gateway = build_gateway(
                app,
                channels=channels,
                access=build_access(app, channels, multiplexed=False),
                directory=ChatDirectory(near / "chats.json", app.clock),
            )
            async with anyio.create_task_group() as group:
                group.start_soon(gateway.run)
                yield channel
                group.cancel_scope.cancel()


def saw(channel: FakeChannel, words: str) -> bool:
    return any(words in post for post in channel.texts_in("1"))


@pytest.mark.parametrize(("word", "is_there"), [("/approve", True), ("/deny", False)])
async def test_local_approval_is_used_remotely(
    tmp_path: Path, word: str, *, is_there: bool
) -> None:
    async with both(tmp_path) as channel:
        await channel.say("take a note")
        await wait_until(lambda: saw(channel, "/approve"))
        assert not (tmp_path / "note.txt").exists()
        await channel.say(word)
        await wait_until(lambda: saw(channel, "That was it."))
    assert (tmp_path / "note.txt").exists() is is_there


async def test_local_member_cannot_approve_remotely(tmp_path: Path) -> None:
    async with both(tmp_path) as channel:
        await channel.say("take a note", sender="bob")
        await wait_until(lambda: saw(channel, "That was it."))
    assert not (tmp_path / "note.txt").exists()


async def test_remote_question_is_answered_locally(tmp_path: Path) -> None:
    async with both(tmp_path) as channel:
        await channel.say("paint it")
        await wait_until(lambda: saw(channel, "Answer with a number"))
        await channel.say("2")
        await wait_until(lambda: saw(channel, "Painted."))
