"""Run blocking work in threads that can be abandoned when the caller is cancelled."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

import anyio.lowlevel

from hermes.kit.tasks import Worker
from hermes.schema.errors import ToolError

R = TypeVar("R")

MAX_THREADS = 32


class ThreadRunner:
    """Runs at most `max_threads` threads; abandoned ones count until they finish.

    The event loop's own thread pool is not used: a hanging thread would keep the program alive.
    """

    def __init__(self, max_threads: int = MAX_THREADS) -> None:
        self._max_threads = max_threads
        self._running: set[Worker] = set()

    async def run(self, work: Callable[[], R]) -> R:
        """Return or raise what `work` does; on cancellation the thread is left behind."""
        if len(self._running) >= self._max_threads:
            raise ToolError(
                f"{self._max_threads} earlier calls are still waiting for files "
                "that do not respond.",
                hint="Use the terminal, where a hanging command can be killed.",
            )
        await anyio.lowlevel.checkpoint()
        outcome: Future[R] = Future()

        def body() -> None:
            try:
                outcome.set_result(work())
            except BaseException as error:  # noqa: BLE001 - re-raised in the caller
                outcome.set_exception(error)
            finally:
                self._running.discard(worker)

        worker = Worker("hermes-tool-thread", body)
        self._running.add(worker)
        try:
            worker.start()
        except RuntimeError as error:
            self._running.discard(worker)
            raise ToolError(f"cannot start a thread: {error}") from error
        await worker.ended()
        return outcome.result()
