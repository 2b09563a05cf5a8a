"""A background process is recorded, watched and reported exactly once."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import anyio
import anyio.lowlevel
import msgspec
import pytest

from hermes.gateway.messages import BusyMode, read_inbox_message
from hermes.kit.failpoints import watch_failpoints
from hermes.kit.redact import Redactor
from hermes.ports.processes import BackgroundProcess, ProcessState
from hermes.ports.store import Fence, QueueItem, Write
from hermes.schema.errors import SandboxError, StoreError, ToolError
from hermes.schema.messages import Trust, User, text_of
from hermes.schema.scope import Address, Scope
from hermes.store.sqlite import SqliteStore
from hermes.testing.clock import FakeClock
from hermes.testing.memory_store import open_memory_store
from hermes.tools.processes.registry import ProcessRegistry
from support.fake_processes import FakeProcess, FakeSandbox, process_registry, process_request
from support.polling import pause

TERMINAL = Scope("default", "s-1", "run-1", "/work")
CHAT = Scope(
    "default", "s-2", "run-2", "/work", address=Address("fake", "7"), key="agent:main:fake:dm:7"
)
SILENT = Scope("default", "s-3", "run-3", "/work", later=False)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def sandbox() -> FakeSandbox:
    return FakeSandbox()


@pytest.fixture
async def store(tmp_path: Path, clock: FakeClock) -> AsyncIterator[SqliteStore]:
    async with open_memory_store(clock) as opened:
        yield opened


@pytest.fixture
async def registry(
    store: SqliteStore, clock: FakeClock, tmp_path: Path
) -> AsyncIterator[ProcessRegistry]:
    async with process_registry(store, clock, tmp_path) as opened:
        yield opened


async def inbox(store: SqliteStore, topic: str) -> list[QueueItem]:
    return list(await store.queues.claim("inbox", topic, "me", timedelta(0), 1000))


async def notices(store: SqliteStore, scope: Scope) -> list[str]:
    """The notices waiting for the conversation of a scope."""
    if scope.address is not None:
        return [text_of(read_inbox_message(row.body).user) for row in await inbox(store, scope.key)]
    rows = await inbox(store, scope.session)
    return [text_of(msgspec.json.decode(row.body, type=User)) for row in rows]


async def wait_ended(registry: ProcessRegistry, record: BackgroundProcess) -> BackgroundProcess:
    with anyio.fail_after(60):
        _, live = await registry.find(record.scope, record.id)
        assert live is not None
        await live.ended.wait()
    return live.record


async def row(store: SqliteStore, name: str) -> BackgroundProcess:
    process = await store.processes.get(name)
    assert process is not None
    return process


async def test_exit_closes_the_record_and_notifies_the_session(
    registry: ProcessRegistry, store: SqliteStore, sandbox: FakeSandbox
):
    record = await registry.start(process_request(sandbox, TERMINAL, "make all", notify=True))
    assert (record.id[:5], len(record.id), record.pid) == ("proc_", 17, 1000)
    assert (await row(store, record.id)).is_running
    sandbox.started[0].print_output("built\n")
    sandbox.started[0].exit(3)
    last = await wait_ended(registry, record)
    assert (last.state, last.exit_code, last.output) == (ProcessState.EXITED, 3, "built\n")
    assert await row(store, record.id) == last
    (text,) = await notices(store, TERMINAL)
    assert f"Background process {record.id} ended by itself (exit code 3)" in text
    assert "make all" in text
    assert "\nbuilt\n" in text
    assert str(last.log) in text


async def test_notice_says_whether_it_was_killed(
    registry: ProcessRegistry, store: SqliteStore, sandbox: FakeSandbox
):
    for code in (-9, 137):
        record = await registry.start(process_request(sandbox, TERMINAL, "make all", notify=True))
        sandbox.started[-1].exit(code)
        assert (await wait_ended(registry, record)).exit_code == 137
    killed, chosen = await notices(store, TERMINAL)
    assert " ended (exit code 137: killed, possibly out of memory (SIGKILL))." in killed
    assert " ended (exit code 137: the shell exited by itself; " in chosen


async def test_chat_notice_is_queued_in_the_inbox(
    registry: ProcessRegistry, store: SqliteStore, sandbox: FakeSandbox
):
    record = await registry.start(process_request(sandbox, CHAT, notify=True))
    sandbox.started[0].exit()
    await wait_ended(registry, record)
    (parcel,) = await inbox(store, CHAT.key)
    letter = read_inbox_message(parcel.body)
    assert (letter.address, letter.busy_mode) == (CHAT.address, BusyMode.COLLECT)
    assert letter.user.trust is Trust.DATA


@pytest.mark.parametrize(("scope", "notify"), [(TERMINAL, False), (SILENT, True)])
async def test_no_notice_without_a_deliverable_promise(
    registry: ProcessRegistry, store: SqliteStore, sandbox: FakeSandbox, scope: Scope, notify: bool
):
    record = await registry.start(process_request(sandbox, scope, notify=notify))
    sandbox.started[0].exit()
    await wait_ended(registry, record)
    assert await notices(store, scope) == []


@pytest.mark.parametrize("source", ["process kill", "/stop"])
async def test_requested_end_is_not_reported(
    registry: ProcessRegistry, store: SqliteStore, sandbox: FakeSandbox, source: str
):
    record = await registry.start(process_request(sandbox, TERMINAL, notify=True))
    _, live = await registry.find(TERMINAL, record.id)
    assert live is not None
    last = await registry.end(live, source)
    assert (last.state, last.source) == (ProcessState.KILLED, source)
    assert await registry.end(live, "again") == last
    assert await notices(store, TERMINAL) == []


async def test_failed_start_leaves_no_record(
    registry: ProcessRegistry, store: SqliteStore, sandbox: FakeSandbox
):
    with pytest.raises(SandboxError, match="could not be started"):
        await registry.start(process_request(sandbox, TERMINAL, "absent"))
    assert await store.processes.all() == []
    await registry.start(process_request(sandbox, TERMINAL))


async def test_sessions_see_only_their_own_processes(
    registry: ProcessRegistry, sandbox: FakeSandbox, store: SqliteStore
):
    mine = await registry.start(process_request(sandbox, TERMINAL))
    theirs = await registry.start(process_request(sandbox, CHAT))
    assert [one.id for one in await registry.list_for(TERMINAL)] == [mine.id]
    assert registry.running_in(TERMINAL) == 1
    with pytest.raises(ToolError, match="has no process"):
        await registry.find(TERMINAL, theirs.id)
    after_reset = msgspec.structs.replace(CHAT, session="s-9")
    assert [one.id for one in await registry.list_for(after_reset)] == [theirs.id]
    assert await registry.end_all(CHAT, "/stop") == 1
    assert [one.id for one in registry.running] == [mine.id]


async def test_number_of_processes_is_limited(
    store: SqliteStore, clock: FakeClock, tmp_path: Path, sandbox: FakeSandbox
):
    async with (
        process_registry(store, clock, tmp_path) as one,
        process_registry(store, clock, tmp_path) as other,
    ):
        for number in range(64):
            await (one, other)[number % 2].start(process_request(sandbox, TERMINAL))
        with pytest.raises(ToolError, match="64 background processes are already running"):
            await one.start(process_request(sandbox, TERMINAL))
        sandbox.started[0].exit()
        with anyio.fail_after(60):
            while len(one.running) == 32:
                await pause()
        await one.start(process_request(sandbox, TERMINAL))


async def test_ended_process_is_kept_for_half_an_hour(
    registry: ProcessRegistry, clock: FakeClock, sandbox: FakeSandbox
):
    record = await registry.start(process_request(sandbox, TERMINAL))
    sandbox.started[0].exit()
    await wait_ended(registry, record)
    await clock.advance(29 * 60)
    assert [one.id for one in await registry.list_for(TERMINAL)] == [record.id]
    await clock.advance(2 * 60)
    assert await registry.list_for(TERMINAL) == []


async def test_shutdown_ends_and_reports_all_processes(
    store: SqliteStore, clock: FakeClock, tmp_path: Path, sandbox: FakeSandbox
):
    async with process_registry(store, clock, tmp_path) as registry:
        record = await registry.start(process_request(sandbox, TERMINAL))
    last = await row(store, record.id)
    assert (last.state, last.source) == (ProcessState.KILLED, "Hermes was shut down")
    (text,) = await notices(store, TERMINAL)
    assert "was ended (Hermes was shut down)" in text


async def test_error_in_the_block_is_raised_unchanged(
    store: SqliteStore, clock: FakeClock, tmp_path: Path
):
    with pytest.raises(StoreError, match="as it is"):
        async with process_registry(store, clock, tmp_path):
            raise StoreError("as it is")


async def abandon(store: SqliteStore, name: str) -> None:
    """Leave a running process to a program that was killed."""
    host, boot, _, rest = store.workers.own.split("/", 3)
    values = {"id": name, "holder": f"{host}/{boot}/4194999/{rest}"}
    await store._engine.execute("UPDATE processes SET holder = :holder WHERE id = :id", values)


async def test_lost_process_is_reported_once(
    store: SqliteStore, clock: FakeClock, tmp_path: Path, sandbox: FakeSandbox
):
    async with process_registry(store, clock, tmp_path) as first:
        record = await first.start(process_request(sandbox, TERMINAL, "serve"))
        quiet = await first.start(process_request(sandbox, SILENT, "serve"))
        sandbox.started[0].print_output("listening\n")
        with anyio.fail_after(60):
            while not (tmp_path / "logs" / f"{record.id}.log").exists():
                await pause()
        await abandon(store, record.id)
        await abandon(store, quiet.id)
        async with (
            process_registry(store, clock, tmp_path) as second,
            process_registry(store, clock, tmp_path) as third,
        ):
            await second.recover()
            await third.recover()
            found, live = await second.find(TERMINAL, record.id)
            assert (found.state, live, found.output) == (ProcessState.LOST, None, "listening\n")
    (text,) = await notices(store, TERMINAL)
    assert "was lost: the program that ran it ended" in text
    assert "listening" in text
    assert await notices(store, SILENT) == []


async def test_secrets_are_redacted_in_record_and_report(
    store: SqliteStore, clock: FakeClock, tmp_path: Path, sandbox: FakeSandbox
):
    redact = Redactor(["canary-4711-secret"]).redact
    async with process_registry(store, clock, tmp_path, redact=redact) as registry:
        record = await registry.start(
            process_request(sandbox, TERMINAL, "echo canary-4711-secret", notify=True)
        )
        sandbox.started[0].print_output("canary-4711-secret\n")
        sandbox.started[0].exit()
        await wait_ended(registry, record)
    assert b"canary" not in msgspec.json.encode(await row(store, record.id))
    assert "canary" not in "".join(await notices(store, TERMINAL))
    assert "canary" not in (tmp_path / "logs" / f"{record.id}.log").read_text()


class FullDisk(SqliteStore):
    """Refuses some commits."""

    refuses = 0

    async def commit(self, *writes: Write, fence: Fence | None = None) -> None:
        if self.refuses:
            self.refuses -= 1
            raise StoreError("the disk is full")
        await super().commit(*writes, fence=fence)


class InterruptingStore(SqliteStore):
    """Cancels the caller while a commit is being written."""

    scope: anyio.CancelScope

    async def commit(self, *writes: Write, fence: Fence | None = None) -> None:
        self.scope.cancel()
        await super().commit(*writes, fence=fence)


async def test_interrupted_start_leaves_no_running_record(
    store: SqliteStore, clock: FakeClock, tmp_path: Path, sandbox: FakeSandbox
):
    interrupting = InterruptingStore(store._engine, clock)
    async with process_registry(interrupting, clock, tmp_path) as registry:
        with anyio.CancelScope() as interrupting.scope:
            await registry.start(process_request(sandbox, TERMINAL, notify=True))
        assert interrupting.scope.cancelled_caught
        assert registry.running == []
        (process,) = sandbox.started
        with anyio.fail_after(60):
            await process.wait()
        # The interrupted write has finished once a later one has.
        await store.leases.hold("s-1", "me", timedelta(minutes=1))
        # Also while the program runs, which never considers its own records lost.
        assert await store.processes.count_running() == 0
    assert await notices(store, TERMINAL) == [], "it was never reported"


async def test_full_disk_delays_but_keeps_the_report(
    store: SqliteStore, tmp_path: Path, sandbox: FakeSandbox
):
    clock = FakeClock(auto=True)
    full = FullDisk(store._engine, clock)
    async with process_registry(full, clock, tmp_path) as registry:
        record = await registry.start(process_request(sandbox, TERMINAL, notify=True))
        full.refuses = 3
        sandbox.started[0].exit()
        await wait_ended(registry, record)
    assert len(await notices(store, TERMINAL)) == 1
    assert len(clock.slept) == 3


async def test_no_process_without_a_record(
    store: SqliteStore, clock: FakeClock, tmp_path: Path, sandbox: FakeSandbox
):
    full = FullDisk(store._engine, clock)
    async with process_registry(full, clock, tmp_path) as registry:
        full.refuses = 1
        with pytest.raises(StoreError, match="full"):
            await registry.start(process_request(sandbox, TERMINAL))
        assert registry.running == []
    assert sandbox.started[0]._exit is not None


class WatchedProcess:
    def __init__(
        self, registry: ProcessRegistry, record: BackgroundProcess, process: FakeProcess
    ) -> None:
        self.registry = registry
        self.record = record
        self.process = process

    async def print_and_wait(self, text: str) -> BackgroundProcess:
        """Return the record once the output was processed."""
        self.process.print_output(text)
        with anyio.fail_after(60):
            await self.process.output_read.wait()
        _, live = await self.registry.find(self.record.scope, self.record.id)
        assert live is not None
        return live.record


async def test_matches_are_reported_until_there_are_too_many(
    registry: ProcessRegistry, store: SqliteStore, clock: FakeClock, sandbox: FakeSandbox
):
    record = await registry.start(process_request(sandbox, TERMINAL, watch=("READY",)))
    watched = WatchedProcess(registry, record, sandbox.started[0])
    assert (await watched.print_and_wait("nothing yet\n")).notices == 0
    assert (await watched.print_and_wait("READY now\n")).notices == 1
    assert (await watched.print_and_wait("READY again\n")).notices == 1
    await clock.advance(15)
    assert (await watched.print_and_wait("READY thirdly\n")).notices == 2
    await watched.print_and_wait("READY 4\n")
    await clock.advance(15)
    await watched.print_and_wait("READY 5\n")
    last = await watched.print_and_wait("READY 6\n")
    assert (last.notices, last.notify, last.watch) == (4, True, ())
    texts = await notices(store, TERMINAL)
    assert ["READY now" in texts[0], "READY thirdly" in texts[1]] == [True, True]
    assert "1 earlier matching lines" in texts[1]
    assert "the watch was ended" in texts[3]
    sandbox.started[0].exit()
    await wait_ended(registry, record)
    assert "ended by itself" in (await notices(store, TERMINAL))[-1]


async def test_record_and_report_are_one_commit(
    store: SqliteStore, clock: FakeClock, tmp_path: Path, sandbox: FakeSandbox
):
    seen: list[str] = []
    with watch_failpoints(seen.append):
        async with process_registry(store, clock, tmp_path) as registry:
            record = await registry.start(process_request(sandbox, TERMINAL, notify=True))
            sandbox.started[0].exit()
            await wait_ended(registry, record)
    ours = [name for name in seen if name.startswith("processes.")]
    assert ours == ["processes.exited", "processes.result_stored"]
