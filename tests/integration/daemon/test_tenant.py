"""One profile of a gateway process: told to end before it has begun, and after it has ended."""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.abc
import pytest

from hermes.app.channels import sharing
from hermes.config.env import Env
from hermes.config.home import home_of
from hermes.daemon.programs import Programs
from hermes.daemon.tenant import Lodging, Tenant, keep_tenant
from hermes.kit.clock import SystemClock
from hermes.ports.channel import Inbound

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
