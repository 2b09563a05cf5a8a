"""A fake clock that only moves when a test advances it, once the event loop is idle.

The clock may only advance when all tasks have done their work; otherwise a timeout would expire for
a task that is still running. `anyio.wait_all_tasks_blocked` does not suffice: it counts a task that
waits for the store's thread as blocked, and sleeps 0.1 s whenever a task is not blocked.

Covered are the tasks of this event loop and the threads they await through `Mailbox.run` (the
store) and anyio's `to_thread`. Not covered are threads awaited in another way (those of hooks),
other event loops, processes and sockets: a test that depends on these must wait for them before it
advances the clock. A task that polls without a pause never becomes idle and fails the test.
"""

import asyncio
import gc
from collections.abc import Collection, Sized
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from types import CodeType
from weakref import WeakKeyDictionary

import anyio
from anyio.lowlevel import checkpoint

_START = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
_THREAD_SECONDS = 10.0
"""Seconds after which a working thread counts as blocked."""
_MAX_WAIT = 180.0
"""Seconds after which a loop that never becomes idle fails the test."""
_ROUNDS = 8
"""Loop iterations with only callbacks to run; a cancelled task is woken by a callback."""
_IDLE_WAITS = frozenset({"IdleWaiter._wait"})
_THREAD_WAITS = frozenset({"Mailbox.run", "AsyncIOBackend.run_sync_in_worker_thread"})
_NAMES = (("cr_code", "cr_await"), ("ag_code", "ag_await"), ("gi_code", "gi_yieldfrom"))


class FakeClock:
    """`sleep` waits until `advance` has moved time far enough.

    With `auto=True`, a sleep advances the time itself and returns, which suits tests that only
    check the total waiting time. Sleepers that are due within `together` seconds are woken at once,
    the earlier ones late, which is faster for many tasks. A task in a function named in `busy_in`,
    such as "HttpClient.call", counts as running, although it waits for a socket. `slept` records
    every sleep that was started.
    """

    def __init__(
        self,
        start: datetime = _START,
        *,
        auto: bool = False,
        together: float = 0.0,
        busy_in: Collection[str] = (),
    ) -> None:
        self._start = start
        self._elapsed = 0.0
        self._auto = auto
        self._sleepers: list[tuple[float, int, anyio.Event]] = []
        self._turn = 0
        self._together = together
        self._idle_waiter = IdleWaiter(busy_in=frozenset(busy_in))
        self._moving = anyio.Lock()
        self._stepped = anyio.Event()
        self.slept: list[float] = []

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._elapsed)

    def step(self, seconds: float) -> None:
        """Step the wall clock, as NTP does; only `sleep_until` notices."""
        self._start += timedelta(seconds=seconds)
        stepped, self._stepped = self._stepped, anyio.Event()
        stepped.set()

    async def sleep_until(self, at: datetime) -> None:
        async with anyio.create_task_group() as group:

            async def wait_for_step() -> None:
                await stepped.wait()
                group.cancel_scope.cancel()

            stepped = self._stepped
            group.start_soon(wait_for_step)
            await self.sleep((at - self.now()).total_seconds())
            group.cancel_scope.cancel()

    def monotonic(self) -> float:
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if self._auto:
            self._elapsed += max(seconds, 0.0)
        if self._auto or seconds <= 0:
            await checkpoint()
            return
        self._turn += 1
        entry = (self._elapsed + seconds, self._turn, anyio.Event())
        heappush(self._sleepers, entry)
        try:
            await entry[2].wait()
        finally:
            self._sleepers = [other for other in self._sleepers if other is not entry]

    async def advance(self, seconds: float) -> None:
        """Advance the time and wake sleepers in order; each may sleep again before the next wakes.

        Concurrent calls run one after the other.
        """
        async with self._moving:
            target = self._elapsed + seconds
            await self._idle_waiter.wait()
            while self._sleepers and min(self._sleepers)[0] <= target:
                self._sleepers.sort()
                due, _, event = heappop(self._sleepers)
                last = min(due + self._together, target)
                event.set()
                while self._together and self._sleepers and self._sleepers[0][0] <= last:
                    due, _, event = heappop(self._sleepers)
                    event.set()
                self._elapsed = max(self._elapsed, due)
                await self._idle_waiter.wait()
            self._elapsed = target

    def skip(self, seconds: float) -> None:
        """Let time pass without waking sleepers, as in a process that hangs."""
        self._elapsed += seconds

    @property
    def sleepers(self) -> int:
        """The number of sleeping tasks."""
        return len(self._sleepers)


class IdleWaiter:
    """Waits for an idle loop, and caches what it knows about futures, as it is called often.

    Each thread call has its own time limit, so a call that hangs is waited for only once.
    """

    def __init__(
        self, threads: float = _THREAD_SECONDS, busy_in: frozenset[str] = frozenset()
    ) -> None:
        self._threads = threads
        self._busy_in = _THREAD_WAITS | busy_in
        self._until: WeakKeyDictionary[asyncio.Future[object], float] = WeakKeyDictionary()
        """When a future stops counting as thread work; 0 if it is not thread work."""

    async def wait(self) -> None:
        """Return when every other task waits for another task, for time or for I/O.

        A task that waits for a thread, such as the store's, counts as running.
        """
        with anyio.fail_after(_MAX_WAIT):
            await self._wait(asyncio.current_task(), asyncio.get_running_loop())

    async def _wait(
        self, me: "asyncio.Task[object] | None", loop: asyncio.AbstractEventLoop
    ) -> None:
        still = 0
        while still < _ROUNDS:
            await checkpoint()
            waiting = _waiting_tasks(loop, me)
            if waiting is None:
                still = 0
            elif in_threads := self._in_threads(waiting, loop.time()):
                still = 0
                left = min(self._until[waiter] for waiter in in_threads) - loop.time()
                await asyncio.wait(
                    in_threads, timeout=max(left, 0), return_when=asyncio.FIRST_COMPLETED
                )
            elif _has_more_to_run(loop):
                still += 1
            else:
                return

    def _in_threads(
        self,
        waiting: "list[tuple[asyncio.Task[object], asyncio.Future[object]]]",
        now: float,
    ) -> "list[asyncio.Future[object]]":
        """Return what tasks wait for that a thread still works on."""
        found: list[asyncio.Future[object]] = []
        for task, waiter in waiting:
            until = self._until.get(waiter)
            if until is None:
                until = now + self._threads if _is_awaiting(task, self._busy_in) else 0.0
                self._until[waiter] = until
            if now < until:
                found.append(waiter)
        return found


async def wait_until_idle() -> None:
    await IdleWaiter().wait()


def _waiting_tasks(
    loop: asyncio.AbstractEventLoop, me: "asyncio.Task[object] | None"
) -> "list[tuple[asyncio.Task[object], asyncio.Future[object]]] | None":
    """Return the other tasks and what they wait for, or None if one of them can run.

    Tasks inside `IdleWaiter` are skipped, as two of them would wait for each other.
    """
    found: list[tuple[asyncio.Task[object], asyncio.Future[object]]] = []
    for task in asyncio.all_tasks(loop):
        if task is me:
            continue
        waiter: asyncio.Future[object] | None = getattr(task, "_fut_waiter", None)
        if waiter is not None and not waiter.done():
            found.append((task, waiter))
        elif not _is_awaiting(task, _IDLE_WAITS):
            return None
    return found


def _has_more_to_run(loop: asyncio.AbstractEventLoop) -> bool:
    ready: object = getattr(loop, "_ready", None)
    return not isinstance(ready, Sized) or len(ready) > 0


def _is_awaiting(task: "asyncio.Task[object]", places: frozenset[str]) -> bool:
    at: object = task.get_coro()
    while at is not None:
        code, at = _awaited(at)
        if code is not None and code.co_qualname in places:
            return True
    return False


def _awaited(at: object) -> tuple[CodeType | None, object]:
    """Return the code object of an awaitable and what it awaits."""
    for code, waits in _NAMES:
        found: object = getattr(at, code, None)
        if isinstance(found, CodeType):
            return found, getattr(at, waits)
    # An `asend` step refers to its generator only in a way that the garbage collector sees.
    generators: list[object] = [
        referent for referent in gc.get_referents(at) if hasattr(referent, "ag_await")
    ]
    return None, generators[0] if generators else None
