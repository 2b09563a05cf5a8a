"""Run a turn in a task of its own while its surface reads the events from the bus."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext

import anyio

from hermes.ports.bus import Bus, Subscription, run_topic
from hermes.schema.events import Event, RunEnded


class FollowedRun:
    """The events of a run; `started` after the first one, `ended` is the last one."""

    def __init__(self, events: Subscription) -> None:
        self._events = events
        self.started = False
        self.ended: RunEnded | None = None
        self.unread: Sequence[Event] = ()
        """What a cancelled reader has missed; set when the run is over."""

    async def read(self) -> Sequence[Event]:
        """Wait for events; nothing is returned once the run is over."""
        return self._checked(await self._events.read())

    def take(self) -> Sequence[Event]:
        """Return what was not read yet, without waiting."""
        return self._checked(self._events.take())

    def _checked(self, events: Sequence[Event]) -> Sequence[Event]:
        if events:
            self.started = True
            last = events[-1]
            self.ended = last if isinstance(last, RunEnded) else None
        return events


@asynccontextmanager
async def follow_run(
    bus: Bus,
    run: str,
    work: Callable[[], Awaitable[object]],
    stop: anyio.CancelScope | None = None,
) -> AsyncGenerator[FollowedRun]:
    """Do the work of a run in a task, while the block reads its events.

    The block is left when the run is over, and raises its error. Cancelling `stop` ends only the
    run, so that its last events are still read; an error in the block ends the run.
    """
    failure: Exception | None = None
    with bus.subscribe(run_topic(run)) as events:
        followed = FollowedRun(events)

        async def do_work() -> None:
            nonlocal failure
            try:
                with stop or nullcontext():
                    await work()
            except Exception as error:  # noqa: BLE001 - raised at the end of the block
                failure = failure or error
            finally:
                events.close()

        try:
            async with anyio.create_task_group() as group:
                group.start_soon(do_work)
                try:
                    yield followed
                except Exception as error:  # noqa: BLE001 - as above, without an exception group
                    failure = error
                    group.cancel_scope.cancel()
        finally:
            followed.unread = followed.take()
    if failure is not None:
        raise failure
