"""Detect code that blocks the event loop, with the duration and the stack."""

import asyncio
import gc
import os
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from msgspec import Struct

from hermes.kit.tasks import Worker

MAX_BLOCK = 0.05
"""Longest allowed block in benchmarks, on an otherwise idle machine."""
MAX_TEST_BLOCK = 0.5
"""Longest allowed block in tests; a longer one is not explained by a slow machine."""
_TICK = 0.01
_RENEW = 100
"""Number of ticks after which the threads of the process are listed again."""
_MAX_STACKS = 100
"""How many stacks are sampled during a block; the most frequent one is reported."""
_UNKNOWN_STACK = "unknown code on this thread that holds the interpreter lock"


class LoopBlock(Struct, frozen=True):
    """A block of the loop; `seconds` excludes time in which no CPU was available."""

    seconds: float
    stack: str


class LoopBlocked(AssertionError):
    """The event loop was blocked; move the blocking code to a thread or process."""


class EventLoopGuard:
    """Ticks on the loop and watches the ticks from a thread, which samples the blocking stack.

    `stood` is the longest time between two iterations of the loop. `longest` and `blocks` exclude
    the time in which no CPU was available. `worked` is the longest CPU time of the loop's thread
    between two iterations. A delay counts as a block only if the loop caused it: its thread used
    the CPU for longer than the limit, or the watching thread was delayed less than half as long.
    """

    def __init__(self, limit: float = MAX_BLOCK) -> None:
        self.limit = limit
        self.blocks: list[LoopBlock] = []
        self.longest = 0.0
        self.stood = 0.0
        self.worked = 0.0
        self._loop = asyncio.get_running_loop()
        self._ident = threading.get_ident()
        self._due = time.monotonic() + _TICK
        self._stacks: Counter[str] = Counter()
        self._watcher_delay = 0.0
        self._worked = time.thread_time()
        self._starvation = _CpuStarvation()
        self._over = threading.Event()
        self._worker = Worker("hermes-loop-guard", self._watch)

    def start(self) -> None:
        self._starvation.since()
        self._worked = time.thread_time()
        self._due = time.monotonic() + _TICK
        self._worker.start()
        self._handle = self._loop.call_later(_TICK, self._tick)

    async def stop(self) -> None:
        self.halt()
        await self._worker.ended()

    def halt(self) -> None:
        """Stop without waiting for the thread; also works after the loop has ended."""
        if self._loop.is_running():
            self._measure_loop()
        self._handle.cancel()
        self._over.set()
        self._starvation.close()

    def check(self) -> None:
        """Raise `LoopBlocked` with the longest block and its stack."""
        if self.blocks:
            worst = max(self.blocks, key=lambda block: block.seconds)
            raise LoopBlocked(
                f"event loop blocked {len(self.blocks)} times, up to {worst.seconds * 1000:.0f} ms "
                f"({self.stood * 1000:.0f} ms of wall time) by\n{worst.stack}"
            )

    def _tick(self) -> None:
        self._measure_loop()
        self._due = time.monotonic() + _TICK
        self._handle = self._loop.call_later(_TICK, self._tick)

    def _measure_loop(self) -> None:
        now, worked = time.monotonic(), time.thread_time()
        stood = now - self._due
        late = stood - self._starvation.since()
        self.stood = max(self.stood, stood)
        busy, self._worked = worked - self._worked, worked
        self.worked = max(self.worked, min(busy, stood))
        watcher_delay, self._watcher_delay = self._watcher_delay, 0.0
        # If the watching thread could not run either, the whole process was suspended, unless
        # this thread held the interpreter lock.
        stacks, self._stacks = self._stacks, Counter()
        if stacks or busy > self.limit:
            self.longest = max(self.longest, late)
            blamed = busy > self.limit or watcher_delay < late / 2
            if late > self.limit and blamed:
                self.blocks.append(
                    LoopBlock(
                        late, max(stacks, key=lambda one: stacks[one], default=_UNKNOWN_STACK)
                    )
                )

    def _watch(self) -> None:
        self._starvation.leave_out(threading.get_native_id())
        step, last = self.limit / 5, time.monotonic()
        while not self._over.wait(step):
            now = time.monotonic()
            self._watcher_delay, last = max(self._watcher_delay, now - last - step), now
            # On a busy machine the first sample may come before the blocking call has begun.
            if time.monotonic() - self._due > self.limit / 2 and self._stacks.total() < _MAX_STACKS:
                frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage] - the only way to see another thread
                stack = traceback.format_stack(frames.get(self._ident))[-12:]
                self._stacks["".join(stack)] += 1


class _CpuStarvation:
    """Measures how long threads of this process were runnable but had no CPU."""

    def __init__(self) -> None:
        self._files: list[int] = []
        self._last = 0
        self._age = _RENEW
        self._watcher = ""

    def leave_out(self, thread: int) -> None:
        """Exclude the watching thread, whose delays do not matter."""
        self._watcher = str(thread)

    def since(self) -> float:
        """Return the seconds waited since the last call; 0 where the system does not report it."""
        if self._age >= _RENEW:
            self._renew()
            return 0.0
        self._age += 1
        waited = self._sum()
        delta, self._last = waited - self._last, waited
        return max(delta, 0) / 1e9

    def _renew(self) -> None:
        self.close()
        tasks = Path("/proc/self/task")
        listed = list(tasks.iterdir()) if tasks.exists() else list[Path]()
        for task in listed:
            # A thread may have ended since it was listed.
            with suppress(OSError):
                if task.name != self._watcher:
                    self._files.append(os.open(task / "schedstat", os.O_RDONLY))
        self._age = 0
        self._last = self._sum()

    def _sum(self) -> int:
        total = 0
        for file in self._files:
            try:
                total += int(os.pread(file, 100, 0).split()[1])
            except (OSError, IndexError):
                self._age = _RENEW
        return total

    def close(self) -> None:
        for file in self._files:
            os.close(file)
        self._files = []


@asynccontextmanager
async def guard_loop(limit: float = MAX_TEST_BLOCK) -> AsyncGenerator[EventLoopGuard]:
    """Raise `LoopBlocked` at the end of the `with` block if the loop was blocked during it."""
    # Exclude existing objects from garbage collection: walking the large heap of a test run
    # would be measured as a block.
    gc.collect()
    gc.freeze()
    guard = EventLoopGuard(limit)
    guard.start()
    try:
        yield guard
    finally:
        await guard.stop()
        gc.unfreeze()
    guard.check()
