"""Our database gets its own name once, and the public system its file back."""

import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from anyio.to_thread import run_sync

from hermes.kit.clock import Clock
from hermes.ports.store import AppendMessage, OpenSession
from hermes.schema.errors import StoreCorrupt, StoreError, StoreLocked
from hermes.schema.scope import OWNER
from hermes.store.database_file import move_database
from hermes.store.sqlite import open_store
from hermes.testing.clock import FakeClock
from hermes.testing.contracts.samples import session, user_message

PUBLIC = """
CREATE TABLE schema_version (version INTEGER NOT NULL);
CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT, started_at REAL);
CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id TEXT, role TEXT, content TEXT,
    timestamp REAL);
INSERT INTO sessions VALUES ('theirs', 'cli', 1);
INSERT INTO messages VALUES (7, 'theirs', 'user', 'hello', 1), (9, 'theirs', 'user', 'you', 2);
"""
MOVE = """
import sys
from pathlib import Path
from hermes.store.database_file import open_writer
from hermes.store.database_file import move_database

home = Path(sys.argv[1])
sys.stdin.readline()
move_database(home / "state.db", home / "hermes.db")
with_sessions = open_writer(home / "hermes.db")
print(with_sessions.execute("SELECT count(*) FROM sessions").fetchall()[0][0])
with_sessions.close()
"""


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return tmp_path / "hermes.db"


async def write_ours(path: Path, clock: Clock) -> None:
    async with open_store(path, clock) as store:
        await store.commit(
            OpenSession(session(clock, "ours")),
            AppendMessage("ours", "r", user_message("hello"), clock.now()),
        )


def write_public(path: Path) -> None:
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute(PUBLIC)


async def import_database(old: Path, clock: Clock) -> Path:
    """Leave the files as version 0.1.0 did: imported messages, and the original set aside."""
    kept = old.with_name("state.db.public-1")
    await write_ours(old, clock)
    async with open_store(old, clock) as store:
        await store.commit(
            OpenSession(session(clock, "theirs")),
            AppendMessage("theirs", "adopted", user_message("hello", "msg_public_7"), clock.now()),
        )
    write_public(kept)
    return kept


def names(path: Path) -> set[str]:
    return {file.name for file in path.parent.iterdir()}


async def sessions(path: Path, clock: Clock) -> set[str]:
    async with open_store(path, clock) as store:
        found = await store.archive_for(OWNER).latest()
        assert found is not None
        raw = await store.maintenance.stats()
        assert raw.sessions
        return {found.id}


async def test_our_database_is_renamed(old: Path, new: Path, clock: FakeClock):
    await write_ours(old, clock)
    move_database(old, new)
    assert names(new) == {"hermes.db"}
    assert await sessions(new, clock) == {"ours"}
    move_database(old, new)
    assert names(new) == {"hermes.db"}


async def test_changes_in_the_journal_are_moved_too(
    tmp_path: Path, old: Path, new: Path, clock: FakeClock
):
    """As after a kill: the last commits are only in the journal."""
    source = tmp_path / "source.db"
    async with open_store(source, clock) as store:
        await store.commit(OpenSession(session(clock, "ours")))
        files = [(Path(f"{old}{end}"), Path(f"{source}{end}").read_bytes()) for end in ("", "-wal")]
    for file, data in files:
        file.write_bytes(data)
    source.unlink()
    move_database(old, new)
    assert names(new) == {"hermes.db"}
    assert await sessions(new, clock) == {"ours"}


async def test_original_gets_its_name_back_and_is_not_imported_again(
    old: Path, new: Path, clock: FakeClock
):
    kept = await import_database(old, clock)
    contents = kept.read_bytes()
    move_database(old, new)
    assert names(new) == {"hermes.db", "state.db"}
    assert old.read_bytes() == contents
    async with open_store(new, clock) as store:
        added = await store.maintenance.import_legacy(old, lambda _done, _total: None)
        assert (added.sessions, added.messages) == (0, 0)
        assert len(await store.archive_for(OWNER).messages("theirs")) == 1


async def test_other_file_set_aside_stays_there(old: Path, new: Path, clock: FakeClock):
    kept = await import_database(old, clock)
    other = kept.with_name("state.db.public-2")
    other.write_text("from long ago")
    move_database(old, new)
    assert names(new) == {"hermes.db", "state.db", "state.db.public-2"}


def link_both(old: Path, new: Path) -> None:
    new.hardlink_to(old)


def nothing(_old: Path, _new: Path) -> None:
    pass


@pytest.mark.parametrize("crashed_after", [nothing, link_both])
@pytest.mark.parametrize("adopted", [True, False])
async def test_interrupted_move_continues(
    old: Path, new: Path, clock: FakeClock, crashed_after: Callable[[Path, Path], None],
    adopted: bool,
):  # fmt: skip
    if adopted:
        await import_database(old, clock)
    else:
        await write_ours(old, clock)
    crashed_after(old, new)
    move_database(old, new)
    assert names(new) == ({"hermes.db", "state.db"} if adopted else {"hermes.db"})
    async with open_store(new, clock) as store:
        assert (await store.archive_for(OWNER).get("ours")).id == "ours"
        if adopted:
            added = await store.maintenance.import_legacy(old, lambda _done, _total: None)
            assert added.messages == 0


async def test_link_is_renamed(tmp_path: Path, old: Path, new: Path, clock: FakeClock):
    (tmp_path / "away").mkdir()
    target = tmp_path / "away" / "sessions.db"
    await write_ours(target, clock)
    old.symlink_to(target)
    move_database(old, new)
    assert names(new) == {"hermes.db", "away"}
    assert new.is_symlink()
    assert await sessions(new, clock) == {"ours"}


@pytest.mark.parametrize("reverse", [False, True])
async def test_link_between_the_names_is_kept(
    old: Path, new: Path, clock: FakeClock, reverse: bool
):
    target, link = (new, old) if reverse else (old, new)
    await write_ours(target, clock)
    link.symlink_to(target)
    move_database(old, new)
    assert names(new) == {"hermes.db", "state.db"}
    assert await sessions(new, clock) == {"ours"}


async def test_database_in_use_is_not_moved(old: Path, new: Path, clock: FakeClock):
    async with open_store(old, clock) as store:
        await store.commit(OpenSession(session(clock, "ours")))
        with pytest.raises(StoreLocked) as caught:
            move_database(old, new)
        assert "gateway stop" in caught.value.hint
        await store.commit(OpenSession(session(clock, "more")))
    move_database(old, new)
    assert names(new) == {"hermes.db"}


async def test_public_database_stays_where_it_is(old: Path, new: Path):
    write_public(old)
    before = old.read_bytes()
    move_database(old, new)
    assert names(new) == {"state.db"}
    assert old.read_bytes() == before


@pytest.mark.parametrize("contents", [b"", b"this is no database at all" * 100])
async def test_damaged_database_is_refused_and_kept(old: Path, new: Path, contents: bytes):
    """A new database must not hide that the old one is lost."""
    old.write_bytes(contents)
    with pytest.raises(StoreCorrupt):
        move_database(old, new)
    assert old.read_bytes() == contents


async def test_newer_database_is_refused(old: Path, new: Path, clock: FakeClock):
    await write_ours(old, clock)
    with closing(apsw.Connection(str(old))) as connection:
        connection.execute("PRAGMA user_version = 999")
    with pytest.raises(StoreError, match="999"):
        move_database(old, new)
    assert names(new) == {"state.db"}


@pytest.mark.slow
async def test_processes_that_start_together_move_it_once(
    tmp_path: Path, old: Path, new: Path, clock: FakeClock
):
    await import_database(old, clock)
    assert await run_sync(open_together, tmp_path) == ["2"] * 4
    assert names(new) == {"hermes.db", "state.db"}


def open_together(home: Path) -> list[str]:
    """How many sessions each of four processes finds."""
    command = [sys.executable, "-c", MOVE, str(home)]
    started = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    for process in started:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    return [process.communicate(timeout=60)[0].strip() for process in started]
