"""Gateway processes that start without the time that importing their modules takes."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from hermes.testing.gateway_instances import GatewayInstance, write_spec
from hermes.testing.gateway_process import GatewaySpec
from support.preloaded_python import preloaded_program


@asynccontextmanager
async def preloaded_instance(spec: GatewaySpec) -> AsyncGenerator[GatewayInstance]:
    """Run a gateway process during the block, like `gateway_instance`."""
    command = ["-m", "hermes.testing.gateway_process", await write_spec(spec)]
    async with preloaded_program(command, env={"HOME": spec.folder}) as process:
        yield GatewayInstance(process)
