"""Tasks that run beside a block and end with it."""

import asyncio
import math
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup


@asynccontextmanager
async def background_tasks() -> AsyncGenerator[TaskGroup]:
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


def cancelled_from_outside() -> bool:
    """Whether a scope around us, or whoever owns our task, wants us to end.

    Libraries leak cancellations of their own futures; those are failures, not wishes.
    """
    task = asyncio.current_task()
    return anyio.current_effective_deadline() == -math.inf or (
        task is not None and task.cancelling() > 0
    )
