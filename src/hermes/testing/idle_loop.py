"""Waiting until nothing moves any more: every task waits, and for no thread.

A clock that tests own may only go on when everybody has done what there was to do: else a limit
lapses on whoever is still at work. `anyio.wait_all_tasks_blocked` is not enough for that: to it,
whoever waits for the store's thread waits, and it sleeps a tenth of a second when anybody does not.

Seen are the tasks of this event loop, and the threads they wait for through `Job.outcome` (the
store's) and anyio's `to_thread`. Not seen are threads that are waited for in another way (those of
hooks), other event loops, processes and sockets: a test that depends on one of these waits for what
it does before it moves time. Whoever polls without a pause is never still, and fails the test.
"""

import asyncio
import gc
from collections.abc import Sized
from types import CodeType
from weakref import WeakKeyDictionary

import anyio
from anyio.lowlevel import checkpoint

_THREAD_SECONDS = 10.0
"""Seconds that a thread may work before it counts as one that waits itself."""
_MAX_WAIT = 180.0
"""Seconds until whoever does not come to rest at all is the fault of a test."""
_POLL_INTERVAL = 0.0005
_ROUNDS = 8
"""Of the event loop in which callbacks alone ran: whoever is cancelled is woken by one."""


class IdleWaiter:
    """Knows what it has looked at: time may have to be moved on very often.

    Each call of a thread has its own time: together they may take long, and one that hangs is
    waited for once.
    """

    def __init__(self, threads: float = _THREAD_SECONDS) -> None:
        self._threads = threads
        self._until: WeakKeyDictionary[asyncio.Future[object], float] = WeakKeyDictionary()
        """When it counts no longer as the work of a thread; what is none never did."""

    async def comes(self) -> None:
        """Until every other task waits for somebody else, for time, or for the outside world.

        A task that waits for a thread, such as the store's, is still at work.
        """
        with anyio.fail_after(_MAX_WAIT):
            await self._comes(asyncio.current_task(), asyncio.get_running_loop())

    async def _comes(
        self, me: "asyncio.Task[object] | None", loop: asyncio.AbstractEventLoop
    ) -> None:
        still = 0
        while still < _ROUNDS:
            await checkpoint()
            waiting = _waiting_tasks(loop, me)
            if waiting is None:
                still = 0
            elif any(self._in_a_thread(*one, loop.time()) for one in waiting):
                still = 0
                await anyio.sleep(_POLL_INTERVAL)
            elif _has_more_to_run(loop):
                still += 1
            else:
                return

    def _in_a_thread(
        self, task: "asyncio.Task[object]", waiter: "asyncio.Future[object]", now: float
    ) -> bool:
        until = self._until.get(waiter)
        if until is None:
            until = now + self._threads if _is_awaiting(task, _THREAD_WAITS) else 0.0
            self._until[waiter] = until
        return now < until


async def wait_until_idle() -> None:
    await IdleWaiter().comes()


def _waiting_tasks(
    loop: asyncio.AbstractEventLoop, me: "asyncio.Task[object] | None"
) -> "list[tuple[asyncio.Task[object], asyncio.Future[object]]] | None":
    """Everybody else and what they wait for, unless somebody does not wait.

    Two who wait here would wait for each other.
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


_IDLE_WAITS = frozenset({"IdleWaiter._comes"})
_THREAD_WAITS = frozenset({"Job.outcome", "AsyncIOBackend.run_sync_in_worker_thread"})
_NAMES = (("cr_code", "cr_await"), ("ag_code", "ag_await"), ("gi_code", "gi_yieldfrom"))


def _awaited(at: object) -> tuple[CodeType | None, object]:
    """What runs there, and what it waits for."""
    for code, waits in _NAMES:
        found: object = getattr(at, code, None)
        if isinstance(found, CodeType):
            return found, getattr(at, waits)
    # One step of a generator names it to nobody but the collector of garbage.
    steps: list[object] = [one for one in gc.get_referents(at) if hasattr(one, "ag_await")]
    return None, steps[0] if steps else None
