"""An unreadable row or failed idle work does not affect anything else."""

from contextlib import closing
from pathlib import Path

import anyio
import apsw
import pytest

from hermes.ports.store import AppendMessage, OpenSession
from hermes.schema.errors import StoreError
from hermes.schema.messages import text_of
from hermes.schema.scope import OWNER
from hermes.store.connection import Connection
from hermes.store.database_file import open_writer
from hermes.store.engine import Writer
from hermes.store.sqlite import SqliteStore, open_store
from hermes.testing.clock import FakeClock
from hermes.testing.contracts.samples import session, user_message

FROM_THE_FUTURE = b'{"type":"user","id":"z","parts":[{"type":"audio","x":"kumquat"}]}'
BODIES = [
    FROM_THE_FUTURE,
    b"",
    b"{",
    b'{"type":"user","id":"\xff","parts":[]}',
    b"[" * 100_000,
    "x",
]


async def fill(store: SqliteStore, clock: FakeClock) -> None:
    await store.commit(
        OpenSession(session(clock, "s1")),
        OpenSession(session(clock, "s2")),
        *(
            AppendMessage("s1", "r", user_message(f"kumquat {number}"), clock.now())
            for number in range(3)
        ),
        AppendMessage("s2", "r", user_message("kumquat elsewhere"), clock.now()),
    )


def corrupt_row(path: Path, seq: int, body: bytes | str, *, unindex: bool) -> None:
    with closing(apsw.Connection(str(path))) as raw:
        raw.execute("UPDATE messages SET body = ? WHERE session = 1 AND seq = ?", (body, seq))
        if unindex:
            raw.execute("DELETE FROM words; DELETE FROM grams; UPDATE index_state SET upto = 0")


async def test_tail_can_be_read_despite_earlier_damage(path: Path, clock: FakeClock) -> None:
    async with open_store(path, clock) as store:
        await fill(store, clock)
    corrupt_row(path, 1, b"{", unindex=False)
    async with open_store(path, clock) as store:
        tail = await store.archive_for(OWNER).tail("s1", 2, 10_000)
        assert [text_of(row.message) for row in tail.rows] == ["kumquat 1", "kumquat 2"]
        assert tail.more == 1
        with pytest.raises(StoreError):
            await store.archive_for(OWNER).tail("s1", 3, 10_000)


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
async def test_unreadable_row_blocks_neither_writes_nor_searches(
    path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture, body: bytes | str
):
    async with open_store(path, clock) as store:
        await fill(store, clock)
        await store.maintenance.optimize()
    corrupt_row(path, 2, body, unindex=True)
    async with open_store(path, clock) as store:
        archive = store.archive_for(OWNER)
        found = {hit.snippet for hit in (await archive.search("kumquat")).hits}
        assert found == {f">>>kumquat<<< {name}" for name in ("0", "2", "elsewhere")}
        assert "skipped a message in the search index" in caplog.text
        await store.commit(AppendMessage("s1", "r", user_message("a new kumquat"), clock.now()))
        assert len((await archive.search("kumquat")).hits) == 4
        assert len(await archive.messages("s2")) == 1
        with pytest.raises(StoreError):
            await archive.messages("s1")
        assert [row.seq for row in await archive.messages("s1", after=2)] == [3, 4]
        await store.maintenance.optimize()


async def test_error_names_the_row(store: SqliteStore, clock: FakeClock, path: Path):
    await fill(store, clock)
    corrupt_row(path, 2, FROM_THE_FUTURE, unindex=False)
    with pytest.raises(StoreError, match="Message 2 of session s1") as caught:
        await store.archive_for(OWNER).messages("s1")
    assert "update" in caught.value.hint


async def test_row_of_another_version_is_skipped_in_searches(
    store: SqliteStore, clock: FakeClock, path: Path
):
    await fill(store, clock)
    archive = store.archive_for(OWNER)
    assert len((await archive.search("kumquat")).hits) == 4
    corrupt_row(path, 2, FROM_THE_FUTURE, unindex=False)
    for query in ("kumquat", "umqua"):
        assert len((await archive.search(query)).hits) == 3, query


async def test_invalid_columns_raise_store_errors(store: SqliteStore, clock: FakeClock, path: Path):
    await fill(store, clock)
    with closing(apsw.Connection(str(path))) as raw:
        raw.execute("UPDATE sessions SET cwd = x'ff' WHERE id = 's1'")
        raw.execute("UPDATE sessions SET started_at = 9223372036854775807 WHERE id = 's2'")
    archive = store.archive_for(OWNER)
    with pytest.raises(StoreError, match="s1"):
        await archive.get("s1")
    with pytest.raises(StoreError, match="9223372036854775807"):
        await archive.get("s2")
    await store.commit(OpenSession(session(clock, "s3")))
    assert text_of((await archive.messages("s2"))[0].message) == "kumquat elsewhere"


class FaultyConnection:
    """A connection on which some statements raise unexpected errors."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._loop = anyio.lowlevel.current_token()
        self.failing = ""
        self.failed = anyio.Event()

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)

    def execute(self, statements: str, bindings: object = None) -> object:
        if self.failing and statements.startswith(self.failing):
            anyio.from_thread.run_sync(self.failed.set, token=self._loop)
            raise ZeroDivisionError
        return self._connection.execute(statements, bindings)


async def test_writer_survives_failed_idle_work(path: Path, caplog: pytest.LogCaptureFixture):
    connection = FaultyConnection(open_writer(path))
    connection.failing = "SELECT EXISTS (SELECT 1 FROM messages"
    writer = Writer(connection, path)
    await connection.failed.wait()
    await writer.mailbox.run(lambda _: None)
    await writer.close()
    assert f"indexing {path} failed" in caplog.text
    assert "died" not in caplog.text


async def test_writer_survives_a_failed_group(path: Path):
    connection = FaultyConnection(open_writer(path))
    writer = Writer(connection, path)
    connection.failing = "BEGIN IMMEDIATE"
    with pytest.raises(StoreError, match="could not be written"):
        await writer.mailbox.run(lambda _: None)
    connection.failing = ""
    assert await writer.mailbox.run(lambda _: 7) == 7
    await writer.close()
