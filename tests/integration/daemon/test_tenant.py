"""One profile of a gateway process: how it ends, how it comes back, and how often that is said."""

import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.abc
import pytest

from gateways import until
from hermes.app.build import Choices, open_app
from hermes.app.channels import sharing
from hermes.config.env import Env
from hermes.config.home import home_of
from hermes.daemon.programs import Programs
from hermes.daemon.tenant import Lodging, Tenant, keep_tenant
from hermes.gateway.hooks import NoHooks
from hermes.gateway.letters import outbox
from hermes.gateway.returning import BACK, RESTARTS, await_return
from hermes.kit.clock import SystemClock
from hermes.kit.retry import Backoff
from hermes.ports.channel import Inbound
from hermes.schema.scope import Address
from hermes.testing.channel import FakeChannel
from processes import PATIENCE

pytestmark = pytest.mark.anyio


async def hear(inbound: Inbound) -> None:
    raise AssertionError(f"nobody speaks here, but {inbound} was heard")


@asynccontextmanager
async def ended_tenant(folder: Path) -> AsyncGenerator[tuple[Tenant, anyio.Event]]:
    """Told to end while its door was still being opened; the process goes on for the block.

    The event says that the profile is closed.
    """
    home, closed = home_of(folder, "default"), anyio.Event()

    async def keep(lodging: Lodging, *, task_status: anyio.abc.TaskStatus[Tenant]) -> None:
        await keep_tenant(home, lodging, task_status=task_status)
        closed.set()

    async with sharing() as shared, anyio.create_task_group() as group:
        lodging = Lodging(
            owner=home, env=Env({}), shared=shared, restart=lambda: None,
            programs=Programs(SystemClock()),
        )  # fmt: skip
        tenant: Tenant = await group.start(keep, lodging)
        tenant.assemble({})
        tenant.begin(hear)
        tenant.close()
        # Half of what turns would be given: there are none to wait for.
        with anyio.fail_after(tenant.gateway.drain / 2):
            await tenant.ended.wait()
        yield tenant, closed
        group.cancel_scope.cancel()


async def test_it_leaves_at_once_when_its_door_was_still_being_opened(tmp_path: Path) -> None:
    async with ended_tenant(tmp_path) as (tenant, _):
        assert tenant.listening.is_set()


async def test_its_log_is_open_until_the_process_is_done(tmp_path: Path) -> None:
    async with ended_tenant(tmp_path) as (_, closed):
        # Time enough for a profile that would be closed by itself.
        with anyio.move_on_after(0.5):
            await closed.wait()
        logging.getLogger("hermes.daemon").warning("the last words of the process")
    assert "the last words of the process" in (tmp_path / "logs" / "agent.log").read_text()


class Breaking(NoHooks):
    """The first gateway breaks when it says that it has started."""

    def __init__(self) -> None:
        self.started = 0
        self.again = anyio.Event()

    def emit(self, event: str, context: Mapping[str, object]) -> None:
        self.started += 1
        if self.started == 1:
            raise RuntimeError("the first start breaks")
        self.again.set()


async def test_one_that_broke_and_was_built_anew_does_not_say_again_that_it_is_back(
    tmp_path: Path,
) -> None:
    (tmp_path / "config.yaml").write_text("platforms: {fake: {home_channel: '7'}}")
    home, channel, hooks = home_of(tmp_path, "default"), FakeChannel(), Breaking()
    async with (
        sharing() as shared,
        open_app(home, Env({}), Choices(workspace=str(tmp_path))) as app,
    ):
        lodging = Lodging(
            owner=home, env=Env({}), shared=shared, restart=lambda: None, restarted=True,
            programs=Programs(SystemClock()), retry=Backoff(base=0.01, cap=0.01),
        )  # fmt: skip
        tenant = Tenant(app, {"fake": channel}, {}, hooks, lodging)
        for place in (Address("fake", "1"), Address("gone", "1")):
            await await_return(app.store, place)
        tenant.assemble({})
        tenant.begin(hear)
        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as group:
                group.start_soon(tenant.work_on)
                await hooks.again.wait()
                await until(lambda: len(channel.posts) >= 2)
                tenant.close()
        assert [channel.seen_in(chat) for chat in ("1", "7")] == [[BACK], [BACK]]
        for name in ("fake", "gone"):
            assert await app.store.lanes.topics(outbox(name)) == []
        assert await app.store.lanes.topics(RESTARTS) == []
