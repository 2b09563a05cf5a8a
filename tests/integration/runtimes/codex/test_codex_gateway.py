"""Codex behind a real gateway: asked in a chat, it asks for approval and answers there."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from msgspec import structs

from hermes.app.build import AppOptions, open_app
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.gateway.chat_runs import ActorRules
from hermes.gateway.gateway import GatewayRules
from hermes.gateway.messages import BusyMode
from hermes.schema.messages import Result, text_of
from hermes.testing.channel import FakeChannel
from hermes.testing.fake_openai import Call, Reply, Rule, Script, serve
from support.codex_runtime import codex_config
from support.gateway import GatewayHarness, gateway_composition, wait_until

SETTINGS = """
model:
  default: mock-model
  provider: openai
  openai_runtime: codex_app_server
approvals:
  mode: manual
"""


@asynccontextmanager
async def codex_gateway(path: Path, url: str, program: str) -> AsyncGenerator[GatewayHarness]:
    (path / "codex").mkdir()
    (path / "codex" / "config.toml").write_text(codex_config(url, "read-only"))
    home = Home(root=path, path=path)
    home.config.write_text(SETTINGS)
    env = Env(
        {
            "HOME": str(path),
            "PATH": "/usr/bin:/bin",
            "CODEX_HOME": str(path / "codex"),
            "CODEX_PATH": program,
        }
    )
    async with open_app(home, env, AppOptions(workspace=str(path))) as app:
        channel = FakeChannel()
        rules = GatewayRules(actors=ActorRules(busy=BusyMode.QUEUE), progress=False)
        composition = gateway_composition(
            app.store, app.clock, app.bus, app.runner, channel, rules, app.approvals
        )
        gateway = structs.replace(composition, cwd=str(path)).gateway
        one = GatewayHarness(gateway, app.store, app.clock, app.bus)
        one.channel = channel
        async with anyio.create_task_group() as group:
            group.start_soon(one.gateway.run)
            yield one
            group.cancel_scope.cancel()


def escalated() -> Script:
    run = Call("exec_command", {"cmd": "echo hi", "sandbox_permissions": "require_escalated"})
    steps = [Reply(calls=[run]), Reply(text="It says hi.")]
    return Script(rules=[Rule(contains="go", steps=steps)])


@pytest.mark.parametrize(("word", "output"), [("yes", "hi\n"), ("no", "Declined")])
async def test_approval_is_asked_in_the_chat(
    tmp_path: Path, program: str, word: str, output: str
) -> None:
    async with serve(escalated()) as model, codex_gateway(tmp_path, model.url, program) as at:
        await at.channel.say("go")
        await wait_until(lambda: any("echo hi" in text for text in at.channel.texts_in("1")))
        await at.channel.say(word)
        await wait_until(lambda: at.channel.texts_in("1")[-1:] == ["It says hi."])
        (result,) = [one for one in await at.transcript() if isinstance(one, Result)]
        assert output in text_of(result)
