"""Run a job now, or run the jobs that are due, for the surfaces."""

from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from hermes.cron.service import JobService
from hermes.ports.jobs import Fire

NOT_SERVED = "No gateway is running, so jobs do not run. Start it: hermes gateway start"


class CronOperation(Struct, frozen=True, kw_only=True):
    """`serving`: whether a gateway of this home runs the jobs. `work` runs what is due, once."""

    service: JobService
    serving: Callable[[], bool]
    work: Callable[[], Awaitable[Sequence[Fire]]] | None = None

    def not_serving(self) -> str:
        return "" if self.serving() else NOT_SERVED

    async def run_now(self, job: str) -> Fire:
        """Fire the job; without a gateway it runs here, and the fire returned has ended."""
        fire = await self.service.trigger(job)
        if self.serving() or self.work is None:
            return fire
        await self.work()
        return await self.service.fire(job, fire.at) or fire

    async def tick(self) -> Sequence[Fire]:
        """Run what is due now; nothing if a gateway does that."""
        if self.work is None or self.serving():
            return []
        return await self.work()
