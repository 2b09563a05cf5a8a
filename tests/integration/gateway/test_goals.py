"""Goals in a chat: turns follow automatically, and the chat sees the progress."""

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
from hermes.gateway.messages import INBOX
from hermes.ports.channel import Channel
from hermes.testing.channel import FakeChannel
from hermes.testing.fake_openai.script import Fault, Reply, Rule, Script
from hermes.testing.fake_openai.server import serve
from support.cli_process import FakeModelProcess
from support.gateway import wait_until
from support.polling import pause

pytestmark = pytest.mark.slow
MET = '{"verdict": "met", "reason": "All pass.", "evidence": ["12 passed"]}'
NOT_MET = '{"verdict": "not_met", "reason": "Run the tests."}'
SCRIPT = Script(
    rules=[
        Rule("12 passed", [Reply(MET)]),
        Rule("# Last messages", [Reply(NOT_MET)]),
        Rule("make tea", [Reply("Now: 12 passed.")]),
        Rule("boil water", [Reply("It boils.", gate="boiled")]),
        Rule("hang", [Reply("one", fault=Fault("hang", after=1), chunk=1)]),
    ],
    default=Reply("I will try."),
)


@asynccontextmanager
async def gateway(path: Path, url: str) -> AsyncGenerator[tuple[App, FakeChannel]]:
    (path / "config.yaml").write_text(
        "memory: {nudge_interval: 0}\nskills: {creation_nudge_interval: 0}\n"
        f"model: {{default: mock-model, provider: custom, base_url: '{url}', api_key: k}}\n"
        "platforms: {fake: {extra: {allow_admin_from: [ann]}}}\n"
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


async def test_goal_in_a_new_chat_is_pursued_until_it_is_met(
    tmp_path: Path, model: FakeModelProcess
) -> None:
    async with gateway(tmp_path, model.url) as (_, channel):
        await channel.say("/goal Make tea, don't stop")

        def is_met() -> bool:
            # On a busy machine the message may come after the second turn: then there is a third.
            return any(one.startswith("Goal met after ") for one in channel.texts_in("1"))

        await wait_until(lambda: any("turn 2 of 20" in one for one in channel.texts_in("1")))
        await channel.say("make tea")  # a message of the user steers it
        await wait_until(is_met)
        posts = channel.texts_in("1")
        assert any("Goal set, at most 20 turns" in one for one in posts)
        assert "Goal, turn 2 of 20. Run the tests." in posts
        await channel.say("/goal status")
        await wait_until(lambda: "State: done" in channel.texts_in("1")[-1])


async def test_stopped_turn_pauses_the_goal(tmp_path: Path, model: FakeModelProcess) -> None:
    async with gateway(tmp_path, model.url) as (app, channel):
        await channel.say("/goal hang forever")
        await wait_until(lambda: bool(model.requests("hang forever")))
        await channel.say("/stop")

        def is_paused() -> bool:
            return any("The turn was stopped." in one for one in channel.texts_in("1"))

        await wait_until(is_paused)
        assert await app.store.goals.active() == []


async def test_paused_goal_drops_the_turn_that_waits_behind_another(tmp_path: Path) -> None:
    async with serve(SCRIPT) as server, gateway(tmp_path, server.url) as (app, channel):

        async def goal_turn_is_claimed() -> bool:
            queues, own = app.store.queues, app.store.workers.own
            keys = [one.key for one in await queues.unfinished(INBOX, 10)]
            return any([await queues.held(key, own) for key in keys if key.startswith("goal:")])

        await channel.say("/goal boil water")
        await wait_until(lambda: bool(server.requests))
        async with await anyio.open_process(["cat"]) as process:
            await channel.say(f"/goal wait {process.pid}")
            await wait_until(lambda: "is waiting for the process" in "".join(channel.texts_in("1")))
            assert process.stdin is not None
            await process.stdin.aclose()
        with anyio.fail_after(60):
            while not await goal_turn_is_claimed():
                await pause()
        await channel.say("/goal pause")
        await wait_until(lambda: any("paused" in one for one in channel.texts_in("1")))
        server.open_gate("boiled")
        await wait_until(lambda: "It boils." in channel.texts_in("1"))
        with anyio.fail_after(60):
            while await app.store.queues.topics(INBOX):
                await pause()
        assert not [one for one in server.requests if b"You are working on a goal" in one.body]
