"""One profile of a gateway process that is told to end before it has begun."""

from pathlib import Path

import anyio
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


async def test_it_leaves_at_once_when_its_door_was_still_being_opened(tmp_path: Path) -> None:
    home = home_of(tmp_path, "default")
    async with sharing() as shared, anyio.create_task_group() as group:
        lodging = Lodging(
            owner=home, env=Env({}), shared=shared, status=bytes, restart=lambda: None,
            programs=Programs(SystemClock()),
        )  # fmt: skip
        tenant: Tenant = await group.start(keep_tenant, home, lodging)
        tenant.assemble({})
        tenant.begin(hear)
        tenant.close()
        # Half of what turns would be given: there are none to wait for.
        with anyio.fail_after(tenant.gateway.drain / 2):
            await tenant.ended.wait()
        group.cancel_scope.cancel()
    assert tenant.listening.is_set()
