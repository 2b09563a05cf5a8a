"""Scheduled jobs with a real store, a scripted model and a clock that tests move."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path

import anyio

from hermes.bus.memory import MemoryBus
from hermes.cron.bot_chat import BotChat
from hermes.cron.delivery import PlannedDelivery
from hermes.cron.fire_runner import FireRunner, FireSettings
from hermes.cron.heartbeat import FILE as HEARTBEAT_FILE
from hermes.cron.job_changes import JobChange
from hermes.cron.output import OutputFolder
from hermes.cron.scheduler import Scheduler
from hermes.cron.script import ScriptRunner
from hermes.cron.service import JobService, ModelDefaults
from hermes.cron.triggers import Triggers
from hermes.cron.worker import CronWorker
from hermes.kit.file_lock import FileLock
from hermes.ports.jobs import SCHEDULED_JOBS, Fire, Job
from hermes.ports.sandbox import Sandbox
from hermes.ports.store import QueueItem
from hermes.sandbox.local import LocalSandbox
from hermes.sandbox.spawner import Spawner
from hermes.session.lease import heartbeat
from hermes.store.sqlite import SqliteStore, open_store
from hermes.testing.clock import FakeClock, wait_until_idle
from hermes.testing.scripted_model import Script
from support.conversation import ConversationHarness


class FakeDelivery:
    def __init__(self) -> None:
        self.sent: list[str] = []
        self.problem = ""

    def plan(self, job: Job, fire: Fire, text: str, *, failed: bool = False) -> PlannedDelivery:
        self.sent.append(text)
        return PlannedDelivery(problem=self.problem)

    def wake(self, planned: PlannedDelivery) -> None:
        pass

    def is_silent(self, text: str) -> bool:
        return text.strip() == "[SILENT]"


class CronHarness:
    """One process that serves jobs; several can share a folder."""

    def __init__(
        self,
        folder: Path,
        store: SqliteStore,
        clock: FakeClock,
        scripts: Sequence[Script],
        sandbox: Sandbox,
    ) -> None:
        self.folder = folder
        self.store = store
        self.clock = clock
        self.talk = ConversationHarness(store, clock, scripts, source="cron")
        self.model = self.talk.model
        self.bus = MemoryBus()
        self.delivery = FakeDelivery()
        self.default_model = ""
        self.forwarded: list[tuple[str, str]] = []
        self.forward_error: Exception | None = None
        self.service = self._service(store)
        self.sandbox = sandbox

    def _service(self, store: SqliteStore) -> JobService:
        return JobService(
            store=store,
            clock=self.clock,
            folder=self.folder / "cron",
            scripts=self.folder / "scripts",
            zone="UTC",
            check_deliver=lambda job: "",
            wake=self._wake,
            defaults=ModelDefaults("now", "testing"),
        )

    async def _forward(self, profile: str, item: QueueItem) -> None:
        if self.forward_error is not None:
            raise self.forward_error
        self.forwarded.append((profile, item.key))

    def _wake(self) -> bool:
        self.bus.wake(SCHEDULED_JOBS)
        return True

    async def create(self, schedule: str, prompt: str = "do it", **fields: object) -> Job:
        return await self.service.create(JobChange(schedule=schedule, prompt=prompt, **fields))  # type: ignore[arg-type]

    def worker(self, *, lock: str = ".tick.lock", parallel: int = 8) -> CronWorker:
        async def skill_text(name: str, session: str) -> str:
            return f"skill {name}"

        settings = FireSettings(
            profile="default",
            workspace=str(self.folder),
            keep=3,
            heartbeat=self.folder / HEARTBEAT_FILE,
            model=self.default_model,
        )
        runner = FireRunner(
            store=self.store,
            clock=self.clock,
            runner=self.talk.runner,
            service=self.service,
            scripts=ScriptRunner(
                sandbox=self.sandbox,
                env=lambda scope: {"PATH": "/usr/bin:/bin"},
                redact=str,
                folder=self.folder / "scripts",
            ),
            delivery=self.delivery,
            output=OutputFolder(self.folder / "cron" / "output", 3),
            skill_text=skill_text,
            tools_of=lambda names: names,
            settings=settings,
        )
        return CronWorker(
            store=self.store,
            clock=self.clock,
            bus=self.bus,
            service=self.service,
            scheduler=Scheduler(store=self.store, clock=self.clock, delivery=self.delivery),
            runner=runner,
            triggers=Triggers(store=self.store, clock=self.clock, worker=self.store.workers.own),
            bot_chat=BotChat(
                store=self.store,
                clock=self.clock,
                bus=self.bus,
                runner=self.talk.runner,
                forward=self._forward,
                settings=settings,
            ),
            tick_lock=FileLock(self.folder / "cron" / lock),
            folder=self.folder / "cron",
            foreground=self.talk.runner.foreground,
            parallel=parallel,
            start_interval=0.0,
        )

    @asynccontextmanager
    async def serving(self, *, lock: str = ".tick.lock") -> AsyncGenerator[CronWorker]:
        """Serve during the block, then end as a killed process does: without a word."""
        (self.folder / "cron").mkdir(exist_ok=True)
        worker = self.worker(lock=lock)
        async with anyio.create_task_group() as group:
            group.start_soon(worker.run)
            await wait_until_idle()
            yield worker
            group.cancel_scope.cancel()

    async def history(self, job: Job | None = None) -> list[Fire]:
        """The fires, oldest first."""
        found = await self.store.jobs.fires(job.id if job else None, 1000)
        return [*found][::-1]

    async def states(self, job: Job | None = None) -> list[str]:
        return [fire.state.value for fire in await self.history(job)]


@asynccontextmanager
async def cron_harness(
    folder: Path, *scripts: Script, clock: FakeClock | None = None, beats: bool = False
) -> AsyncGenerator[CronHarness]:
    """With `beats` the worker stays alive for others, at the cost of many wake-ups."""
    clock = clock or FakeClock()
    async with (
        open_store(folder / "hermes.db", clock) as store,
        heartbeat(store.workers, clock) if beats else nullcontext(),
    ):
        with Spawner() as spawner:
            yield CronHarness(folder, store, clock, scripts, LocalSandbox(spawner))
