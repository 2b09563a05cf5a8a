"""How turns without an answer ended is noted with its reason, short and for a while."""

from datetime import timedelta
from pathlib import Path

import pytest

from hermes.schema.events import Outcome, RunEnded
from hermes.schema.scope import Scope
from hermes.session.endings import KEPT, LONGEST, forget_old_ends, noted_end, noted_ends
from hermes.store.sqlite import open_store
from hermes.testing.clock import FakeClock

pytestmark = pytest.mark.anyio

SCOPE = Scope("default", "s1", "r1", "/w")


async def test_a_reason_is_cut_and_an_old_end_forgotten(tmp_path: Path) -> None:
    clock = FakeClock()
    page = "It failed. " + "x" * 1_000_000
    async with open_store(tmp_path / "state.db", clock) as store:
        failed = RunEnded("r1", Outcome.FAILED, page)
        await store.commit(*noted_end(SCOPE, failed, clock.now()))
        (reason,) = (await noted_ends(store, "s1")).values()
        assert reason.startswith("It failed. ")
        assert len(reason) < LONGEST + 100
        assert await forget_old_ends(store, clock.now() + KEPT) == 0
        assert await forget_old_ends(store, clock.now() + KEPT + timedelta(seconds=1)) == 1
        assert await noted_ends(store, "s1") == {}
