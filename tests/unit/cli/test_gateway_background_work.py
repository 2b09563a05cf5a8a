"""`gateway stop` lists the background work that it ends."""

from pathlib import Path

import anyio
import msgspec
from msgspec import Raw

from hermes.cli.verbs.gateway.status import background_goals
from hermes.config.home import Home
from hermes.ports.delegation import Task
from hermes.ports.records import PutRecord, StateRecord
from hermes.ports.store import OpenSession
from hermes.schema.scope import Scope
from hermes.schema.sessions import Session
from hermes.store.sqlite import open_store
from hermes.subagents.delegations import KIND, RUNNING, Delegation
from hermes.testing.clock import FakeClock


def work(name: str, goal: str, pid: int, *, is_open: bool = True) -> PutRecord:
    scope = Scope(profile="default", session="s", run="r", workspace="/w")
    body = Delegation(id=name, scope=scope, tasks=(Task(goal=goal),), reports=(None,))
    matter = StateRecord(
        kind=KIND,
        id=name,
        session="s",
        state=RUNNING,
        at=FakeClock().now(),
        body=Raw(msgspec.json.encode(body)),
        open=is_open,
        holder=f"host/boot.1/{pid}/99",
    )
    return PutRecord(matter, expected_state="")


def test_background_work_of_a_process_is_listed_by_goal(tmp_path: Path) -> None:
    home = Home(tmp_path, tmp_path)
    assert background_goals(home, 77) == ()

    async def fill() -> None:
        async with open_store(home.database, FakeClock()) as store:
            await store.commit(OpenSession(Session(id="s", started_at=FakeClock().now())))
            await store.commit(work("dlg_1", "Count the\nleaves", 77))
            await store.commit(work("dlg_2", "Somebody else's", 7))
            await store.commit(work("dlg_3", "Done long ago", 77, is_open=False))

    anyio.run(fill)
    assert background_goals(home, 77) == ["Count the leaves"]
