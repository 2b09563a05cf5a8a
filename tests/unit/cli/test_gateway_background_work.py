"""`gateway stop` lists the background work that it ends."""

from pathlib import Path

import anyio

from hermes.cli.verbs.gateway.status import background_goals
from hermes.config.home import Home
from hermes.ports.delegation import AddDelegation, Delegation, Task
from hermes.ports.store import OpenSession
from hermes.schema.scope import Scope
from hermes.schema.sessions import Session
from hermes.store.sqlite import open_store
from hermes.testing.clock import FakeClock


def work(name: str, goal: str, pid: int) -> AddDelegation:
    scope = Scope(profile="default", session="s", run="r", workspace="/w")
    holder = f"host/boot.1/{pid}/99"
    return AddDelegation(
        Delegation(id=name, scope=scope, tasks=(Task(goal=goal),), reports=(None,), holder=holder)
    )


def test_background_work_of_a_process_is_listed_by_goal(tmp_path: Path) -> None:
    home = Home(tmp_path, tmp_path)
    assert background_goals(home, 77) == ()

    async def fill() -> None:
        async with open_store(home.database, FakeClock()) as store:
            await store.commit(OpenSession(Session(id="s", started_at=FakeClock().now())))
            await store.commit(work("dlg_1", "Count the\nleaves", 77))
            await store.commit(work("dlg_2", "Somebody else's", 7))

    anyio.run(fill)
    assert background_goals(home, 77) == ["Count the leaves"]
