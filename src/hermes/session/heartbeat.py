"""Keep this process alive among the workers of its store."""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from hermes.kit.clock import Clock
from hermes.kit.tasks import background_tasks
from hermes.ports.store import Workers
from hermes.schema.errors import StoreError

log = logging.getLogger(__name__)

BEATS = 3
"""Heartbeats within the time after which a worker counts as dead."""


@asynccontextmanager
async def heartbeat(workers: Workers, clock: Clock) -> AsyncGenerator[None]:
    """Beat during the block; costs nothing until a claim has registered this worker."""
    async with background_tasks() as group:
        group.start_soon(_beat, workers, clock)
        yield


async def _beat(workers: Workers, clock: Clock) -> None:
    while True:
        await clock.sleep(workers.ttl.total_seconds() / BEATS)
        try:
            in_time = await workers.beat()
        except StoreError as error:
            log.warning("the heartbeat could not be stored: %s", error)
            continue
        if not in_time:
            log.warning("the heartbeat was late: other processes may have taken over work of ours")
