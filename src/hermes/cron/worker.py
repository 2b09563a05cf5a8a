"""Serve the jobs of a home: plan what is due, run fires, sleep until the next one."""

import logging
from collections.abc import Sequence
from contextlib import aclosing
from datetime import datetime
from pathlib import Path

import anyio
import anyio.abc
import anyio.to_thread

from hermes.cron.bot_chat import QUEUE as BOT_CHAT_QUEUE
from hermes.cron.bot_chat import BotChat
from hermes.cron.fire_runner import FireRunner
from hermes.cron.scheduler import Scheduler
from hermes.cron.service import JobService
from hermes.cron.triggers import Triggers
from hermes.kit.clock import Clock
from hermes.kit.file_lock import FileLock
from hermes.kit.folder_watch import folder_changes
from hermes.kit.ids import new_holder_id
from hermes.ports.bus import Bus, Wakeups
from hermes.ports.jobs import SCHEDULED_JOBS, Fire
from hermes.ports.store import QueueItem, Store
from hermes.schema.errors import HermesError, StoreError
from hermes.session.foreground_turns import ForegroundTurns

log = logging.getLogger(__name__)

DEFAULT_PARALLEL = 8
LOCK_INTERVAL = 5.0
"""Seconds between attempts to get the tick lock, while another program has it."""
CHANGES_INTERVAL = 0.1
"""Minimum seconds between wake-ups by changes in a watched folder."""
EXPORT_INTERVAL = 1.0
"""Minimum seconds between writes of `jobs.json`."""
START_INTERVAL = 0.05
"""Seconds between the starts of two fires."""
MAX_START_DELAY = 0.5
"""Seconds that a fire waits for the turns of chats."""
QUIET_SECONDS = 0.1
"""Seconds after a chat's turn in which no fire starts."""
MAX_ATTEMPTS = 5
RETRY_SECONDS = 10.0
"""Seconds to wait after an error of the store."""


class CronWorker:
    """Holds the public system's tick lock while it serves, so that one program runs the jobs."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        bus: Bus,
        service: JobService,
        scheduler: Scheduler,
        runner: FireRunner,
        triggers: Triggers,
        bot_chat: BotChat,
        tick_lock: FileLock,
        folder: Path,
        foreground: ForegroundTurns,
        parallel: int = DEFAULT_PARALLEL,
        start_interval: float = START_INTERVAL,
    ) -> None:
        self._store = store
        self._clock = clock
        self._bus = bus
        self._service = service
        self._scheduler = scheduler
        self._runner = runner
        self._triggers = triggers
        self._bot_chat = bot_chat
        self._watched: dict[Path, anyio.CancelScope] = {}
        self._tick_lock = tick_lock
        self._folder = folder
        self._foreground = foreground
        self._starting = anyio.Lock()
        self._start_interval = start_interval
        self._last_start = -start_interval
        self._parallel = parallel
        self._holder = new_holder_id(store.workers.own)
        self._running = 0
        self._ended: list[Fire] = []
        self._export = anyio.Event()
        self._idle = anyio.Event()
        self._draining = False

    async def run(self) -> None:
        """Serve until cancelled."""
        with self._bus.listen(SCHEDULED_JOBS) as wakeups:
            await self._lock()
            try:
                async with anyio.create_task_group() as group:
                    group.start_soon(self._export_changes)
                    group.start_soon(self._bot_chat.run)
                    group.start_soon(self._watch_folder, self._folder, anyio.CancelScope())
                    await self._serve(group, wakeups)
            finally:
                self._tick_lock.release()

    async def run_once(self) -> Sequence[Fire]:
        """Run what is due now and return the ended fires; none if another program serves."""
        if not await anyio.to_thread.run_sync(self._tick_lock.try_acquire):
            return []
        try:
            await self._service.sync()
            await self._scheduler.plan_due()
            await self._triggers.fire_due()
            async with anyio.create_task_group() as group:
                while await self._start_due(group) or self._running:
                    self._idle = anyio.Event()
                    if self._running:
                        await self._idle.wait()
            while await self._bot_chat.answer_next():
                pass
            await self._service.sync()
        finally:
            self._tick_lock.release()
        return self._ended

    def drain(self) -> None:
        """Start no more fires."""
        self._draining = True

    async def wait_idle(self) -> None:
        while self._running:
            self._idle = anyio.Event()
            await self._idle.wait()

    async def _lock(self) -> None:
        try:
            if not await anyio.to_thread.run_sync(self._tick_lock.try_acquire):
                log.warning("another program runs the scheduled jobs of this home; waiting for it")
                await self._tick_lock.acquire(self._clock, LOCK_INTERVAL)
        except OSError as error:
            # The home is not writable, so no one else can hold the lock, either.
            log.warning("the lock of the scheduled jobs cannot be taken: %s", error)
        log.info("serving scheduled jobs")

    async def _serve(self, group: anyio.abc.TaskGroup, wakeups: Wakeups) -> None:
        while True:
            try:
                if self._service.file_changed():
                    await self._service.sync()
                if not self._draining:
                    planned = await self._scheduler.plan_due()
                    if planned + await self._triggers.fire_due():
                        self._export.set()
                    await self._watch_files(group)
                    await self._start_due(group)
                wake = await self._scheduler.next_wake()
            except (HermesError, OSError) as error:
                log.warning("scheduled jobs wait: %s", error)
                await self._clock.sleep(RETRY_SECONDS)
                continue
            await self._sleep(wake, wakeups)
            # Another process may have delivered a result to this profile.
            self._bus.wake_here(BOT_CHAT_QUEUE)

    async def _sleep(self, until: datetime | None, wakeups: Wakeups) -> None:
        """Sleep until then or a wake-up; due fires that have not started wait for a run to end."""
        full = self._draining or self._running >= self._parallel
        async with anyio.create_task_group() as group:

            async def wait_for_time() -> None:
                if until is None or (full and until <= self._clock.now()):
                    return
                if until <= self._clock.now():
                    # Another worker holds it: check again when that worker may have died.
                    await self._clock.sleep(self._store.workers.ttl.total_seconds())
                else:
                    await self._clock.sleep_until(until)
                group.cancel_scope.cancel()

            group.start_soon(wait_for_time)
            await wakeups.wait()
            group.cancel_scope.cancel()
        wakeups.take()

    async def _start_due(self, group: anyio.abc.TaskGroup) -> int:
        free = self._parallel - self._running
        if free <= 0:
            return 0
        items = await self._store.queues.claim_abandoned(SCHEDULED_JOBS, self._holder, free)
        for item in items:
            self._running += 1
            group.start_soon(self._run, item)
        return len(items)

    async def _run(self, item: QueueItem) -> None:
        try:
            await self._wait_to_start()
            if self._draining:
                # Leave it for the next gateway.
                await self._store.queues.retry(item.key, self._clock.now(), "shutdown")
                return
            fire = await self._runner.run(item)
            if fire is not None:
                self._ended.append(fire)
                del self._ended[:-100]
        except Exception as error:
            # A failed fire must not end the others.
            log.exception("run %s failed", item.key)
            await self._put_back(item, error)
        finally:
            self._running -= 1
            self._idle.set()
            self._export.set()
            self._bus.wake(SCHEDULED_JOBS)

    async def _wait_to_start(self) -> None:
        """Give chats priority, and spread the writes of many fires."""
        async with self._starting:
            since = self._clock.monotonic() - self._last_start
            if since < self._start_interval:
                await self._clock.sleep(self._start_interval - since)
            await self._foreground.wait_until_quiet(QUIET_SECONDS, MAX_START_DELAY)
            self._last_start = self._clock.monotonic()

    async def _put_back(self, item: QueueItem, error: Exception) -> None:
        """Put back a fire that failed through no fault of its own, such as on a full disk."""
        await self._clock.sleep(RETRY_SECONDS)
        try:
            if item.attempts >= MAX_ATTEMPTS:
                await self._store.queues.park(item.key, str(error))
            else:
                await self._store.queues.retry(item.key, self._clock.now(), str(error))
        except StoreError as failure:
            log.warning("run %s waits for a restart: %s", item.key, failure)

    async def _watch_files(self, group: anyio.abc.TaskGroup) -> None:
        """Watch the folders that jobs name, and no others."""
        wanted = await self._triggers.folders()
        for folder in [path for path in self._watched if path not in wanted]:
            self._watched.pop(folder).cancel()
        for folder in wanted - set(self._watched):
            self._watched[folder] = anyio.CancelScope()
            group.start_soon(self._watch_folder, folder, self._watched[folder])

    async def _watch_folder(self, folder: Path, scope: anyio.CancelScope) -> None:
        """Watch a folder; in `cron/`, others change jobs or touch a file to wake this process."""
        is_logged = False
        with scope:
            while True:
                try:
                    async with aclosing(folder_changes(folder)) as changes:
                        async for _ in changes:
                            self._bus.wake(SCHEDULED_JOBS)
                            await self._clock.sleep(CHANGES_INTERVAL)  # a burst is one change
                except OSError as error:
                    if not is_logged:
                        log.warning("changes of %s are noticed late: %s", folder, error)
                    is_logged = True
                # The folder may still appear.
                await self._clock.sleep(RETRY_SECONDS)
                self._bus.wake(SCHEDULED_JOBS)

    async def _export_changes(self) -> None:
        """Write `jobs.json` after changes, but not for each of many fires."""
        while True:
            await self._export.wait()
            self._export = anyio.Event()
            try:
                await self._service.sync()
            except (StoreError, OSError) as error:
                log.warning("jobs.json could not be written: %s", error)
            await self._clock.sleep(EXPORT_INTERVAL)
