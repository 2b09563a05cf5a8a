"""Task groups bound to a block, and timeouts on an injectable clock."""

import asyncio
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
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


@asynccontextmanager
async def time_limit(clock: Clock, seconds: float) -> AsyncGenerator[None]:
    """Cancel the block after that time and raise `DeadlineExceeded`."""
    done = False
    async with background_tasks() as group:

        async def watch() -> None:
            await clock.sleep(seconds)
            group.cancel_scope.cancel()

        group.start_soon(watch)
        yield
        done = True
    if not done:
        raise DeadlineExceeded(f"It took longer than {seconds:g} seconds.")


async def run_with_timeout(clock: Clock, seconds: float, work: Callable[[], Awaitable[T]]) -> T:
    """Return the work's value. Raises `DeadlineExceeded`, or what the work raises."""
    async with time_limit(clock, seconds):
        return await work()
    raise AssertionError("unreachable: the limit does not suppress exceptions")


class BackgroundTasks:
    """Starts tasks from synchronous code while `run` is running; before and after, drops them."""

    def __init__(self) -> None:
        self._group: TaskGroup | None = None

    async def run(self) -> None:
        async with anyio.create_task_group() as group:
            self._group = group
            try:
                await anyio.sleep_forever()
            finally:
                self._group = None

    def start(self, work: Callable[..., Coroutine[object, object, None]], *args: object) -> bool:
        """Start the work, which handles its own errors; return whether it was started."""
        if self._group is None:
            return False
        self._group.start_soon(work, *args)
        return True


async def sleep_unless(clock: Clock, seconds: float, event: anyio.Event) -> bool:
    """Sleep until the time is up or the event is set; return whether it is set."""
    with suppress(DeadlineExceeded):
        await run_with_timeout(clock, seconds, event.wait)
    return event.is_set()
