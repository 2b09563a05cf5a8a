"""The gateway of one profile in a test's own process, put together by the daemon's own code."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from hermes.app.build import App
from hermes.app.channels import sharing
from hermes.config.env import Env
from hermes.config.home import resolve_home
from hermes.daemon.hub import Hub
from hermes.daemon.programs import Programs
from hermes.daemon.tenant import Lodging, Tenant, keep_tenant
from hermes.kit.clock import SystemClock
from hermes.kit.retry import Backoff
from hermes.session.keys import SessionSource, build_session_key
from hermes.testing.homes import CHANNEL
from hermes.testing.served import TEST

PATH = "/usr/local/bin:/usr/bin:/bin"
SOON = Backoff(base=0.02, cap=0.2)


def as_it_is(app: App) -> None:
    """Nothing about it is changed."""


@asynccontextmanager
async def at_work(
    home: Path, prepare: Callable[[App], None] = as_it_is, retry: Backoff = SOON
) -> AsyncGenerator[Tenant]:
    """A furnished home, served while the block runs, and then cut off as by a power failure.

    `prepare` may change the app before its gateway is built.
    """
    env = Env({"HOME": str(home), "HERMES_HOME": str(home), "PATH": PATH})
    owner = resolve_home(env)
    async with sharing() as shared, anyio.create_task_group() as group:
        lodging = Lodging(
            owner=owner,
            env=env,
            shared=shared,
            restart=group.cancel_scope.cancel,
            programs=Programs(SystemClock()),
            manifests={CHANNEL: TEST},
            retry=retry,
        )
        tenant: Tenant = await group.start(keep_tenant, owner, lodging)
        prepare(tenant.app)
        Hub({tenant.profile: tenant}).assemble()
        await tenant.listening.wait()
        yield tenant
        group.cancel_scope.cancel()


def key_of(channel: str, chat: str, profile: str = "") -> str:
    return build_session_key(SessionSource(platform=channel, chat_id=chat), profile=profile)
