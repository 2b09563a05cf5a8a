"""A conversation on InspIRCd through a whole gateway process, with a restart in between."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import msgspec
import pytest
from aiohttp import web

from hermes.testing.fake_openai.server import listen
from support.chat_platform.model import FakeModelServer
from support.cli_process import HermesCli
from support.debian import install_program
from support.gateway_instances import GatewayInstance, gateway_instance
from support.gateway_process import GatewaySpec
from support.irc import NICK, Person, person, run_inspircd

pytestmark = pytest.mark.slow

TIMEOUT = 60.0


def write_home(folder: Path, model_url: str, port: int, room: str) -> GatewaySpec:
    home, work = folder / "home", folder / "work"
    home.mkdir(parents=True)
    work.mkdir(exist_ok=True)
    people = ["ann!ann@127.0.0.1"]
    extra = {
        "use_tls": False, "flood_interval": 0.01,
        "allow_from": people, "allow_admin_from": people, "group_allow_admin_from": people,
    }  # fmt: skip
    config = {
        "model": {"default": "mock", "provider": "openai", "base_url": f"{model_url}/main/v1"},
        "platforms": {"irc": {"extra": extra}},
        "gateway": {"restart_loop_guard": {"enabled": False}, "respawn_storm": {"enabled": False}},
    }
    (home / "config.yaml").write_bytes(msgspec.json.encode(config))
    (home / ".env").write_text(
        f"OPENAI_API_KEY=sk-none-of-ours\nIRC_SERVER=127.0.0.1\nIRC_PORT={port}\n"
        f"IRC_NICKNAME={NICK}\nIRC_CHANNEL={room}\nMESSAGING_CWD={work}\n"
    )
    return GatewaySpec(folder=str(folder), home=str(home))


@asynccontextmanager
async def running(spec: GatewaySpec, ann: Person) -> AsyncGenerator[GatewayInstance]:
    ann.lines.clear()
    async with gateway_instance(spec) as instance, anyio.create_task_group() as group:
        group.start_soon(instance.watch)
        await instance.wait_ready()
        await ann.until(lambda line: line.command == "JOIN" and line.nick == NICK)
        yield instance
        instance.end()


async def sees(ann: Person, words: str, target: str) -> str:
    with anyio.move_on_after(TIMEOUT) as scope:
        while not (found := [one for one in ann.received(target) if words in one]):
            await ann.changed.wait()
    assert not scope.cancelled_caught, "\n".join(ann.received(target))[-1500:]
    return found[-1]


async def test_conversation_with_approval_and_restart(tmp_path: Path) -> None:
    if reason := install_program("inspircd", "inspircd"):
        pytest.skip(reason)
    cli, note = HermesCli(tmp_path, "http://127.0.0.1:1"), tmp_path / "note"
    args = f'{{"command": "echo done >> {note}", "escalate": "outside", "reason": "It is mine."}}'
    model = web.Application()
    model.router.add_routes(FakeModelServer().routes())
    runner = web.AppRunner(model, handler_cancellation=True, shutdown_timeout=0.5)
    with run_inspircd() as server:
        room = server.rooms.pop()
        async with listen(runner) as url, person(server.port, "ann", [room]) as ann:
            await ann.joined.wait()
            spec = write_home(tmp_path, url, server.port, room)
            async with running(spec, ann) as instance:
                await ann.say(room, "q-0 between us")
                await ann.say(NICK, f"q-1 use:terminal {args}")
                await sees(ann, "Reason: It is mine.", "ann")
                await ann.say(NICK, "once")
                await sees(ann, "re: q-1", "ann")
                await ann.say(room, f"{NICK}: q-2 please")
                await sees(ann, "re: q-2 please", room)
                send = partial(cli, "send", "-t", "irc", "The build is green.")
                assert (await anyio.to_thread.run_sync(send)).code == 0
                await sees(ann, "The build is green.", room)
                received = ann.received(room)
                instance.kill()
            await ann.say(room, f"{NICK}: q-3 long while it is down")
            async with running(spec, ann):
                await sees(ann, "re: q-3", room)
                await ann.say(room, f"{NICK}: q-4 again")
                await sees(ann, "re: q-4", room)
                answers = [one for one in [*received, *ann.received(room)] if "re: q-" in one]
    assert note.read_text() == "done\n"
    assert [one.partition("re: ")[2][:3] for one in answers] == ["q-2", "q-3", "q-4"]
