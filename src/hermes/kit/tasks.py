"""Task groups bound to a block, and timeouts on an injectable clock."""

import asyncio
import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

import anyio
from anyio.abc import TaskGroup

from hermes.kit.clock import Clock

T = TypeVar("T")


class DeadlineExceeded(TimeoutError):
    """The work did not finish in time and was cancelled."""


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


async def run_with_timeout(clock: Clock, seconds: float, work: Callable[[], Awaitable[T]]) -> T:
    """Return the work's value. Raises `DeadlineExceeded`, or what the work raises."""
    values: list[T] = []
    async with background_tasks() as group:

        async def watch() -> None:
            await clock.sleep(seconds)
            group.cancel_scope.cancel()

        group.start_soon(watch)
        values.append(await work())
    if not values:
        raise DeadlineExceeded(f"It took longer than {seconds:g} seconds.")
    return values[0]


async def sleep_unless(clock: Clock, seconds: float, event: anyio.Event) -> bool:
    """Sleep until the time is up or the event is set; return whether it is set."""
    with suppress(DeadlineExceeded):
        await run_with_timeout(clock, seconds, event.wait)
    return event.is_set()
