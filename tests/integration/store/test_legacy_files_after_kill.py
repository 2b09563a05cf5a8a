"""Processes that are killed while they rename or import a database: the next one continues."""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from hermes.ports.store import AppendMessage, OpenSession
from hermes.store.sqlite import open_store
from hermes.testing.clock import FakeClock
from hermes.testing.contracts.samples import session, user_message

PUBLIC = """
CREATE TABLE schema_version (version INTEGER NOT NULL);
CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT, started_at REAL);
CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id TEXT, role TEXT, content TEXT,
    timestamp REAL);
INSERT INTO sessions VALUES ('theirs', 'cli', 1);
"""

MOVE = """
import json, os, shutil, sys
import apsw
from pathlib import Path
from hermes.store.database_file import open_writer
from hermes.store.legacy_database import LegacyDatabase
from hermes.store.database_file import move_database

source, folder = Path(sys.argv[1]), Path(sys.argv[2])
CHANGES = {"os.link", "os.rename", "os.remove"}

def move(home, left):
    # Killed before the statement or the change of a name that comes after `left` others.
    def count(*_):
        nonlocal left
        left -= 1
        if left < 0:
            os._exit(9)
        return True
    if os.fork() == 0:
        apsw.connection_hooks.append(lambda connection: setattr(connection, "exec_trace", count))
        sys.addaudithook(lambda event, _: count() if event in CHANGES else None)
        move_database(home / "state.db", home / "hermes.db")
        os._exit(0)
    return os.waitstatus_to_exitcode(os.wait()[1])

step, code = 0, 9
while code:
    home = folder / str(step)
    shutil.copytree(source, home)
    code = move(home, step)
    assert code in (0, 9), code
    assert move(home, 10**6) == 0
    ours = open_writer(home / "hermes.db")
    position = ours.execute("SELECT last_session, last_message FROM legacy_import").fetchall()
    print(json.dumps({
        "files": sorted(file.name for file in home.iterdir() if "-" not in file.name),
        "sessions": ours.execute("SELECT count(*) FROM sessions").fetchall()[0][0],
        "position": position[0],
        "theirs": LegacyDatabase(home / "state.db").size(),
    }))
    ours.close()
    step += 1
"""

IMPORT = """
import os, sys
from pathlib import Path
import anyio
from hermes.kit.clock import SystemClock
from hermes.store.sqlite import open_store

home, pages = Path(sys.argv[1]), int(sys.argv[2])
reports = []

def report(done, total):
    reports.append(done)
    if len(reports) == pages:
        os._exit(9)

async def main():
    async with open_store(home / "hermes.db", SystemClock()) as store:
        await store.maintenance.import_legacy(home / "state.db", report)

anyio.run(main)
"""


def write_public(path: Path, messages: int) -> None:
    with closing(sqlite3.connect(path)) as old, old:
        old.executescript(PUBLIC)
        rows = [("theirs", "user", f"number {n}", float(n)) for n in range(messages)]
        insert = "INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, ?, ?, ?)"
        old.executemany(insert, rows)


async def write_adopted(home: Path) -> None:
    """As version 0.1.0 left it after adopting a database."""
    clock = FakeClock()
    async with open_store(home / "state.db", clock) as store:
        await store.commit(
            OpenSession(session(clock, "ours")),
            OpenSession(session(clock, "theirs")),
            AppendMessage("theirs", "adopted", user_message("hello", "msg_public_1"), clock.now()),
        )
    write_public(home / "state.db.public-1", 3)


@pytest.mark.slow
def test_killed_move_is_continued(tmp_path: Path) -> None:
    """Killed before each statement and each change of a name, until the move succeeds."""
    source, folder = tmp_path / "source", tmp_path / "homes"
    source.mkdir()
    folder.mkdir()
    anyio.run(write_adopted, source)
    command = [sys.executable, "-c", MOVE, str(source), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    ends = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(ends) > 15
    for end in ends:
        assert end == {
            "files": ["hermes.db", "state.db"],
            "sessions": 2,
            "position": [1, 3],
            "theirs": [1, 3],
        }


@pytest.mark.slow
@pytest.mark.parametrize("pages", [1, 2, 3])
def test_killed_import_is_continued(tmp_path: Path, pages: int) -> None:
    write_public(tmp_path / "state.db", 1_300)
    command = [sys.executable, "-c", IMPORT, str(tmp_path)]
    killed = subprocess.run([*command, str(pages)], check=False, timeout=60)
    assert killed.returncode == 9
    subprocess.run([*command, "0"], check=True, timeout=60)
    with closing(sqlite3.connect(tmp_path / "hermes.db")) as ours:
        found = ours.execute("SELECT count(*), count(DISTINCT body), max(seq) FROM messages")
        assert found.fetchone() == (1_300, 1_300, 1_300)
