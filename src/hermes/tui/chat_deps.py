"""Dependencies of the screens: the client, worker threads for its blocking calls, and options."""

import asyncio
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import TypeVar

from msgspec import Struct
from textual.message import Message

from hermes.kit.clock import Clock
from hermes.kit.tasks import Worker
from hermes.schema.errors import HermesError
from hermes.tui.attention import Attention
from hermes.tui.client import TuiClient
from hermes.tui.input_history import InputHistory
from hermes.tui.options import DisplayOptions

T = TypeVar("T")


class WorkerThread:
    """A thread with a job queue. It is not joined at exit: unfinished results are not needed."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._worker = Worker(name, self._work)

    def start(self) -> None:
        self._worker.start()

    def close(self) -> None:
        """Stop after the jobs that are already queued."""
        self._jobs.put(None)

    async def run(self, work: Callable[[], T]) -> T:
        """Run the call in the thread; return or raise what it does."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[T] = loop.create_future()

        def job() -> None:
            try:
                settle = partial(outcome.set_result, work())
            except Exception as error:  # noqa: BLE001 - re-raised in the caller
                settle = partial(outcome.set_exception, error)
            if not loop.is_closed():
                loop.call_soon_threadsafe(lambda: outcome.done() or settle())

        self._jobs.put(job)
        return await outcome

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


class ChatDeps(Struct, frozen=True, kw_only=True):
    client: TuiClient
    turn_worker: WorkerThread
    side_worker: WorkerThread
    history: InputHistory
    clock: Clock
    display: DisplayOptions
    attention: Attention


class ThemeRequest(Message):
    """Selects a theme by name; `auto` fits the terminal, an empty name toggles light and dark."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


class ExitRequest(Message):
    """Ends the application; `error` is what caused it."""

    def __init__(self, code: int, error: HermesError | None = None) -> None:
        super().__init__()
        self.code = code
        self.error = error
