"""A conversation over prosody through a whole gateway process, with a restart in between."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import msgspec
import pytest
from aiohttp import web

from hermes.testing.fake_openai.server import listen
from support.chat_platform.model import FakeModelServer
from support.debian import install_program
from support.gateway_instances import GatewayInstance, gateway_instance
from support.gateway_process import GatewaySpec
from support.xmpp import PASSWORD, Person, Prosody, person, run_prosody

pytestmark = pytest.mark.slow

TIMEOUT = 60.0


def write_home(folder: Path, model_url: str, server: Prosody, jid: str, ann: str) -> GatewaySpec:
    home, work = folder / "home", folder / "work"
    home.mkdir(parents=True)
    work.mkdir(exist_ok=True)
    extra = {"use_tls": False, "allow_from": [ann], "allow_admin_from": [ann]}
    config = {
        "model": {"default": "mock", "provider": "openai", "base_url": f"{model_url}/main/v1"},
        "platforms": {"xmpp": {"extra": extra}},
        "gateway": {"restart_loop_guard": {"enabled": False}, "respawn_storm": {"enabled": False}},
    }
    (home / "config.yaml").write_bytes(msgspec.json.encode(config))
    (home / ".env").write_text(
        f"OPENAI_API_KEY=sk-none-of-ours\nXMPP_JID={jid}\nXMPP_PASSWORD={PASSWORD}\n"
        f"XMPP_HOST=127.0.0.1\nXMPP_PORT={server.port}\nMESSAGING_CWD={work}\n"
    )
    return GatewaySpec(folder=str(folder), home=str(home))


@asynccontextmanager
async def running(spec: GatewaySpec) -> AsyncGenerator[GatewayInstance]:
    async with gateway_instance(spec) as instance, anyio.create_task_group() as group:
        group.start_soon(instance.watch)
        await instance.wait_ready()
        yield instance
        instance.end()


async def sees(ann: Person, words: str, sender: str) -> None:
    with anyio.move_on_after(TIMEOUT) as scope:
        while not any(words in one for one in ann.texts(sender)):
            await ann.changed.wait()
    assert not scope.cancelled_caught, "\n".join(ann.texts(sender))[-1500:]


async def test_conversation_with_approval_and_restart(tmp_path: Path) -> None:
    if reason := install_program("prosody", "prosody"):
        pytest.skip(reason)
    note = tmp_path / "note"
    args = f'{{"command": "echo done >> {note}", "escalate": "outside", "reason": "It is mine."}}'
    model = web.Application()
    model.router.add_routes(FakeModelServer().routes())
    runner = web.AppRunner(model, handler_cancellation=True, shutdown_timeout=0.5)
    with run_prosody() as server:
        jid = server.new_account()
        async with listen(runner) as url, person(server) as ann:
            spec = write_home(tmp_path, url, server, jid, ann.jid)
            async with running(spec) as instance:
                ann.write(jid, f"q-1 use:terminal {args}")
                await sees(ann, "Reason: It is mine.", jid)
                ann.write(jid, "once")
                await sees(ann, "re: q-1", jid)
                instance.kill()
            ann.write(jid, "q-2 while it is down")
            async with running(spec):
                await sees(ann, "re: q-2", jid)
                ann.write(jid, "q-3 again")
                await sees(ann, "re: q-3", jid)
            texts = ann.texts(jid)
    assert note.read_text() == "done\n"
    answers = [one for one in texts if "re: q-" in one]
    assert [one.partition("re: ")[2][:3] for one in answers] == ["q-1", "q-2", "q-3"]
