"""Whoever asked for a restart in a chat is told when it is over."""

from pathlib import Path

import anyio
import pytest

from gateways import lobby, until
from hermes.app.build import Choices, open_app
from hermes.app.directory import Directory
from hermes.app.gateway import ChatParts, build_door, build_gateway
from hermes.config.env import Env
from hermes.config.home import home_of
from hermes.gateway.letters import outbox, topic_of
from hermes.gateway.returning import BACK, RESTARTS, await_return, say_back
from hermes.schema.scope import Address
from hermes.testing.channel import FakeChannel

pytestmark = pytest.mark.anyio

SETTINGS = "platforms: {fake: {extra: {allow_from: [ann], allow_admin_from: [ann]}}}"
HERE, HOME = Address("fake", "1"), Address("fake", "home")


async def test_each_place_is_told_once(tmp_path: Path) -> None:
    async with lobby(tmp_path) as one:
        for place in (HERE, HERE, HOME):
            await await_return(one.store, place)
        await say_back(one.store, one.clock, [HOME], {"fake"})
        await say_back(one.store, one.clock, [], {"fake"})
        one.gateway.look_again()
        await one.sees(BACK)
        await one.sees(BACK, chat="home")
        await one.calm()
        assert await one.store.lanes.topics(RESTARTS) == []


async def test_where_nobody_delivers_or_listens_nothing_is_said(tmp_path: Path) -> None:
    async with lobby(tmp_path) as one:
        await await_return(one.store, HERE)
        await say_back(one.store, one.clock, [HOME], {"another"})
        assert await one.store.lanes.topics(outbox("fake")) == []
        assert await one.store.lanes.topics(RESTARTS) == []


async def test_the_command_notes_who_asked_before_it_restarts(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(SETTINGS)
    channel, asked = FakeChannel(), list[bool]()
    async with open_app(
        home_of(tmp_path, "default"), Env({}), Choices(workspace=str(tmp_path))
    ) as app:
        parts = ChatParts(
            channels={"fake": channel},
            door=build_door(app, {"fake": channel}, multiplexed=False),
            directory=Directory(tmp_path / "directory.json", app.clock),
            restart=lambda: asked.append(True),
        )
        gateway = build_gateway(app, parts)
        async with anyio.create_task_group() as group:
            group.start_soon(gateway.run)
            await channel.say("/restart")
            await until(lambda: bool(asked))
            assert await app.store.lanes.topics(RESTARTS) == [topic_of(HERE)]
            group.cancel_scope.cancel()
