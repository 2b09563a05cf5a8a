"""Gateway processes that start without the time that importing their modules takes."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio

from support.gateway_instances import GatewayInstance, write_spec
from support.gateway_process import GatewaySpec
from support.preloaded_python import preloaded_program


@asynccontextmanager
async def preloaded_instance(spec: GatewaySpec) -> AsyncGenerator[GatewayInstance]:
    """Run a gateway process during the block, like `gateway_instance`."""
    command = ["-m", "support.gateway_process", await write_spec(spec)]
    async with preloaded_program(command, env={"HOME": spec.folder}) as process:
        yield GatewayInstance(process)


@asynccontextmanager
async def running_gateway(spec: GatewaySpec) -> AsyncGenerator[GatewayInstance]:
    """Run a gateway process during the block, and end it in order."""
    async with preloaded_instance(spec) as instance, anyio.create_task_group() as group:
        group.start_soon(instance.watch)
        await instance.wait_ready()
        yield instance
        instance.end()
