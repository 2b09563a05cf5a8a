"""Opening the database file: creation, refusal and migration."""

import hashlib
from datetime import timedelta
from pathlib import Path

import apsw
import pytest

from hermes.ports.store import AppendMessage, OpenSession
from hermes.schema.errors import StoreCorrupt, StoreError
from hermes.schema.scope import OWNER, Role
from hermes.store.connection import migrations
from hermes.store.database_file import APPLICATION_ID, SCHEMA_VERSION
from hermes.store.sqlite import open_store
from hermes.testing.clock import FakeClock
from hermes.testing.contracts.samples import session, user_message

OLD_BODY = (
    '{"type":"letter","user":{"n":12345678901234567890,"text":"\\u00e9 \\"é\\" 🙂"}}'.encode()
)
NEW_BODY = OLD_BODY.replace(b"letter", b"message")


def create_database(path: Path, *statements: str) -> apsw.Connection:
    connection = apsw.Connection(str(path))
    for statement in statements:
        connection.execute(statement)
    return connection


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


async def test_new_file_is_private_and_durable(path: Path, clock: FakeClock):
    async with open_store(path, clock) as store:
        await store.commit(OpenSession(session(clock, "s1")))
        check = create_database(path)
        assert check.pragma("application_id") == APPLICATION_ID
        assert check.pragma("user_version") == migrations()[-1][0]
        assert check.pragma("journal_mode") == "wal"
        check.close()
        for file in (path, path.with_name("hermes.db-wal")):
            assert file.stat().st_mode & 0o777 == 0o600
    async with open_store(path, clock) as store:
        assert (await store.archive_for(OWNER).get("s1")).id == "s1"
    assert not path.with_name("hermes.db-wal").exists()


async def test_missing_folder_is_created(tmp_path: Path, clock: FakeClock):
    async with open_store(tmp_path / "a" / "b" / "hermes.db", clock):
        assert (tmp_path / "a" / "b" / "hermes.db").exists()


async def test_public_database_is_refused_and_untouched(path: Path, clock: FakeClock):
    create_database(
        path,
        "PRAGMA journal_mode = WAL",
        "CREATE TABLE sessions (id TEXT)",
        "CREATE TABLE messages (id INTEGER)",
        "CREATE TABLE schema_version (version INTEGER)",
    ).close()
    before = digest(path)
    with pytest.raises(StoreError, match="another program") as caught:
        async with open_store(path, clock):
            pass
    assert "mv " in caught.value.hint
    assert digest(path) == before


async def test_public_database_in_use_is_untouched(path: Path, clock: FakeClock):
    running = create_database(
        path,
        "PRAGMA journal_mode = WAL",
        "CREATE TABLE sessions (id TEXT)",
        "CREATE TABLE messages (id INTEGER)",
        "CREATE TABLE schema_version (version INTEGER)",
    )
    with pytest.raises(StoreError):
        async with open_store(path, clock):
            pass
    running.execute("INSERT INTO sessions VALUES ('x')")
    assert running.execute("SELECT count(*) FROM sessions").get == 1
    running.close()


async def test_database_of_another_program_is_refused(path: Path, clock: FakeClock):
    create_database(path, "CREATE TABLE cats (name TEXT)").close()
    before = digest(path)
    with pytest.raises(StoreError, match="another program"):
        async with open_store(path, clock):
            pass
    assert digest(path) == before


async def test_newer_schema_is_refused(path: Path, clock: FakeClock):
    async with open_store(path, clock):
        pass
    create_database(path, "PRAGMA user_version = 999").close()
    with pytest.raises(StoreError, match="999") as caught:
        async with open_store(path, clock):
            pass
    assert "Update" in caught.value.hint


async def test_other_file_is_refused(path: Path, clock: FakeClock):
    path.write_bytes(b"this is not a database at all, though long enough to be one" * 50)
    before = digest(path)
    with pytest.raises(StoreCorrupt) as caught:
        async with open_store(path, clock):
            pass
    assert caught.value.hint
    assert digest(path) == before


@pytest.mark.parametrize("left", [0, 1, 99, 100, 4096, 8192])
async def test_truncated_database_is_refused_and_kept(path: Path, clock: FakeClock, left: int):
    """As after a crash, a full disk or a broken copy."""
    async with open_store(path, clock) as store:
        await store.commit(OpenSession(session(clock, "s1")))
    path.write_bytes(path.read_bytes()[:left])
    before = digest(path)
    with pytest.raises(StoreCorrupt) as caught:
        async with open_store(path, clock):
            pass
    assert "restore a backup" in caught.value.hint
    assert digest(path) == before


@pytest.mark.parametrize("gone", [True, False])
async def test_journal_without_database_is_refused_and_kept(
    tmp_path: Path, path: Path, clock: FakeClock, gone: bool
):
    """SQLite would delete it, and the last changes with it."""
    away = tmp_path / "away"
    away.mkdir()
    journal = path.with_name("hermes.db-wal")
    async with open_store(path, clock) as store:
        await store.commit(OpenSession(session(clock, "s1")))
        copies = [(away / one.name, one.read_bytes()) for one in (path, journal)]
    for copy, data in copies:
        copy.write_bytes(data)
    lost, kept = away / "hermes.db", away / "hermes.db-wal"
    if gone:
        lost.unlink()
    else:
        lost.write_bytes(b"")
    before = digest(kept)
    with pytest.raises(StoreCorrupt):
        async with open_store(lost, clock):
            pass
    assert digest(kept) == before
    lost.write_bytes(copies[0][1])
    async with open_store(lost, clock) as store:
        assert (await store.archive_for(OWNER).get("s1")).id == "s1"


async def test_link_to_a_missing_database_keeps_its_journal(
    tmp_path: Path, path: Path, clock: FakeClock
):
    kept = tmp_path / "away.db-wal"
    kept.write_bytes(b"the last changes")
    path.symlink_to(tmp_path / "away.db")
    with pytest.raises(StoreCorrupt):
        async with open_store(path, clock):
            pass
    assert kept.read_bytes() == b"the last changes"


async def test_link_to_a_new_database_stays_a_link(tmp_path: Path, path: Path, clock: FakeClock):
    path.symlink_to(tmp_path / "new" / "away.db")
    async with open_store(path, clock) as store:
        await store.commit(OpenSession(session(clock, "s1")))
    assert path.is_symlink()
    assert [one.name for one in (tmp_path / "new").iterdir()] == ["away.db"]


async def test_creating_a_database_leaves_no_other_files(path: Path, clock: FakeClock):
    async with open_store(path, clock):
        pass
    assert [one.name for one in path.parent.iterdir()] == [path.name]


async def test_folder_is_refused(tmp_path: Path, clock: FakeClock):
    with pytest.raises(StoreError):
        async with open_store(tmp_path, clock):
            pass
    (tmp_path / "file").touch()
    with pytest.raises(StoreError):
        async with open_store(tmp_path / "file" / "hermes.db", clock):
            pass


async def test_nothing_is_written_after_damage(path: Path, clock: FakeClock):
    """SQLite reports the damage on a page that only the write needs."""
    async with open_store(path, clock) as store:
        await store.commit(OpenSession(session(clock, "s1")))
        breaker = create_database(path)
        breaker.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
        breaker.execute("PRAGMA writable_schema = ON")
        breaker.execute("UPDATE sqlite_schema SET rootpage = 9999 WHERE name = 'messages_place'")
        breaker.pragma("schema_version", breaker.pragma("schema_version") + 1)
        breaker.close()
        with pytest.raises(StoreCorrupt) as caught:
            await store.commit(AppendMessage("s1", "r", user_message("hello"), clock.now()))
        assert caught.value.hint
        with pytest.raises(StoreCorrupt):
            await store.commit(OpenSession(session(clock, "s2")))
        with pytest.raises(StoreCorrupt):
            await store.leases.release("s1", 1)


async def test_damage_found_by_a_reader_stops_the_writer(path: Path, clock: FakeClock):
    async with open_store(path, clock) as store:
        await store.commit(OpenSession(session(clock, "s1")))
        breaker = create_database(path)
        breaker.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
        breaker.execute("PRAGMA writable_schema = ON")
        breaker.execute("UPDATE sqlite_schema SET rootpage = 9999 WHERE name = 'model_usage'")
        breaker.pragma("schema_version", breaker.pragma("schema_version") + 1)
        breaker.close()
        with pytest.raises(StoreCorrupt):
            await store.archive_for(OWNER).usage()
        with pytest.raises(StoreCorrupt):
            await store.commit(OpenSession(session(clock, "s2")))


async def test_migrations_are_numbered_consecutively():
    assert [number for number, _ in migrations()] == list(range(1, SCHEMA_VERSION + 1))


async def test_closed_store_raises(path: Path, clock: FakeClock):
    async with open_store(path, clock) as store:
        pass
    with pytest.raises(StoreError, match="closed"):
        await store.commit(OpenSession(session(clock, "s1")))
    with pytest.raises(StoreError, match="closed"):
        await store.archive_for(OWNER).latest()
    await store.close()


async def test_older_schema_is_migrated(path: Path, clock: FakeClock):
    """A file of the second version, with a session in it."""
    old = create_database(
        path, *(script.read_text() for number, script in migrations() if number <= 2)
    )
    old.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    old.execute("PRAGMA user_version = 2")
    old.execute(
        "INSERT INTO sessions (id, started_at, source, principal, key, title, model, provider, cwd,"
        " end_reason, last_at) VALUES ('s1', 1, 'cli', 'owner', '', '', 'm', 'p', '/w', '', 1)"
    )
    old.close()
    async with open_store(path, clock) as store:
        found = await store.archive_for(OWNER).get("s1")
        assert (found.model, found.cwd, found.effort, found.personality) == ("m", "/w", "", "")


async def test_stored_names_are_migrated(path: Path, clock: FakeClock):
    """Queues and records of a file of version 0.1.0 are found under their plain names."""
    old = create_database(
        path, *(script.read_text() for number, script in migrations() if number <= 6)
    )
    old.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    old.execute("PRAGMA user_version = 6")
    queues = {
        "inbox": "inbox",
        "outbox:test": "outbox:test",
        "behind": "after_commands",
        "bubbles": "progress",
        "farewells:test": "final_edits:test",
        "refused": "rejected",
    }
    for name in queues:
        insert = "INSERT INTO parcels (key, lane, topic, body, attempts) VALUES (?, ?, 't', ?, 0)"
        old.execute(insert, (name, name, OLD_BODY))
    bodies = {
        "place": b'{"key":"k","address":{"channel":"c","chat":"1"},"role":"guest"}',
        "far_session": b"{}",
    }
    for kind, body in bodies.items():
        insert = "INSERT INTO matters VALUES (NULL, ?, 'id', 's', 'open', 1, ?, 1, '')"
        old.execute(insert, (kind, body))
    old.close()
    async with open_store(path, clock) as store:
        for name, plain in queues.items():
            (item,) = await store.queues.claim(plain, None, "me", timedelta(seconds=1))
            assert (item.key, item.queue, bytes(item.body)) == (name, plain, NEW_BODY)
        location = await store.chats.location("id")
        assert location is not None
        assert (location.key, location.role) == ("k", Role.GUEST)
        assert await store.runtime_sessions.get("proxy", "id") is not None
        assert list(await store.maintenance.integrity()) == []
