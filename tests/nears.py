"""A real gateway with a fake chat before it and another gateway behind it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from gateways import Lobby, open_door, surroundings
from hermes.app.build import Choices, open_app
from hermes.commands.registry import standard_commands
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.gateway.gateway import Gateway, GatewayRules, House
from hermes.gateway.letters import Busy
from hermes.gateway.runs import ActorRules
from hermes.schema.scope import OWNER
from hermes.session.keys import SessionSource, build_session_key
from hermes.testing.channel import FakeChannel

CONFIG = """
agent:
  system_prompt: Be kind.
"""


@asynccontextmanager
async def near(
    path: Path,
    url: str,
    *,
    busy: Busy = Busy.QUEUE,
    key: str = "",
    config: str = "",
    progress: bool = False,
) -> AsyncGenerator[Lobby]:
    """A gateway without a model of its own; after the block it is gone as by a power failure."""
    home = Home(root=path, path=path)
    home.config.write_text(CONFIG + config)
    env = Env(
        {"HOME": str(path), "PATH": "/bin", "GATEWAY_PROXY_URL": url, "GATEWAY_PROXY_KEY": key}
    )
    async with open_app(home, env, Choices(workspace=str(path))) as app:
        channel = FakeChannel()
        house = House(
            store=app.store,
            clock=app.clock,
            runner=app.runner,
            channels={channel.name: channel},
            door=open_door,
            registry=standard_commands(),
            context=surroundings,
            cwd=str(path),
        )
        rules = GatewayRules(actors=ActorRules(busy=busy), progress=progress)
        one = Lobby(Gateway(house, rules), app.store, app.clock)
        one.channel = channel
        app.later.chats.is_answered_by(one.gateway.actors.wake)
        async with anyio.create_task_group() as group:
            group.start_soon(one.gateway.run)
            if app.afterwards is not None:
                group.start_soon(app.afterwards.run)
            yield one
            group.cancel_scope.cancel()


async def session_of(lobby: Lobby, chat: str = "1") -> str:
    key = build_session_key(SessionSource(platform="fake", chat_id=chat))
    session = await lobby.store.seen_by(OWNER).by_key(key)
    assert session is not None
    return session.id
