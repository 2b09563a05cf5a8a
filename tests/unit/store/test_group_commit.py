"""Group commit: sharing a transaction, failing alone, and cancellation."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from contextvars import ContextVar
from datetime import timedelta
from pathlib import Path

import anyio
import apsw
import pytest
from msgspec import Raw

from hermes.ports.store import AppendMessage, ChangeSession, OpenSession, QueueItem, Write
from hermes.schema.errors import NotFound, StoreError
from hermes.schema.scope import OWNER
from hermes.schema.sessions import SessionChange, SessionFilter
from hermes.store.connection import Connection
from hermes.store.database_file import open_writer
from hermes.store.engine import MAX_WAITING_WRITES, READERS, Engine
from hermes.store.search_index import INDEX_ROWS
from hermes.store.sqlite import SEARCH_BATCHES, SqliteStore, open_store
from hermes.testing.clock import FakeClock
from hermes.testing.contracts.samples import session, user_message
from support.cli_process import TEST_TIMEOUT


@pytest.fixture
async def engine(path: Path) -> AsyncGenerator[Engine]:
    engine = Engine(open_writer(path), path)
    yield engine
    await engine.close()


@pytest.fixture
def store(engine: Engine, clock: FakeClock) -> SqliteStore:
    return SqliteStore(engine, clock)


async def test_readers_start_with_the_first_read(path: Path) -> None:
    before = {*threading.enumerate()}
    engine = Engine(open_writer(path), path)

    def readers() -> int:
        new = {*threading.enumerate()} - before
        return sum("reader" in thread.name for thread in new)

    await engine.write(lambda connection: connection.execute("SELECT 1").fetchall())
    assert readers() == 0
    for _ in range(3):
        await engine.read(lambda connection: connection.execute("SELECT 1").fetchall())
        assert readers() == READERS
    await engine.close()


async def test_readers_do_not_keep_the_context_of_the_first_read(engine: Engine) -> None:
    turn: ContextVar[str] = ContextVar("turn", default="")

    async def first_turn() -> None:
        turn.set("first")
        await engine.read(lambda _connection: None)

    async with anyio.create_task_group() as group:
        group.start_soon(first_turn)
    assert await engine.read(lambda _connection: turn.get()) == ""


class Gate:
    """Blocks the writer thread, so that later writes wait and share a transaction."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._open = threading.Event()
        self._entered = threading.Event()

    async def close(self, group: anyio.abc.TaskGroup) -> None:
        def hold(_connection: object) -> None:
            self._entered.set()
            self._open.wait()

        group.start_soon(self._engine.run_outside_transaction, hold)
        await anyio.to_thread.run_sync(self._entered.wait)

    def open(self) -> None:
        self._open.set()


async def settle() -> None:
    await anyio.wait_all_tasks_blocked()


async def test_waiting_writes_share_one_transaction(
    store: SqliteStore, clock: FakeClock, path: Path, engine: Engine
):
    seen: list[int] = []
    connection = apsw.Connection(str(path))

    def look() -> None:
        seen.append(connection.execute("SELECT count(*) FROM sessions").get)

    gate = Gate(engine)
    async with anyio.create_task_group() as group:
        await gate.close(group)

        async def write(number: int) -> None:
            await store.commit(OpenSession(session(clock, f"s{number}")))
            look()

        for number in range(20):
            group.start_soon(write, number)
        await settle()
        look()
        gate.open()
    assert seen[0] == 0
    assert set(seen[1:]) == {20}


async def test_failed_unit_does_not_affect_its_group(
    store: SqliteStore, clock: FakeClock, engine: Engine
):
    failed: list[int] = []
    gate = Gate(engine)

    async def write(number: int) -> None:
        extra: list[Write] = (
            [AppendMessage("nobody", "r", user_message("x"), clock.now())] if number % 3 else []
        )
        try:
            await store.commit(OpenSession(session(clock, f"s{number}")), *extra)
        except NotFound:
            failed.append(number)

    async with anyio.create_task_group() as group:
        await gate.close(group)
        for number in range(9):
            group.start_soon(write, number)
        await settle()
        gate.open()
    assert sorted(failed) == [1, 2, 4, 5, 7, 8]
    kept = await store.archive_for(OWNER).list(SessionFilter())
    assert {row.session.id for row in kept} == {"s0", "s3", "s6"}


async def test_cancelled_caller_does_no_harm(store: SqliteStore, clock: FakeClock, engine: Engine):
    gate = Gate(engine)
    async with anyio.create_task_group() as group:
        await gate.close(group)
        async with anyio.create_task_group() as leaving:
            leaving.start_soon(store.commit, OpenSession(session(clock, "left")))
            await settle()
            leaving.cancel_scope.cancel()
        group.start_soon(store.commit, OpenSession(session(clock, "stayed")))
        await settle()
        gate.open()
    kept = await store.archive_for(OWNER).list(SessionFilter())
    assert {row.session.id for row in kept} == {"left", "stayed"}


async def test_cancelled_claim_claims_nothing(store: SqliteStore, engine: Engine):
    await store.queues.put(QueueItem(key="k", queue="inbox", topic="s", body=Raw(b"1")))
    minute = timedelta(minutes=1)
    gate = Gate(engine)
    async with anyio.create_task_group() as group:
        await gate.close(group)
        async with anyio.create_task_group() as leaving:
            leaving.start_soon(store.queues.claim, "inbox", None, "gone", minute)
            leaving.start_soon(store.leases.hold, "s", "gone", minute)
            await settle()
            leaving.cancel_scope.cancel()
        gate.open()
    assert len(await store.queues.claim("inbox", None, "here", minute)) == 1
    assert await store.leases.hold("s", "here", minute) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("patient", "kept"), [(True, MAX_WAITING_WRITES + 50), (False, MAX_WAITING_WRITES)]
)
async def test_full_queue_blocks_callers(
    patient: bool, kept: int, engine: Engine, store: SqliteStore, clock: FakeClock
):
    gate = Gate(engine)
    async with anyio.create_task_group() as group:
        await gate.close(group)
        async with anyio.create_task_group() as askers:
            for number in range(MAX_WAITING_WRITES + 50):
                askers.start_soon(store.commit, OpenSession(session(clock, f"s{number}")))
            await settle()
            if patient:
                gate.open()
            else:
                askers.cancel_scope.cancel()
        gate.open()
    await store.commit(OpenSession(session(clock, "last")))
    assert (await store.maintenance.stats()).sessions == kept + 1


async def test_error_in_the_work_reaches_the_caller(
    store: SqliteStore, clock: FakeClock, engine: Engine
):
    def broken(_connection: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await engine.write(broken)
    await store.commit(OpenSession(session(clock, "s1")))


async def test_invalid_unicode_is_rejected(store: SqliteStore, clock: FakeClock):
    await store.commit(OpenSession(session(clock, "s1")))
    with pytest.raises(StoreError, match="Unicode"):
        await store.commit(ChangeSession("s1", SessionChange(title="\ud800")))
    with pytest.raises(StoreError, match="Unicode"):
        await store.archive_for(OWNER).get("\ud800")


async def test_lost_transaction_fails_its_whole_group(
    store: SqliteStore, clock: FakeClock, engine: Engine
):
    """Like a full disk: SQLite rolls back everything, and all callers get the error."""

    def lose(connection: apsw.Connection) -> None:
        connection.execute("ROLLBACK")
        raise apsw.FullError("database or disk is full")

    outcomes: dict[str, str] = {}
    gate = Gate(engine)

    async def attempt(name: str) -> None:
        try:
            if name == "full":
                await engine.write(lose)
            else:
                await store.commit(OpenSession(session(clock, name)))
            outcomes[name] = "kept"
        except StoreError as error:
            outcomes[name] = str(error)

    async with anyio.create_task_group() as group:
        await gate.close(group)
        for name in ("before", "full", "after"):
            group.start_soon(attempt, name)
            await settle()
        gate.open()
    assert all("disk is full" in text for text in outcomes.values()), outcomes
    assert list(await store.archive_for(OWNER).list(SessionFilter())) == []
    await store.commit(OpenSession(session(clock, "later")))


async def test_full_disk_raises_and_keeps_confirmed_writes(
    store: SqliteStore, clock: FakeClock, engine: Engine
):
    def limit(pages: int) -> Callable[[Connection], object]:
        return lambda connection: connection.execute(f"PRAGMA max_page_count = {pages}").fetchall()

    await store.commit(OpenSession(session(clock, "s1")))
    await engine.run_outside_transaction(limit(1))
    with pytest.raises(StoreError, match="disk is full") as caught:
        await store.commit(AppendMessage("s1", "r", user_message("long " * 100_000), clock.now()))
    assert caught.value.hint
    assert list(await store.archive_for(OWNER).messages("s1")) == []
    await engine.run_outside_transaction(limit(1_000_000))
    await store.commit(AppendMessage("s1", "r", user_message("short"), clock.now()))
    assert [row.seq for row in await store.archive_for(OWNER).messages("s1")] == [1]


@pytest.mark.slow
async def test_search_ends_during_continuous_writes(store: SqliteStore, clock: FakeClock):
    """It waits for messages from before it began only."""
    await store.commit(OpenSession(session(clock, "s1")))
    found = anyio.Event()
    written = 0

    async def keep_writing() -> None:
        nonlocal written
        while not found.is_set():
            await store.commit(AppendMessage("s1", "r", user_message("pear"), clock.now()))
            written += 1

    async with anyio.create_task_group() as group:
        for _ in range(8):
            group.start_soon(keep_writing)
        for _ in range(20):
            before = written
            result = await store.archive_for(OWNER).search("pear", limit=100_000)
            assert len(result.hits) + result.unindexed >= before
        found.set()


async def test_store_works_from_several_event_loops(path: Path, clock: FakeClock):
    async with open_store(path, clock) as store:
        await store.commit(OpenSession(session(clock, "s1")))

        async def append(loop: int) -> None:
            for number in range(20):
                await store.commit(
                    AppendMessage("s1", f"r{loop}", user_message(f"{number}"), clock.now())
                )
                await store.archive_for(OWNER).messages("s1")

        def on_a_loop_of_its_own(loop: int) -> None:
            asyncio.run(append(loop))

        async with anyio.create_task_group() as group:
            group.start_soon(append, 0)
            for loop in range(1, 4):
                group.start_soon(anyio.to_thread.run_sync, on_a_loop_of_its_own, loop)
        stored = await store.archive_for(OWNER).messages("s1")
    assert [row.seq for row in stored] == list(range(1, 81))
    assert {row.run for row in stored} == {"r0", "r1", "r2", "r3"}


async def test_dead_event_loop_does_not_affect_others(
    store: SqliteStore, clock: FakeClock, engine: Engine
):
    gate = Gate(engine)

    def die() -> None:
        async def ask() -> None:
            await store.commit(OpenSession(session(clock, "orphan")))

        loop = asyncio.new_event_loop()
        task = loop.create_task(ask())
        loop.call_later(0, loop.stop)
        loop.run_forever()
        task.cancel()
        loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        loop.close()

    async with anyio.create_task_group() as group:
        await gate.close(group)
        await anyio.to_thread.run_sync(die)
        group.start_soon(store.commit, OpenSession(session(clock, "s1")))
        await settle()
        gate.open()
    assert (await store.archive_for(OWNER).get("s1")).id == "s1"


async def test_dead_writer_fails_all_callers(
    path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture
):
    class Fatal(BaseException):
        pass

    def kill(_connection: object) -> None:
        raise Fatal

    engine = Engine(open_writer(path), path)
    store = SqliteStore(engine, clock)
    gate = Gate(engine)
    failed: list[str] = []

    async def attempt(name: str) -> None:
        try:
            if name == "kill":
                await engine.run_outside_transaction(kill)
            else:
                await store.commit(OpenSession(session(clock, name)))
        except StoreError as error:
            failed.append(str(error))

    async with anyio.create_task_group() as group:
        await gate.close(group)
        for name in ("kill", "one", "two"):
            group.start_soon(attempt, name)
            await settle()
        gate.open()
    assert len(failed) == 3
    assert "died" in caplog.text
    with pytest.raises(StoreError, match="stopped"):
        await store.commit(OpenSession(session(clock, "three")))
    await store.close()


async def test_closing_finishes_pending_writes(path: Path, clock: FakeClock):
    engine = Engine(open_writer(path), path)
    store = SqliteStore(engine, clock)
    gate = Gate(engine)
    async with anyio.create_task_group() as group:
        await gate.close(group)
        for number in range(10):
            group.start_soon(store.commit, OpenSession(session(clock, f"s{number}")))
        await settle()
        group.start_soon(store.close)
        await settle()
        gate.open()
    async with open_store(path, clock) as again:
        assert (await again.maintenance.stats()).sessions == 10


@pytest.mark.slow
async def test_search_of_a_large_backlog_is_partial(store: SqliteStore, clock: FakeClock):
    """It indexes a bounded number of batches, reads the newest messages, and says what is left."""
    archive = store.archive_for(OWNER)
    texts = [f"pear number{number}" for number in range(SEARCH_BATCHES * INDEX_ROWS + 6_000)]
    await store.commit(
        OpenSession(session(clock, "s1")),
        *(AppendMessage("s1", "r", user_message(text), clock.now()) for text in texts),
    )
    partial = await archive.search('"pear number13999"')
    assert [hit.seq for hit in partial.hits] == [len(texts)]
    assert 0 < partial.unindexed <= len(texts) - SEARCH_BATCHES * INDEX_ROWS
    assert "partial" in partial.note
    await store.maintenance.optimize()
    assert (await store.maintenance.index_state()).missing == 0
    complete = await archive.search("number9000")
    assert ([hit.seq for hit in complete.hits], complete.unindexed) == ([9_001], 0)
    assert complete.note == ""


async def test_index_is_completed_in_the_background(store: SqliteStore, clock: FakeClock):
    """Nobody searches; the writer uses its idle time."""
    texts = [f"pear {number}" for number in range(3 * INDEX_ROWS)]
    await store.commit(
        OpenSession(session(clock, "s1")),
        *(AppendMessage("s1", "r", user_message(text), clock.now()) for text in texts),
    )
    with anyio.fail_after(TEST_TIMEOUT):
        while (await store.maintenance.index_state()).missing:
            pass
