"""Work that waits for somebody else, done one by one in a thread of its own."""

import asyncio
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeVar

from hermes.kit.threads import Worker

T = TypeVar("T")


class WorkerThread:
    """Nobody waits for the thread at the end: what it still does is not wanted any more."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._worker = Worker(name, self._work)

    def start(self) -> None:
        self._worker.start()

    def close(self) -> None:
        """After what was asked for already."""
        self._jobs.put(None)

    async def run(self, work: Callable[[], T]) -> T:
        """What the work returns or raises."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[T] = loop.create_future()

        def settle(value: T | None, error: BaseException | None) -> None:
            if outcome.done():
                return
            if error is not None:
                outcome.set_exception(error)
            else:
                outcome.set_result(value)  # pyright: ignore[reportArgumentType] - T may be None

        def job() -> None:
            value, failure = None, None
            try:
                value = work()
            except Exception as error:  # noqa: BLE001 - raised where it was asked for
                failure = error
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, value, failure)

        self._jobs.put(job)
        return await outcome

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
