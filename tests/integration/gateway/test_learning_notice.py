"""In a chat: what was learned is reported after the answer, and a skill is a command."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from hermes.app.build import App, AppOptions, open_app
from hermes.app.chat_directory import ChatDirectory
from hermes.app.gateway import build_access, build_gateway
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.ports.channel import Channel
from hermes.testing.channel import FakeChannel
from hermes.testing.fake_openai import Call, Reply, Rule, Script
from support.cli_process import FakeModelProcess
from support.gateway import wait_until

KEEP = {"target": "user", "action": "add", "content": "prefers short answers"}
SCRIPT = Script(
    rules=[
        Rule("Look back", [Reply("", [Call("memory", KEEP)]), Reply("Done.")]),
        Rule("Boil water", [Reply("Tea is made.")]),
    ],
    default=Reply("Plain answer."),
)
SKILL = "---\nname: make-tea\ndescription: How to make tea.\n---\n\nBoil water.\n"


@asynccontextmanager
async def gateway(path: Path, url: str, every: int) -> AsyncGenerator[tuple[App, FakeChannel]]:
    (path / "skills/make-tea").mkdir(parents=True)
    (path / "skills/make-tea/SKILL.md").write_text(SKILL)
    (path / "config.yaml").write_text(
        f"memory:\n  nudge_interval: {every}\n"
        f"model:\n  default: mock-model\n  provider: custom\n  base_url: {url}\n  api_key: k\n"
        "platforms:\n  fake:\n    extra:\n      allow_admin_from: [ann]\n"
    )
    env = Env({"HOME": str(path), "PATH": "/bin", "GATEWAY_ALLOWED_USERS": "ann"})
    choices = AppOptions(workspace=str(path), source="gateway", reviews_turns=True)
    async with open_app(Home(root=path, path=path), env, choices) as app:
        channel = FakeChannel()
        channels: dict[str, Channel] = {channel.name: channel}
        built = build_gateway(
            app,
            channels=channels,
            access=build_access(app, channels, multiplexed=False),
            directory=ChatDirectory(path / "chats.json", app.clock),
        )
        async with anyio.create_task_group() as group:
            group.start_soon(built.run)
            yield app, channel
            group.cancel_scope.cancel()


async def test_learning_notice_comes_after_the_answer(
    tmp_path: Path, model: FakeModelProcess
) -> None:
    async with gateway(tmp_path, model.url, every=1) as (_, channel):
        await channel.say("Be brief, please.")
        await wait_until(lambda: len(channel.texts_in("1")) == 2)
        answered, reply = channel.texts_in("1")
        assert answered == "Plain answer."
        assert reply.startswith("💾")
        assert "prefers short answers" in reply
        assert (tmp_path / "memories/USER.md").read_text() == "prefers short answers"
        await channel.say("/changes")
        await wait_until(lambda: len(channel.texts_in("1")) == 3)
        name = channel.texts_in("1")[-1].split()[0]
        await channel.say(f"/changes undo {name}")
        await wait_until(lambda: len(channel.texts_in("1")) == 4)
        assert not (tmp_path / "memories/USER.md").exists()


@pytest.mark.parametrize("typed", ["/make-tea", "/make_tea"])
async def test_skill_is_a_command(tmp_path: Path, model: FakeModelProcess, typed: str) -> None:
    async with gateway(tmp_path, model.url, every=0) as (app, channel):
        await channel.say(f"{typed} for two")
        await wait_until(lambda: "Tea is made." in channel.texts_in("1"))
        assert app.learning.usage.get("make-tea").use_count == 1
