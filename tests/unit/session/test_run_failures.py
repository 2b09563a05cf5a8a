"""Reasons of failed runs are stored, shortened and pruned."""

from datetime import timedelta
from pathlib import Path

from hermes.schema.events import Outcome, RunEnded
from hermes.schema.scope import Scope
from hermes.session.recorder import (
    MAX_REASON,
    RETENTION,
    failure_reasons,
    failure_writes,
    prune_failures,
)
from hermes.testing.clock import FakeClock
from hermes.testing.memory_store import open_memory_store

SCOPE = Scope("default", "s1", "r1", "/w")


async def test_reason_is_cut_and_old_failures_are_pruned(tmp_path: Path) -> None:
    clock = FakeClock()
    page = "It failed. " + "x" * 1_000_000
    async with open_memory_store(clock) as store:
        failed = RunEnded("r1", Outcome.FAILED, page)
        await store.commit(*failure_writes(SCOPE, failed, clock.now()))
        (reason,) = (await failure_reasons(store, "s1")).values()
        assert reason.startswith("It failed. ")
        assert len(reason) < MAX_REASON + 100
        assert await prune_failures(store, clock.now() + RETENTION) == 0
        assert await prune_failures(store, clock.now() + RETENTION + timedelta(seconds=1)) == 1
        assert await failure_reasons(store, "s1") == {}
