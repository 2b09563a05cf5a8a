"""Maintenance of the database file: backup, vacuum, integrity and locks."""

from datetime import timedelta
from pathlib import Path

import anyio
import apsw
import pytest
from msgspec import Raw

from hermes.ports.store import (
    AppendMessage,
    EnqueueItem,
    Intent,
    OpenSession,
    QueueItem,
    RecordIntent,
    RecordUsage,
)
from hermes.schema.errors import StoreError
from hermes.schema.messages import Usage
from hermes.schema.scope import OWNER
from hermes.schema.tools import Effect
from hermes.store.queues import ParkedItem
from hermes.store.sqlite import SqliteStore, open_store
from hermes.testing.clock import FakeClock
from hermes.testing.contracts.samples import session, user_message


def queue_item(key: str) -> QueueItem:
    return QueueItem(key=key, queue="outbox", topic="s", body=Raw(b"1"))


async def test_parked_items_are_listed(store: SqliteStore):
    await store.queues.put(queue_item("k1"))
    await store.queues.park("k1", "no such chat")
    assert await store.queues.parked("outbox") == [ParkedItem(queue_item("k1"), "no such chat")]
    assert await store.queues.parked("inbox") == []


async def test_deleted_session_leaves_nothing(store: SqliteStore, clock: FakeClock, path: Path):
    intent = Intent(
        call="c", session="s1", run="r", tool="t", effect=Effect.OUTSIDE, at=clock.now()
    )
    await store.commit(
        OpenSession(session(clock, "s1", system="be kind")),
        AppendMessage("s1", "r", user_message("pear"), clock.now()),
        RecordUsage("s1", "r", "m", "p", Usage(1), 0.5, clock.now()),
        RecordIntent(intent),
        EnqueueItem(QueueItem(key="k", queue="inbox", topic="s1", body=Raw(b"1"))),
    )
    await store.leases.hold("s1", "a", timedelta(minutes=1))
    await store.archive_for(OWNER).search("pear")
    await store.archive_for(OWNER).delete(["s1"])
    raw = apsw.Connection(str(path))
    for table in ("sessions", "prompts", "messages", "model_usage", "intents", "queue_items"):
        assert raw.execute(f"SELECT count(*) FROM {table}").get == 0, table  # noqa: S608
    assert raw.execute("SELECT count(*) FROM leases WHERE session = 's1'").get == 0
    raw.close()


async def test_backup_works_during_writes(store: SqliteStore, clock: FakeClock, tmp_path: Path):
    await store.commit(OpenSession(session(clock, "s1")))
    to = tmp_path / "backup.db"
    to.write_text("an older backup")

    async def keep_writing() -> None:
        for _ in range(50):
            await store.commit(AppendMessage("s1", "r", user_message("pear"), clock.now()))

    async with anyio.create_task_group() as group:
        group.start_soon(keep_writing)
        await store.maintenance.backup(to)
    assert to.stat().st_mode & 0o777 == 0o600
    assert not list(tmp_path.glob(".*"))
    async with open_store(to, clock) as copy:
        assert (await copy.archive_for(OWNER).get("s1")).id == "s1"
        assert list(await copy.maintenance.integrity()) == []


async def test_impossible_backup_raises(store: SqliteStore, path: Path, tmp_path: Path):
    with pytest.raises(StoreError):
        await store.maintenance.backup(path)
    with pytest.raises(StoreError):
        await store.maintenance.backup(tmp_path / "nowhere" / "backup.db")


async def test_vacuum_frees_space(store: SqliteStore, clock: FakeClock):
    for number in range(20):
        await store.commit(
            OpenSession(session(clock, f"s{number}")),
            *(
                AppendMessage(f"s{number}", "r", user_message("pear " * 500), clock.now())
                for _ in range(20)
            ),
        )
    await store.maintenance.optimize()
    before = await store.maintenance.stats()
    await store.archive_for(OWNER).delete([f"s{number}" for number in range(1, 20)])
    await store.maintenance.optimize()
    await store.maintenance.vacuum()
    after = await store.maintenance.stats()
    assert after.size < before.size / 3
    assert len((await store.archive_for(OWNER).search("pear", limit=50)).hits) == 20
    assert list(await store.maintenance.integrity()) == []


async def test_integrity_check_finds_damage(path: Path, clock: FakeClock):
    async with open_store(path, clock) as store:
        await store.commit(OpenSession(session(clock, "s1")))
    breaker = apsw.Connection(str(path))
    breaker.execute("PRAGMA foreign_keys = OFF")
    breaker.execute("INSERT INTO prompts VALUES (99, 'nobody')")
    breaker.close()
    async with open_store(path, clock) as store:
        assert list(await store.maintenance.integrity()) == ["prompts refers to missing rows"]


async def test_no_call_drops_file_locks(
    store: SqliteStore, clock: FakeClock, path: Path, tmp_path: Path
):
    """Opening the file without SQLite would drop this process's locks on it."""
    await store.commit(OpenSession(session(clock, "s1")))
    archive = store.archive_for(OWNER)
    await archive.latest()

    def locks() -> set[str]:
        inode = str(path.stat().st_ino)
        lines = Path("/proc/locks").read_text().splitlines()
        return {line.split(":", 1)[1] for line in lines if f":{inode} " in line}

    before = locks()
    assert before
    await store.commit(AppendMessage("s1", "r", user_message("pear"), clock.now()))
    await archive.search("pear")
    await store.maintenance.stats()
    await store.maintenance.integrity()
    await store.maintenance.backup(tmp_path / "copy.db")
    await store.maintenance.optimize()
    await store.maintenance.vacuum()
    assert before <= locks()
