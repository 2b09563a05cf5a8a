"""Several processes on one database, some killed: confirmed writes survive."""

import logging
import random
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import anyio
from anyio.streams.buffered import BufferedByteReceiveStream

from hermes.ports.store import OpenSession
from hermes.schema.messages import text_of
from hermes.schema.scope import OWNER
from hermes.schema.sessions import SessionFilter
from hermes.store.sqlite import open_store
from hermes.testing.clock import FakeClock
from hermes.testing.contracts.samples import session
from support.cli_process import TEST_TIMEOUT
from support.preloaded_python import run_python

WRITER = """
import sys
from pathlib import Path
import anyio
from hermes.kit.clock import SystemClock
from hermes.ports.store import AppendMessage, OpenSession
from hermes.schema.messages import Text, User
from hermes.schema.sessions import Session
from hermes.store.sqlite import open_store

async def main(path, name, total):
    clock = SystemClock()
    async with open_store(Path(path), clock) as store:
        session = f"{name}"
        await store.commit(OpenSession(Session(id=session, started_at=clock.now())))
        async def write(lane):
            for number in range(int(total)):
                mark = f"{name}x{lane}x{number}"
                message = User(mark, (Text(f"the mark {mark}"),))
                await store.commit(AppendMessage(session, "run", message, clock.now()))
                sys.stdout.write(mark + "\\n")
                sys.stdout.flush()
        async with anyio.create_task_group() as group:
            for lane in range(4):
                group.start_soon(write, lane)

anyio.run(main, *sys.argv[1:])
"""

MIGRATION = """
import os, sys
import apsw
from pathlib import Path
from hermes.store.database_file import open_writer

left = int(sys.argv[2])

def count(cursor, statement, bindings):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), 9)
    return True

apsw.connection_hooks.append(lambda connection: setattr(connection, "exec_trace", count))
open_writer(Path(sys.argv[1])).close()
print("opened")
"""


HOLDER = """
import sys
import apsw

connection = apsw.Connection(sys.argv[1])
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.readline()
connection.execute("ROLLBACK")
"""


class WarningRecorder(logging.Handler):
    def __init__(self, event: threading.Event) -> None:
        super().__init__(logging.WARNING)
        self._event = event

    def emit(self, record: logging.LogRecord) -> None:
        if "locked by another process" in record.getMessage():
            self._event.set()


class Writer:
    def __init__(self, path: Path, name: str, total: int) -> None:
        command = [sys.executable, "-c", WRITER, str(path), name, str(total)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.confirmed: list[str] = []

    def watch(self, kill_after: int | None) -> None:
        stdout = self._process.stdout
        assert stdout is not None
        for line in stdout:
            if not line.endswith("\n"):
                break
            self.confirmed.append(line.strip())
            if len(self.confirmed) == kill_after:
                self._process.kill()
        self._process.wait(60)
        stdout.close()

    @property
    def exit_code(self) -> int | None:
        return self._process.returncode


async def test_confirmed_writes_survive_killed_processes(tmp_path: Path):
    path = tmp_path / "hermes.db"
    chance = random.Random(5)  # noqa: S311 - which marks to look at, not a secret
    kills = [None, chance.randrange(20, 200), None, chance.randrange(20, 200)]
    # Processes to be killed write endlessly, so that the kill always interrupts them.
    writers = [Writer(path, f"p{n}", 1_000_000 if kill else 60) for n, kill in enumerate(kills)]
    async with anyio.create_task_group() as group:
        for writer, kill in zip(writers, kills, strict=True):
            group.start_soon(anyio.to_thread.run_sync, writer.watch, kill)
    assert [writer.exit_code for writer in writers] == [0, -9, 0, -9]
    async with open_store(path, FakeClock()) as store:
        assert list(await store.maintenance.integrity()) == []
        archive = store.archive_for(OWNER)
        for number, writer in enumerate(writers):
            stored = await archive.messages(f"p{number}")
            kept = {text_of(row.message).removeprefix("the mark ") for row in stored}
            assert set(writer.confirmed) <= kept
            assert [row.seq for row in stored] == list(range(1, len(stored) + 1))
            (digest,) = (
                row for row in await archive.list(SessionFilter()) if row.session.id == f"p{number}"
            )
            assert digest.messages == len(stored)
            for mark in chance.sample(writer.confirmed, 5):
                assert len((await archive.search(f'"{mark}"')).hits) == 1


async def test_killed_migration_leaves_the_old_or_new_schema(tmp_path: Path):
    """Allow one more statement each time, until opening succeeds."""
    opened = False
    statement = 0
    while not opened:
        path = tmp_path / f"state-{statement}.db"
        command = ["-c", MIGRATION, str(path), str(statement)]
        start = partial(run_python, command, env={}, timeout=TEST_TIMEOUT)
        done = await anyio.to_thread.run_sync(start)
        opened = done.returncode == 0
        async with open_store(path, FakeClock()) as store:
            assert list(await store.maintenance.integrity()) == []
            assert (await store.maintenance.stats()).sessions == 0
        statement += 1
    assert statement > 30


async def test_write_waits_for_another_process(tmp_path: Path):
    """Longer than SQLite itself would wait: the writer retries and logs it."""
    path = tmp_path / "hermes.db"
    clock = FakeClock()
    warned = threading.Event()
    log = logging.getLogger("hermes.store.connection")
    handler = WarningRecorder(warned)
    log.addHandler(handler)
    try:
        async with (
            open_store(path, clock) as store,
            await anyio.open_process([sys.executable, "-c", HOLDER, str(path)]) as holder,
            anyio.create_task_group() as group,
        ):
            assert holder.stdout is not None
            assert holder.stdin is not None
            output = BufferedByteReceiveStream(holder.stdout)
            assert await output.receive_exactly(5) == b"held\n"
            group.start_soon(store.commit, OpenSession(session(clock, "s1")))
            assert await anyio.to_thread.run_sync(warned.wait, 60)
            assert await store.archive_for(OWNER).latest() is None
            await holder.stdin.send(b"let go\n")
            with anyio.fail_after(60):
                await holder.wait()
        async with open_store(path, clock) as store:
            assert (await store.archive_for(OWNER).get("s1")).id == "s1"
    finally:
        log.removeHandler(handler)


async def test_many_processes_can_create_the_same_file(tmp_path: Path):
    path = tmp_path / "hermes.db"
    codes: list[int] = []

    async def start() -> None:
        command = [sys.executable, "-c", MIGRATION, str(path), "100000"]
        done = await anyio.run_process(command, check=False)
        codes.append(done.returncode)

    async with anyio.create_task_group() as group:
        for _ in range(6):
            group.start_soon(start)
    assert codes == [0] * 6
