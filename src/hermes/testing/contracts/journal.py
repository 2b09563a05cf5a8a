"""Contract of the run journal and the stored responses of a store."""

from datetime import timedelta

import msgspec
import pytest
from msgspec import Raw

from hermes.kit.ids import process_id
from hermes.ports.journal import (
    AppendRunEvents,
    RunEvent,
    RunRecord,
    RunStatus,
    SaveResponse,
    StoredResponse,
)
from hermes.ports.store import Fence, OpenSession, Store
from hermes.schema.errors import LeaseLost, NotFound, StoreError
from hermes.schema.scope import OWNER
from hermes.testing.clock import FakeClock
from hermes.testing.contracts.samples import append, session

DEAD_PROCESS = f"{process_id().rsplit('/', 1)[0]}/0/0"
"""Id of a process on this machine that has ended."""


def run_record(clock: FakeClock, run: str = "run_1", **more: str) -> RunRecord:
    default = RunRecord(
        run=run, session="s1", principal=OWNER, created=clock.now(), updated=clock.now()
    )
    return msgspec.structs.replace(default, **more)


def run_events(
    clock: FakeClock, run: str, *seqs: int, status: RunStatus | None = None
) -> AppendRunEvents:
    events = tuple(RunEvent(seq, Raw(b'{"n": %d }' % seq)) for seq in seqs)
    return AppendRunEvents(run=run, at=clock.now(), events=events, status=status)


async def event_numbers(store: Store, run: str, after: int = 0, limit: int = 100) -> list[int]:
    return [event.seq for event in await store.journal.events(run, after, limit)]


class JournalContract:
    async def test_opened_run_is_read_back_unchanged(self, store: Store, clock: FakeClock) -> None:
        opened = run_record(clock, holder="h", model="m", key="k", fingerprint="f")
        assert await store.journal.open(opened) == opened
        assert await store.journal.get("run_1", OWNER) == opened
        assert await event_numbers(store, "run_1") == []

    async def test_key_identifies_one_run_per_principal(
        self, store: Store, clock: FakeClock
    ) -> None:
        first = await store.journal.open(run_record(clock, key="k", fingerprint="f"))
        again = await store.journal.open(run_record(clock, "run_2", key="k", fingerprint="other"))
        assert again == first
        assert await store.journal.by_key("k", OWNER) == first
        for key, principal in (("k", "eve"), ("other", OWNER), ("", OWNER)):
            assert await store.journal.by_key(key, principal) is None
        with pytest.raises(NotFound):
            await store.journal.get("run_2", OWNER)
        other = await store.journal.open(run_record(clock, "run_3", key="k", principal="guest"))
        assert other.run == "run_3"
        for run in ("run_4", "run_5"):
            assert (await store.journal.open(run_record(clock, run))).run == run

    async def test_withdrawing_a_run_frees_its_key(self, store: Store, clock: FakeClock) -> None:
        await store.journal.open(run_record(clock, key="k"))
        await store.journal.withdraw("run_1")
        await store.journal.withdraw("unknown")
        again = await store.journal.open(run_record(clock, "run_2", key="k"))
        assert again.run == "run_2"
        await store.commit(run_events(clock, "run_2", 1, status=RunStatus.COMPLETED))
        await store.journal.withdraw("run_2")
        assert (await store.journal.get("run_2", OWNER)).status is RunStatus.COMPLETED

    async def test_opening_a_run_twice_is_an_error(self, store: Store, clock: FakeClock) -> None:
        await store.journal.open(run_record(clock))
        with pytest.raises(StoreError):
            await store.journal.open(run_record(clock))

    async def test_run_of_another_principal_is_not_found(
        self, store: Store, clock: FakeClock
    ) -> None:
        await store.journal.open(run_record(clock, principal="guest"))
        with pytest.raises(NotFound):
            await store.journal.get("run_1", "eve")
        assert (await store.journal.get("run_1", "guest")).principal == "guest"

    async def test_events_are_read_back_byte_for_byte_from_any_seq(
        self, store: Store, clock: FakeClock
    ) -> None:
        await store.journal.open(run_record(clock))
        await store.commit(run_events(clock, "run_1", 1, 2, 3))
        await store.commit(run_events(clock, "run_1", 4))
        await store.commit(run_events(clock, "run_1", 5, 6))
        for after in range(8):
            expected = list(range(after + 1, 7))
            assert await event_numbers(store, "run_1", after) == expected
        assert await event_numbers(store, "run_1", 1, limit=1) == [2, 3]
        assert await event_numbers(store, "run_1", 2**80) == []
        assert await event_numbers(store, "unknown") == []
        (last,) = await store.journal.events("run_1", 5)
        assert bytes(last.body) == b'{"n": 6 }'

    async def test_appended_events_update_the_run_record(
        self, store: Store, clock: FakeClock
    ) -> None:
        await store.journal.open(run_record(clock))
        await clock.advance(5)
        await store.commit(run_events(clock, "run_1", 1, 2, status=RunStatus.RUNNING))
        running = await store.journal.get("run_1", OWNER)
        assert (running.status, running.last_seq) == (RunStatus.RUNNING, 2)
        assert running.updated == clock.now()
        end = AppendRunEvents(
            run="run_1",
            at=clock.now(),
            events=(RunEvent(3, Raw(b"{}")),),
            status=RunStatus.COMPLETED,
            last_event="run.completed",
            result=Raw(b'{"output":"done"}'),
        )
        await store.commit(end)
        ended = await store.journal.get("run_1", OWNER)
        assert (ended.status, ended.last_seq) == (RunStatus.COMPLETED, 3)
        assert ended.last_event == "run.completed"
        assert ended.result is not None
        assert bytes(ended.result) == b'{"output":"done"}'

    async def test_events_after_the_end_are_ignored(self, store: Store, clock: FakeClock) -> None:
        await store.journal.open(run_record(clock))
        await store.commit(run_events(clock, "run_1", 1, status=RunStatus.FAILED))
        await store.commit(run_events(clock, "run_1", 2, status=RunStatus.COMPLETED))
        await store.commit(run_events(clock, "unknown", 1))
        assert (await store.journal.get("run_1", OWNER)).status is RunStatus.FAILED
        assert await event_numbers(store, "run_1") == [1]

    async def test_duplicate_events_are_stored_once(self, store: Store, clock: FakeClock) -> None:
        await store.journal.open(run_record(clock))
        for numbers in ((1, 2), (1, 2, 3), (2, 3), (3, 4)):
            await store.commit(run_events(clock, "run_1", *numbers))
        assert await event_numbers(store, "run_1") == [1, 2, 3, 4]
        assert await event_numbers(store, "run_1", 2) == [3, 4]

    async def test_gap_in_event_numbers_is_an_error(self, store: Store, clock: FakeClock) -> None:
        await store.journal.open(run_record(clock))
        with pytest.raises(StoreError):
            await store.commit(run_events(clock, "run_1", 1, 3))
        assert await event_numbers(store, "run_1") == []

    async def test_events_are_rolled_back_with_their_commit(
        self, store: Store, clock: FakeClock
    ) -> None:
        await store.journal.open(run_record(clock))
        with pytest.raises(LeaseLost):
            await store.commit(run_events(clock, "run_1", 1), fence=Fence("s1", 7))
        assert await event_numbers(store, "run_1") == []

    async def test_open_runs_of_dead_processes_are_abandoned(
        self, store: Store, clock: FakeClock
    ) -> None:
        await store.journal.open(run_record(clock, "run_1", holder=DEAD_PROCESS))
        await store.journal.open(run_record(clock, "run_2", holder=process_id()))
        await store.journal.open(run_record(clock, "run_3", holder=DEAD_PROCESS))
        await store.commit(run_events(clock, "run_3", 1, status=RunStatus.COMPLETED))
        assert [record.run for record in await store.journal.abandoned()] == ["run_1"]

    async def test_forget_deletes_only_ended_runs(self, store: Store, clock: FakeClock) -> None:
        for run in ("run_1", "run_2", "run_3"):
            await store.journal.open(run_record(clock, run))
            status = None if run == "run_1" else RunStatus.COMPLETED
            await store.commit(run_events(clock, run, 1, 2, 3, status=status))
            await clock.advance(60)
        before = clock.now() - timedelta(seconds=90)
        assert await store.journal.forget(before, 10**9) == 1
        assert await event_numbers(store, "run_2") == []
        assert await event_numbers(store, "run_3") == [1, 2, 3]
        assert await store.journal.forget(before, 1) == 1
        with pytest.raises(NotFound):
            await store.journal.get("run_3", OWNER)
        assert await event_numbers(store, "run_1") == [1, 2, 3]

    async def test_result_size_counts_toward_the_limit(
        self, store: Store, clock: FakeClock
    ) -> None:
        await store.journal.open(run_record(clock))
        result = Raw(b'"' + b"x" * 10_000 + b'"')
        end = AppendRunEvents(
            run="run_1", at=clock.now(), status=RunStatus.COMPLETED, result=result
        )
        await store.commit(end)
        long_ago = clock.now() - timedelta(days=1)
        assert await store.journal.forget(long_ago, 20_000) == 0
        assert await store.journal.forget(long_ago, 5_000) == 1

    async def test_deleting_a_session_deletes_its_runs_and_responses(
        self, store: Store, clock: FakeClock
    ) -> None:
        await store.commit(OpenSession(session(clock, "s1")))
        await store.journal.open(run_record(clock))
        await store.commit(run_events(clock, "run_1", 1), stored_response(clock))
        assert await store.archive_for(OWNER).delete(["s1"]) == 1
        for deleted in (store.journal.get("run_1", OWNER), store.responses.get("resp_1", OWNER)):
            with pytest.raises(NotFound):
                await deleted


def stored_response(clock: FakeClock, name: str = "resp_1", **more: str) -> SaveResponse:
    default = StoredResponse(
        id=name, principal=OWNER, session="s1", created=clock.now(), body=Raw(b'{"a": 1}'), seq=4
    )
    return SaveResponse(msgspec.structs.replace(default, **more))


class ResponsesContract:
    async def test_response_is_read_back_by_its_owner_only(
        self, store: Store, clock: FakeClock
    ) -> None:
        write = stored_response(clock, conversation="c", instructions="Be brief.")
        await store.commit(write)
        assert await store.responses.get("resp_1", OWNER) == write.response
        for name, principal in (("resp_1", "guest"), ("resp_2", OWNER)):
            with pytest.raises(NotFound):
                await store.responses.get(name, principal)

    async def test_response_without_seq_gets_the_last_seq_of_its_session(
        self, store: Store, clock: FakeClock
    ) -> None:
        messages = [append(clock, f"text {n}") for n in range(3)]
        response = msgspec.structs.replace(stored_response(clock).response, seq=0)
        await store.commit(OpenSession(session(clock, "s1")), *messages, SaveResponse(response))
        assert (await store.responses.get("resp_1", OWNER)).seq == 3
        await store.commit(append(clock, "more"), SaveResponse(response))
        assert (await store.responses.get("resp_1", OWNER)).seq == 4

    async def test_saving_the_same_id_replaces_only_own_response(
        self, store: Store, clock: FakeClock
    ) -> None:
        await store.commit(stored_response(clock, session="s1"))
        await store.commit(stored_response(clock, session="s2"))
        await store.commit(stored_response(clock, session="s3", principal="guest"))
        assert (await store.responses.get("resp_1", OWNER)).session == "s2"

    async def test_latest_response_of_a_conversation_is_found(
        self, store: Store, clock: FakeClock
    ) -> None:
        assert await store.responses.latest("c", OWNER) is None
        for name in ("resp_1", "resp_2"):
            await store.commit(stored_response(clock, name, conversation="c"))
        await store.commit(stored_response(clock, "resp_3", conversation="c", principal="guest"))
        await store.commit(stored_response(clock, "resp_4"))
        found = await store.responses.latest("c", OWNER)
        assert found is not None
        assert found.id == "resp_2"
        assert await store.responses.latest("", OWNER) is None

    async def test_response_is_deleted_by_its_owner_only(
        self, store: Store, clock: FakeClock
    ) -> None:
        await store.commit(stored_response(clock))
        assert not await store.responses.delete("resp_1", "guest")
        assert await store.responses.delete("resp_1", OWNER)
        assert not await store.responses.delete("resp_1", OWNER)

    async def test_old_and_excess_responses_are_forgotten(
        self, store: Store, clock: FakeClock
    ) -> None:
        for name in ("resp_1", "resp_2", "resp_3"):
            await store.commit(stored_response(clock, name))
            await clock.advance(60)
        assert await store.responses.forget(clock.now() - timedelta(seconds=150), 10**9) == 1
        assert await store.responses.forget(clock.now() - timedelta(hours=1), 8) == 1
        assert (await store.responses.get("resp_3", OWNER)).id == "resp_3"
