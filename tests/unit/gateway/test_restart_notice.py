"""Chats that asked for a restart are notified afterwards."""

from pathlib import Path

import anyio

from hermes.app.build import AppOptions, open_app
from hermes.app.chat_directory import ChatDirectory
from hermes.app.gateway import build_access, build_gateway
from hermes.config.env import Env
from hermes.config.home import profile_home
from hermes.gateway.messages import outbox_name, topic_of
from hermes.gateway.notices import (
    BACK_ONLINE,
    RESTARTS,
    post_restart_notices,
    request_restart_notice,
)
from hermes.schema.scope import Address
from hermes.testing.channel import FakeChannel
from support.gateway import gateway_harness, wait_until

SETTINGS = "platforms: {fake: {extra: {allow_from: [ann], allow_admin_from: [ann]}}}"
HERE, HOME = Address("fake", "1"), Address("fake", "home")


async def test_each_address_is_notified_once(tmp_path: Path) -> None:
    async with gateway_harness(tmp_path) as harness:
        for address in (HERE, HERE, HOME):
            await request_restart_notice(harness.store, address)
        await post_restart_notices(harness.store, harness.clock, [HOME], {"fake"})
        await post_restart_notices(harness.store, harness.clock, [], {"fake"})
        harness.gateway.poll_queues()
        await harness.wait_for_posts(BACK_ONLINE)
        await harness.wait_for_posts(BACK_ONLINE, chat="home")
        await harness.wait_until_idle()
        assert await harness.store.queues.topics(RESTARTS) == []


async def test_unserved_channels_are_not_notified(tmp_path: Path) -> None:
    async with gateway_harness(tmp_path) as harness:
        await request_restart_notice(harness.store, HERE)
        await post_restart_notices(harness.store, harness.clock, [HOME], {"another"})
        assert await harness.store.queues.topics(outbox_name("fake")) == []
        assert await harness.store.queues.topics(RESTARTS) == []


async def test_restart_command_stores_the_request_first(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(SETTINGS)
    channel, requests = FakeChannel(), list[bool]()
    async with open_app(
        profile_home(tmp_path, "default"), Env({}), AppOptions(workspace=str(tmp_path))
    ) as app:
        gateway = build_gateway(
            app,
            channels={"fake": channel},
            access=build_access(app, {"fake": channel}, multiplexed=False),
            directory=ChatDirectory(tmp_path / "directory.json", app.clock),
            restart=lambda: requests.append(True),
        )
        async with anyio.create_task_group() as group:
            group.start_soon(gateway.run)
            await channel.say("/restart")
            await wait_until(lambda: bool(requests))
            assert await app.store.queues.topics(RESTARTS) == [topic_of(HERE)]
            group.cancel_scope.cancel()
