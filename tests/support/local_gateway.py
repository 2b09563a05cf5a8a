"""A real gateway with a fake channel that runs its turns on another gateway."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from hermes.app.build import AppOptions, open_app
from hermes.app.chat_directory import ChatDirectory
from hermes.app.gateway import build_access, build_gateway
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.gateway.messages import BusyMode
from hermes.ports.channel import Channel
from hermes.schema.scope import OWNER
from hermes.session.keys import SessionSource, build_session_key
from hermes.testing.channel import FakeChannel
from support.gateway import GatewayHarness

CONFIG = """
agent: {{system_prompt: Be kind.}}
platforms: {{fake: {{extra: {{allow_from: [ann], allow_admin_from: [ann]}}}}}}
display: {{busy_input_mode: {busy}, tool_progress: {tools}}}
streaming: {{enabled: {text}}}
"""


@asynccontextmanager
async def local_gateway(
    path: Path,
    url: str,
    *,
    busy: BusyMode = BusyMode.QUEUE,
    key: str = "",
    config: str = "",
    progress: bool = False,
) -> AsyncGenerator[GatewayHarness]:
    """Run a gateway without a model of its own; at the end it stops as in a power failure."""
    home = Home(root=path, path=path)
    tools, text = ("all", "true") if progress else ("'off'", "false")
    home.config.write_text(CONFIG.format(busy=busy.value, tools=tools, text=text) + config)
    env = Env(
        {"HOME": str(path), "PATH": "/bin", "GATEWAY_PROXY_URL": url, "GATEWAY_PROXY_KEY": key}
    )
    channel = FakeChannel()
    channels: dict[str, Channel] = {channel.name: channel}
    async with open_app(home, env, AppOptions(workspace=str(path))) as app:
        gateway = build_gateway(
            app,
            channels=channels,
            access=build_access(app, channels, multiplexed=False),
            directory=ChatDirectory(path / "chats.json", app.clock),
        )
        harness = GatewayHarness(gateway, app.store, app.clock, app.bus)
        harness.channel = channel
        async with anyio.create_task_group() as group:
            group.start_soon(harness.gateway.run)
            for task in app.plugins.gateway_tasks:
                group.start_soon(task)
            yield harness
            group.cancel_scope.cancel()


async def session_of(harness: GatewayHarness, chat: str = "1") -> str:
    key = build_session_key(SessionSource(platform="fake", chat_id=chat))
    session = await harness.store.archive_for(OWNER).by_key(key)
    assert session is not None
    return session.id
