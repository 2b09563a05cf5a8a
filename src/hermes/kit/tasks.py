"""Tasks and worker threads with an owner, queues between them, and timeouts on a clock."""

import asyncio
import math
import threading
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from contextvars import Context, copy_context
from functools import partial
from typing import Generic, TypeVar, cast

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct, field

from hermes.kit.clock import Clock

T = TypeVar("T")
R = TypeVar("R")


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


class SharedTask(Struct, eq=False):
    """One task for all turns of a process, which ends itself when there is nothing left to do.

    It cannot be in the task group of one turn, and a group of the owner would have to be open
    before the first turn, for a task that is rarely needed. It logs for no turn in particular, so
    it runs in the context in which it was created.
    """

    _task: asyncio.Task[None] | None = None
    _context: Context = field(default_factory=copy_context)

    def ensure_running(self, work: Callable[[], Coroutine[object, object, None]]) -> None:
        """Start the work, which is the same each time, unless it is running."""
        task = self._task
        # A task may have been left behind by a closed event loop.
        if task is None or task.done() or task.get_loop() is not asyncio.get_running_loop():
            self._task = asyncio.create_task(work(), context=self._context.copy())

    async def stop(self) -> None:
        """Stop the task once all turns are over."""
        task, self._task = self._task, None
        if task is not None and task.get_loop() is asyncio.get_running_loop():
            task.cancel()
            await asyncio.wait([task])


async def sleep_unless(clock: Clock, seconds: float, event: anyio.Event) -> bool:
    """Sleep until the time is up or the event is set; return whether it is set."""
    with suppress(DeadlineExceeded):
        async with time_limit(clock, seconds):
            await event.wait()
    return event.is_set()


class MailboxClosed(Exception):
    """The queue is closed."""


class Job(Struct, Generic[T], eq=False):
    """A job for a thread that owns a `T`, and its outcome for the waiter.

    `alone` keeps it out of batches; a `droppable` job is skipped when no one waits for it anymore.
    """

    work: Callable[[T], object]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[object]
    alone: bool = False
    droppable: bool = False
    value: object = None
    error: BaseException | None = None

    def fail(self, error: BaseException) -> None:
        """An error takes precedence: work that ran may not have been committed."""
        self.error = error


def deliver(jobs: Iterable[Job[T]]) -> None:
    """Resolve all waiters, with one call per event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Job[T]]] = {}
    for job in jobs:
        by_loop.setdefault(job.loop, []).append(job)
    for loop, settled in by_loop.items():
        with suppress(RuntimeError):  # the loop is closed, so there are no waiters left
            loop.call_soon_threadsafe(_settle, settled)


class Mailbox(Struct, Generic[T], eq=False):
    """A bounded queue from event loops to worker threads."""

    limit: int
    _jobs: deque[Job[T]] = field(default_factory=deque)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _no_room: list[asyncio.Future[None]] = []
    _closed: Callable[[], Exception] | None = None

    async def run(
        self, work: Callable[[T], R], *, alone: bool = False, droppable: bool = False
    ) -> R:
        """Run the work in a thread; waits while the queue is full."""
        loop = asyncio.get_running_loop()
        job: Job[T] = Job(work, loop, loop.create_future(), alone, droppable)
        while True:
            with self._changed:
                if self._closed is not None:
                    raise self._closed()
                if len(self._jobs) < self.limit:
                    self._jobs.append(job)
                    self._changed.notify()
                    break
                room: asyncio.Future[None] = loop.create_future()
                self._no_room.append(room)
            await room
        return cast("R", await job.future)

    def take(self, limit: int, wait: float | None = None) -> list[Job[T]]:
        """The next jobs up to the limit that someone waits for; empty after `wait` seconds.

        Raises `MailboxClosed` once the mailbox is closed and empty.
        """
        with self._changed:
            if not self._jobs and self._closed is None:
                self._changed.wait(wait)
            if not self._jobs and self._closed is not None:
                raise MailboxClosed
            taken: list[Job[T]] = []
            while self._jobs and len(taken) < limit and not (taken and self._jobs[0].alone):
                job = self._jobs.popleft()
                if job.droppable and job.future.cancelled():
                    continue
                taken.append(job)
                if job.alone:
                    break
            waiting, self._no_room = self._no_room, []
        if waiting:
            _wake(waiting)
        return taken

    def close(self, reason: Callable[[], Exception]) -> None:
        """Reject new work with `reason()`; queued jobs still run."""
        with self._changed:
            self._closed = self._closed or reason
            self._changed.notify_all()

    def abandon(self, reason: Callable[[], Exception]) -> None:
        """Reject new work and fail all queued jobs."""
        self.close(reason)
        with self._changed:
            queued, self._jobs = list(self._jobs), deque()
            waiting, self._no_room = self._no_room, []
        for job in queued:
            job.fail(reason())
        deliver(queued)
        _wake(waiting)


class Worker:
    """A thread that runs `body`; its owner starts and joins it."""

    def __init__(self, name: str, body: Callable[[], None]) -> None:
        self._body = body
        self._ended: Future[None] = Future()
        # From now on, cancelling one waiter does not cancel the job for the others.
        self._ended.set_running_or_notify_cancel()
        # A daemon, so that an owner that failed to close it does not hang the interpreter.
        # Keeps the logging context of its creator.
        run = partial(copy_context().run, self._run)
        self.start = threading.Thread(target=run, name=name, daemon=True).start

    async def ended(self) -> None:
        await asyncio.wrap_future(self._ended)

    def _run(self) -> None:
        try:
            self._body()
        finally:
            self._ended.set_result(None)


def _wake(sleepers: Iterable["asyncio.Future[None]"]) -> None:
    for sleeper in sleepers:
        with suppress(RuntimeError):  # as in `deliver`
            sleeper.get_loop().call_soon_threadsafe(_set, sleeper)


def _set(sleeper: "asyncio.Future[None]") -> None:
    if not sleeper.done():
        sleeper.set_result(None)


def _settle(jobs: Iterable[Job[T]]) -> None:
    """Set the outcomes on the loop of the waiters that were not cancelled."""
    for job in jobs:
        if job.future.done():
            continue
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.value)
