"""One profile of a gateway process: how it ends, restarts and notifies."""

import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.abc

from hermes.app.build import AppOptions, open_app
from hermes.app.channels import open_process_resources
from hermes.app.service.profile_service import (
    ApiHost,
    ProfileService,
    ProfileServiceDeps,
    serve_profile,
)
from hermes.app.service.web_host import WebHost
from hermes.config.env import Env
from hermes.config.home import profile_home
from hermes.gateway.hooks import HookDecision
from hermes.gateway.messages import outbox_name
from hermes.gateway.notices import BACK_ONLINE, RESTARTS, request_restart_notice
from hermes.kit.clock import SystemClock
from hermes.kit.file_lock import FileLock
from hermes.kit.retry import Backoff
from hermes.ports.channel import Inbound
from hermes.schema.scope import Address
from hermes.testing.channel import FakeChannel
from support.cli_process import TEST_TIMEOUT
from support.gateway import wait_until


async def refuse(inbound: Inbound) -> None:
    raise AssertionError(f"nobody speaks here, but {inbound} was heard")


@asynccontextmanager
async def closed_profile(folder: Path) -> AsyncGenerator[tuple[ProfileService, anyio.Event]]:
    """Closed while its socket was still being opened; the process runs during the block.

    The event says that the profile is closed.
    """
    home, closed = profile_home(folder, "default"), anyio.Event()

    async def keep(
        deps: ProfileServiceDeps, *, task_status: anyio.abc.TaskStatus[ProfileService]
    ) -> None:
        await serve_profile(home, deps, task_status=task_status)
        closed.set()

    async with open_process_resources() as shared, anyio.create_task_group() as group:
        deps = ProfileServiceDeps(
            owner=home, env=Env({}), shared=shared, restart=lambda: None,
            dispatcher_lock=FileLock(home.kanban / ".dispatcher.lock"),
            board_workers=set(),
            api_host=ApiHost(SystemClock()), web_host=WebHost(SystemClock()),
        )  # fmt: skip
        service: ProfileService = await group.start(keep, deps)
        service.assemble({})
        service.begin(refuse)
        service.close()
        # Half of the drain time: there are no turns to wait for.
        with anyio.fail_after(service.gateway.drain / 2):
            await service.ended.wait()
        yield service, closed
        group.cancel_scope.cancel()


async def test_close_during_opening_ends_immediately(tmp_path: Path) -> None:
    async with closed_profile(tmp_path) as (service, _):
        assert service.listening.is_set()


async def test_log_stays_open_until_the_process_ends(tmp_path: Path) -> None:
    async with closed_profile(tmp_path) as (_, closed):
        # Long enough for a profile that would close itself.
        with anyio.move_on_after(0.5):
            await closed.wait()
        logging.getLogger("hermes.app.service").warning("the last words of the process")
    assert "the last words of the process" in (tmp_path / "logs" / "agent.log").read_text()


class FailingHooks:
    """The first gateway fails when it reports that it has started."""

    def __init__(self) -> None:
        self.started = 0
        self.again = anyio.Event()

    def emit(self, event: str, context: Mapping[str, object]) -> None:
        self.started += 1
        if self.started == 1:
            raise RuntimeError("the first start breaks")
        self.again.set()

    async def decide(self, event: str, context: Mapping[str, object]) -> HookDecision | None:
        return None


async def test_rebuilt_gateway_sends_no_second_restart_notice(
    tmp_path: Path,
) -> None:
    (tmp_path / "config.yaml").write_text("platforms: {fake: {home_channel: '7'}}")
    home, channel, hooks = profile_home(tmp_path, "default"), FakeChannel(), FailingHooks()
    async with (
        open_process_resources() as shared,
        open_app(home, Env({}), AppOptions(workspace=str(tmp_path))) as app,
    ):
        deps = ProfileServiceDeps(
            owner=home, env=Env({}), shared=shared, restart=lambda: None, restarted=True,
            dispatcher_lock=FileLock(home.kanban / ".dispatcher.lock"),
            board_workers=set(),
            api_host=ApiHost(SystemClock()), web_host=WebHost(SystemClock()),
            retry=Backoff(base=0.01, cap=0.01),
        )  # fmt: skip
        service = ProfileService(app, {"fake": channel}, {}, hooks, deps)
        for place in (Address("fake", "1"), Address("gone", "1")):
            await request_restart_notice(app.store, place)
        service.assemble({})
        service.begin(refuse)
        with anyio.fail_after(TEST_TIMEOUT):
            async with anyio.create_task_group() as group:
                group.start_soon(service.run)
                await hooks.again.wait()
                await wait_until(lambda: len(channel.posts) >= 2)
                service.close()
        assert [channel.texts_in(chat) for chat in ("1", "7")] == [[BACK_ONLINE], [BACK_ONLINE]]
        for name in ("fake", "gone"):
            assert await app.store.queues.topics(outbox_name(name)) == []
        assert await app.store.queues.topics(RESTARTS) == []
