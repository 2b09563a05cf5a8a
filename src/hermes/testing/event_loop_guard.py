"""Find whoever blocks the event loop: how long, and with what stack."""

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
from types import FrameType

from msgspec import Struct

from hermes.kit.threads import Worker

MAX_BLOCK = 0.05
"""What a loop may stand still; measured by the bench, where nobody else works."""
MAX_TEST_BLOCK = 0.5
"""What no test's loop may, on whatever machine: something blocks, it is not just slow."""
_TICK = 0.01
_RENEW = 100
"""After so many ticks the threads of the process are listed again."""
_MAX_STACKS = 100
"""How often the stack is taken while the loop stands still; the one seen most is blamed."""
_UNKNOWN_STACK = "something on this thread that does not let go of the interpreter"


class LoopBlock(Struct, frozen=True):
    """Seconds without a turn of the loop, less those for which no processor was free."""

    seconds: float
    stack: str


class LoopBlocked(AssertionError):
    """The loop stood still: whatever did that belongs into a thread or a process."""


class EventLoopGuard:
    """Ticks on the loop, and watches the ticks from a thread, which takes the blocker's stack.

    `stood` is the longest time without a turn of the loop; `longest` and the blocks leave out
    for how long no processor was free, which on a busy machine is nobody's fault here. `worked`
    is the longest time for which the loop's own thread was at work meanwhile, whoever else was.
    A block is a time in which the loop did nothing else although others could: its own thread
    was at work all along, or the watching thread came to its turns and the loop did not, for it
    never waited as much as half as long.
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
        """As `stop`, also when the loop is over already; the thread ends by itself soon."""
        if self._loop.is_running():
            self._measure()
        self._handle.cancel()
        self._over.set()
        self._starvation.close()

    def check(self) -> None:
        """Raises `LoopBlocked` with the longest block and who caused it."""
        if self.blocks:
            worst = max(self.blocks, key=lambda block: block.seconds)
            raise LoopBlocked(
                f"the loop was blocked {len(self.blocks)} times, for {worst.seconds * 1000:.0f} ms "
                f"(and {self.stood * 1000:.0f} ms as the clock has it) by\n{worst.stack}"
            )

    def _tick(self) -> None:
        self._measure()
        self._due = time.monotonic() + _TICK
        self._handle = self._loop.call_later(_TICK, self._tick)

    def _measure(self) -> None:
        now, worked = time.monotonic(), time.thread_time()
        stood = now - self._due
        late = stood - self._starvation.since()
        self.stood = max(self.stood, stood)
        busy, self._worked = worked - self._worked, worked
        self.worked = max(self.worked, min(busy, stood))
        tardy, self._watcher_delay = self._watcher_delay, 0.0
        # When not even the watching thread could run, the whole process stood still, unless
        # it was this thread that kept the interpreter to itself.
        seen, self._stacks = self._stacks, Counter()
        if seen or busy > self.limit:
            self.longest = max(self.longest, late)
            blamed = busy > self.limit or tardy < late / 2
            if late > self.limit and blamed:
                self.blocks.append(
                    LoopBlock(late, max(seen, key=lambda one: seen[one], default=_UNKNOWN_STACK))
                )

    def _watch(self) -> None:
        self._starvation.leave_out(threading.get_native_id())
        step, last = self.limit / 5, time.monotonic()
        while not self._over.wait(step):
            now = time.monotonic()
            self._watcher_delay, last = max(self._watcher_delay, now - last - step), now
            # On a busy machine the first look may come before the blocker has begun.
            if time.monotonic() - self._due > self.limit / 2 and self._stacks.total() < _MAX_STACKS:
                self._stacks["".join(traceback.format_stack(self._frame())[-12:])] += 1

    def _frame(self) -> FrameType | None:
        frames = sys._current_frames()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - nothing else shows another thread
        return frames.get(self._ident)


class _CpuStarvation:
    """How long threads of this process were ready to run but had no processor."""

    def __init__(self) -> None:
        self._files: list[int] = []
        self._last = 0
        self._age = _RENEW
        self._watcher = ""

    def leave_out(self, thread: int) -> None:
        """It only watches, and keeps nobody waiting."""
        self._watcher = str(thread)

    def since(self) -> float:
        """Seconds since the last call; nothing where the system does not tell."""
        if self._age >= _RENEW:
            self._renew()
            return 0.0
        self._age += 1
        waited = self._sum()
        gone, self._last = waited - self._last, waited
        return max(gone, 0) / 1e9

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
    """Fails with `LoopBlocked` at the end of the block when the loop stood still meanwhile."""
    # What was there before is not walked by the garbage collector meanwhile: a test run's heap
    # is large, and not what is measured.
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
