"""Timeouts on an injectable clock."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from hermes.kit.clock import Clock

T = TypeVar("T")


class DeadlineExceeded(TimeoutError):
    """The work did not finish in time and was cancelled."""


async def run_with_timeout(clock: Clock, seconds: float, work: Callable[[], Awaitable[T]]) -> T:
    """Return the work's value. Raises `DeadlineExceeded`, or what the work raises."""
    values: list[T] = []
    errors: list[Exception] = []
    async with anyio.create_task_group() as group:

        async def watch() -> None:
            await clock.sleep(seconds)
            group.cancel_scope.cancel()

        group.start_soon(watch)
        try:
            values.append(await work())
        except Exception as error:  # noqa: BLE001 - re-raised outside the task group
            errors.append(error)
        group.cancel_scope.cancel()
    if errors:
        raise errors[0]
    if not values:
        raise DeadlineExceeded(f"It took longer than {seconds:g} seconds.")
    return values[0]


async def sleep_unless(clock: Clock, seconds: float, event: anyio.Event) -> bool:
    """Sleep until the time is up or the event is set; return whether it is set."""
    async with anyio.create_task_group() as group:

        async def watch() -> None:
            await clock.sleep(seconds)
            group.cancel_scope.cancel()

        group.start_soon(watch)
        await event.wait()
        group.cancel_scope.cancel()
    return event.is_set()
