"""Work that may hang or take long, in a thread that can be left alone when nobody waits for it."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

import anyio.lowlevel

from hermes.kit.threads import Worker
from hermes.schema.errors import ToolError

R = TypeVar("R")

MAX_THREADS = 32


class ThreadRunner:
    """At most `most` threads: those that were left alone count until they come to an end.

    A thread of the event loop's own pool would keep the program from ending while it hangs.
    """

    def __init__(self, most: int = MAX_THREADS) -> None:
        self._most = most
        self._running: set[Worker] = set()

    async def run(self, work: Callable[[], R]) -> R:
        """What `work` returns or raises; cancelled, we go and it stays behind."""
        if len(self._running) >= self._most:
            raise ToolError(
                f"{self._most} earlier calls still wait for files that do not answer.",
                hint="Use the terminal, where a command that hangs can be ended.",
            )
        await anyio.lowlevel.checkpoint()
        outcome: Future[R] = Future()

        def body() -> None:
            try:
                outcome.set_result(work())
            except BaseException as error:  # noqa: BLE001 - it is raised where somebody waits
                outcome.set_exception(error)
            finally:
                self._running.discard(worker)

        worker = Worker("hermes-aside", body)
        self._running.add(worker)
        try:
            worker.start()
        except RuntimeError as error:
            self._running.discard(worker)
            raise ToolError(f"no thread can be started: {error}") from error
        await worker.ended()
        return outcome.result()
