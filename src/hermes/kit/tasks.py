"""Tasks that run beside a block and end with it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup


@asynccontextmanager
async def beside() -> AsyncGenerator[TaskGroup]:
    """A task group for the length of the block; what the block raises comes out as it is."""
    failure: Exception | None = None
    async with anyio.create_task_group() as group:
        try:
            yield group
        except Exception as error:  # noqa: BLE001 - raised again, outside of the task group
            failure = error
        finally:
            group.cancel_scope.cancel()
    if failure is not None:
        raise failure
