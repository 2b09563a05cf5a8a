"""Waiting until nothing moves any more: every task waits, and for no thread."""

import asyncio
import gc
from collections.abc import Sized
from types import CodeType
from weakref import WeakSet

import anyio
from anyio.lowlevel import checkpoint

_THREADS = 10.0
"""Seconds that a thread may work before it counts as one that waits itself."""
_LOOK = 0.0005
_ROUNDS = 8
"""Of the event loop in which callbacks alone ran: whoever is cancelled is woken by one."""


class Stillness:
    """Knows what it has looked at: time may have to be moved on very often."""

    def __init__(self) -> None:
        self._others: WeakSet[asyncio.Future[object]] = WeakSet()
        """What somebody else will end, and no thread."""

    async def comes(self) -> None:
        """Until every other task waits for somebody else, for time, or for the outside world.

        A task that waits for a thread, such as the store's, is still at work.
        """
        me, loop = asyncio.current_task(), asyncio.get_running_loop()
        deadline = loop.time() + _THREADS
        still = 0
        while still < _ROUNDS:
            await checkpoint()
            waiting = _waiting(loop, me)
            if waiting is None:
                still = 0
            elif loop.time() < deadline and any(self._in_a_thread(*one) for one in waiting):
                still = 0
                await anyio.sleep(_LOOK)
            elif _has_more_to_run(loop):
                still += 1
            else:
                return

    def _in_a_thread(self, task: "asyncio.Task[object]", waiter: "asyncio.Future[object]") -> bool:
        if waiter in self._others:
            return False
        if _is_in_a_thread(task):
            return True
        self._others.add(waiter)
        return False


async def settled() -> None:
    await Stillness().comes()


def _waiting(
    loop: asyncio.AbstractEventLoop, me: "asyncio.Task[object] | None"
) -> "list[tuple[asyncio.Task[object], asyncio.Future[object]]] | None":
    """Everybody else and what they wait for, unless somebody does not wait."""
    found: list[tuple[asyncio.Task[object], asyncio.Future[object]]] = []
    for task in asyncio.all_tasks(loop):
        if task is me:
            continue
        waiter: asyncio.Future[object] | None = getattr(task, "_fut_waiter", None)
        if waiter is None or waiter.done():
            return None
        found.append((task, waiter))
    return found


def _has_more_to_run(loop: asyncio.AbstractEventLoop) -> bool:
    ready: object = getattr(loop, "_ready", None)
    return not isinstance(ready, Sized) or len(ready) > 0


def _is_in_a_thread(task: "asyncio.Task[object]") -> bool:
    at: object = task.get_coro()
    while at is not None:
        code, at = _next(at)
        if code is not None and code.co_qualname in _IN_A_THREAD:
            return True
    return False


_IN_A_THREAD = {"Job.outcome", "AsyncIOBackend.run_sync_in_worker_thread"}
_NAMES = (("cr_code", "cr_await"), ("ag_code", "ag_await"), ("gi_code", "gi_yieldfrom"))


def _next(at: object) -> tuple[CodeType | None, object]:
    """What runs there, and what it waits for."""
    for code, waits in _NAMES:
        found: object = getattr(at, code, None)
        if isinstance(found, CodeType):
            return found, getattr(at, waits)
    # One step of a generator names it to nobody but the collector of garbage.
    steps: list[object] = [one for one in gc.get_referents(at) if hasattr(one, "ag_await")]
    return None, steps[0] if steps else None
