"""Task groups bound to a block."""

import asyncio
import math
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup


@asynccontextmanager
async def background_tasks() -> AsyncGenerator[TaskGroup]:
    """A task group for the block; exceptions of the block are raised unwrapped."""
    failure: Exception | None = None
    async with anyio.create_task_group() as group:
        try:
            yield group
        except Exception as error:  # noqa: BLE001 - re-raised outside the task group
            failure = error
        finally:
            group.cancel_scope.cancel()
    if failure is not None:
        raise failure


def cancelled_from_outside() -> bool:
    """Whether the current task is being cancelled by its scope or owner.

    Libraries leak cancellations of their own futures; those are failures, not cancellations.
    """
    task = asyncio.current_task()
    return anyio.current_effective_deadline() == -math.inf or (
        task is not None and task.cancelling() > 0
    )
