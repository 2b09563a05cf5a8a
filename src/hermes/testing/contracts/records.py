"""Contracts of state records and blobs.

Subclass `RecordsContract` with the fixture `store`, `BlobsContract` with the fixture `blobs`.
"""

import hashlib
from datetime import UTC, datetime, timedelta

import pytest
from msgspec import Raw, structs

from hermes.kit.process_identity import process_id
from hermes.ports.records import PutRecord, StateRecord
from hermes.ports.store import Blobs, Store
from hermes.schema.errors import NotFound, StateConflict

AT = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
RECORD = StateRecord(
    kind="question", id="1", session="s", state="open", at=AT, body=Raw(b'{"a":1}')
)


def next_state(
    matter: StateRecord, state: str, *, is_open: bool = False, minutes: int = 1
) -> StateRecord:
    at = matter.at + timedelta(minutes=minutes)
    return structs.replace(matter, state=state, open=is_open, at=at)


class RecordsContract:
    async def test_record_is_read_back_unchanged(self, store: Store) -> None:
        record = structs.replace(RECORD, holder="someone", body=Raw(b'{"words":"\xc3\xa9\\n"}'))
        await store.commit(PutRecord(record, expected_state=""))
        found = await store.records.get("question", "1")
        assert found is not None
        assert bytes(found.body) == bytes(record.body)
        assert structs.replace(found, body=record.body) == record
        assert await store.records.get("question", "2") is None
        assert await store.records.get("grant", "1") is None

    async def test_creating_an_existing_record_is_a_conflict(self, store: Store) -> None:
        await store.commit(PutRecord(RECORD, expected_state=""))
        with pytest.raises(StateConflict):
            await store.commit(PutRecord(RECORD, expected_state=""))
        await store.commit(PutRecord(structs.replace(RECORD, kind="grant"), expected_state=""))

    async def test_second_transition_from_the_same_state_is_a_conflict(self, store: Store) -> None:
        await store.commit(PutRecord(RECORD, expected_state=""))
        await store.commit(PutRecord(next_state(RECORD, "answered"), expected_state="open"))
        with pytest.raises(StateConflict):
            await store.commit(PutRecord(next_state(RECORD, "lapsed"), expected_state="open"))
        found = await store.records.get("question", "1")
        assert found is not None
        assert (found.state, found.open) == ("answered", False)
        with pytest.raises(StateConflict):
            await store.commit(PutRecord(structs.replace(RECORD, id="2"), expected_state="open"))

    async def test_conflict_rolls_back_the_whole_commit(self, store: Store) -> None:
        await store.commit(PutRecord(RECORD, expected_state=""))
        other = structs.replace(RECORD, id="2")
        with pytest.raises(StateConflict):
            await store.commit(
                PutRecord(other, expected_state=""),
                PutRecord(next_state(RECORD, "x"), expected_state="gone"),
            )
        assert await store.records.get("question", "2") is None

    async def test_put_without_expected_state_overwrites(self, store: Store) -> None:
        await store.commit(PutRecord(RECORD))
        await store.commit(PutRecord(next_state(RECORD, "off")))
        found = await store.records.get("question", "1")
        assert found is not None
        assert found.state == "off"

    async def test_find_filters_by_session_and_open_state(self, store: Store) -> None:
        records = [
            structs.replace(RECORD, id=str(n), session="ab"[n % 2], at=AT + timedelta(minutes=n))
            for n in range(6)
        ]
        await store.commit(*(PutRecord(one, expected_state="") for one in records))
        await store.commit(
            PutRecord(structs.replace(records[4], state="x", open=False), expected_state="open")
        )

        async def ids(**filters: object) -> str:
            found = await store.records.find("question", **filters)  # pyright: ignore[reportArgumentType] - filters of several types
            return "".join(one.id for one in found)

        assert await ids() == "012345"
        assert await ids(session="a") == "024"
        assert await ids(only_open=True) == "01235"
        assert await ids(session="a", only_open=True) == "02"
        assert await ids(limit=2) == "45"
        assert list(await store.records.find("grant")) == []

    async def test_matching_filters_by_body_fields_and_state(self, store: Store) -> None:
        bodies = [b'{"kind":"a","by":"x"}', b'{"kind":"a","by":"y"}', b'{"kind":"b"}', b'"a"']
        records = [
            structs.replace(RECORD, id=str(n), body=Raw(body)) for n, body in enumerate(bodies)
        ]
        await store.commit(*(PutRecord(one, expected_state="") for one in records))
        await store.commit(
            PutRecord(structs.replace(records[1], state="x", open=False), expected_state="open")
        )

        async def ids(fields: dict[str, str], state: str | None = None, limit: int = 9) -> str:
            found = await store.records.matching("question", fields, state=state, limit=limit)
            return "".join(one.id for one in found)

        assert await ids({"kind": "a"}) == "01"
        assert await ids({"kind": "a"}, limit=1) == "1"
        assert await ids({"kind": "a"}, "open") == "0"
        assert await ids({"kind": "a", "by": "y"}) == "1"
        assert await ids({}) == "0123"
        assert await ids({}, "x") == "1"
        assert await ids({"kind": "it's"}) == ""

    async def test_records_of_dead_workers_are_abandoned(self, store: Store) -> None:
        host, boot, *_ = process_id().split("/")
        dead, elsewhere = f"{host}/{boot}/1/0", "elsewhere/x/1/2"
        holders = (process_id(), dead, "", elsewhere, store.workers.own)
        for number, holder in enumerate(holders):
            record = structs.replace(RECORD, id=str(number), holder=holder)
            await store.commit(PutRecord(record, expected_state=""))
        abandoned = await store.records.abandoned("question")
        assert [record.id for record in abandoned] == ["1", "2", "3"]

    async def test_forget_deletes_old_closed_records(self, store: Store) -> None:
        old = structs.replace(RECORD, id="2", open=False, state="lapsed")
        recent = structs.replace(old, id="3", at=AT + timedelta(hours=2))
        await store.commit(*(PutRecord(one, expected_state="") for one in (RECORD, old, recent)))
        assert await store.records.forget("question", AT + timedelta(hours=1)) == 1
        assert [one.id for one in await store.records.find("question")] == ["1", "3"]


class BlobsContract:
    @pytest.mark.parametrize("data", [b"", b"\x00\xff", b"x" * 1_000_000])
    async def test_stored_bytes_are_read_by_digest(self, blobs: Blobs, data: bytes) -> None:
        media = await blobs.put(data, "image/png", "a.png")
        assert media.digest == hashlib.sha256(data).hexdigest()
        assert (media.media_type, media.name) == ("image/png", "a.png")
        assert await blobs.read(media.digest) == data

    async def test_identical_bytes_share_a_digest(self, blobs: Blobs) -> None:
        first = await blobs.put(b"same", "text/plain", "one.txt")
        second = await blobs.put(b"same", "application/pdf", "two.pdf")
        assert first.digest == second.digest
        assert await blobs.read(first.digest) == b"same"

    @pytest.mark.parametrize(
        "digest",
        [
            "",
            "0" * 64,
            "../../etc/passwd",
            "/etc/passwd",
            "0" * 63 + "/",
            "0" * 62 + "..",
            "A" * 64,
            "\x00" * 64,
            "\u0660" * 64,
            "0" * 64 + "\n",
            "0" * 65,
        ],
    )
    async def test_invalid_or_unknown_digest_is_not_found(self, blobs: Blobs, digest: str) -> None:
        with pytest.raises(NotFound):
            await blobs.read(digest)
