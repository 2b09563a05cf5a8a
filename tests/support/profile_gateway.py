"""Run the gateway of one profile in the test process, assembled as in production."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from hermes.app.build import App
from hermes.app.channels import open_process_resources
from hermes.app.service.profile_service import (
    ApiHost,
    ProfileService,
    ProfileServiceDeps,
    serve_profile,
)
from hermes.app.service.router import Router
from hermes.app.service.web_host import WebHost
from hermes.config.env import Env
from hermes.config.home import resolve_home
from hermes.kit.clock import SystemClock
from hermes.kit.file_lock import FileLock
from hermes.kit.retry import Backoff
from hermes.session.keys import SessionSource, build_session_key
from support.chat_platform.gateway import TEST_MANIFEST
from support.homes import CHANNEL_NAME

PATH = "/usr/local/bin:/usr/bin:/bin"
FAST_RETRY = Backoff(base=0.02, cap=0.2)


def unchanged_app(app: App) -> None:
    """Do nothing; the default for `prepare`."""


@asynccontextmanager
async def profile_gateway(
    home: Path, prepare: Callable[[App], None] = unchanged_app, retry: Backoff = FAST_RETRY
) -> AsyncGenerator[ProfileService]:
    """Serve a prepared home during the block, then cancel it as a power failure would.

    `prepare` may change the app before its gateway is built.
    """
    env = Env({"HOME": str(home), "HERMES_HOME": str(home), "PATH": PATH})
    owner = resolve_home(env)
    async with open_process_resources() as shared, anyio.create_task_group() as group:
        deps = ProfileServiceDeps(
            owner=owner,
            env=env,
            shared=shared,
            restart=group.cancel_scope.cancel,
            api_host=ApiHost(SystemClock()),
            web_host=WebHost(SystemClock()),
            dispatcher_lock=FileLock(owner.kanban / ".dispatcher.lock"),
            board_workers=set(),
            manifests={CHANNEL_NAME: TEST_MANIFEST},
            retry=retry,
        )
        service: ProfileService = await group.start(serve_profile, owner, deps)
        prepare(service.app)
        Router({service.profile: service}).assemble()
        await service.listening.wait()
        yield service
        group.cancel_scope.cancel()


def session_key_of(channel: str, chat: str, profile: str = "") -> str:
    return build_session_key(SessionSource(platform=channel, chat_id=chat), profile=profile)
