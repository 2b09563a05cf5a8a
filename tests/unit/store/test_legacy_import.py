"""Importing the public system's database: complete, repeatable, and without changing it."""

import hashlib
import json
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import anyio
import apsw
import pytest

from hermes.ports.maintenance import ImportCounts
from hermes.schema.errors import StoreError
from hermes.schema.messages import Assistant, Reasoning, Result, Stop, Text, Usage, User
from hermes.schema.scope import OWNER
from hermes.schema.sessions import ModelUsage, SessionFilter
from hermes.store.legacy_import import PAGE_ROWS
from hermes.store.sqlite import SqliteStore, open_store
from hermes.testing.clock import FakeClock

SCHEMA = """
CREATE TABLE schema_version (version INTEGER NOT NULL);
INSERT INTO schema_version VALUES (22);
CREATE TABLE sessions (
    id TEXT PRIMARY KEY, source TEXT NOT NULL, user_id TEXT, session_key TEXT, model TEXT,
    system_prompt TEXT, parent_session_id TEXT REFERENCES sessions (id), started_at REAL NOT NULL,
    ended_at REAL, end_reason TEXT, message_count INTEGER DEFAULT 0, input_tokens INTEGER DEFAULT 0,
    output_tokens INTEGER DEFAULT 0, cache_read_tokens INTEGER DEFAULT 0,
    cache_write_tokens INTEGER DEFAULT 0, reasoning_tokens INTEGER DEFAULT 0, cwd TEXT,
    billing_provider TEXT, estimated_cost_usd REAL, actual_cost_usd REAL, cost_status TEXT,
    title TEXT, api_call_count INTEGER DEFAULT 0, some_later_column TEXT
);
CREATE TABLE messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, role TEXT NOT NULL,
    content TEXT, tool_call_id TEXT, tool_calls TEXT, tool_name TEXT, timestamp REAL NOT NULL,
    token_count INTEGER, finish_reason TEXT, reasoning TEXT, reasoning_content TEXT,
    active INTEGER NOT NULL DEFAULT 1, compacted INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE session_model_usage (
    session_id TEXT NOT NULL, model TEXT NOT NULL, billing_provider TEXT NOT NULL DEFAULT '',
    task TEXT NOT NULL DEFAULT '', api_call_count INTEGER DEFAULT 0,
    input_tokens INTEGER DEFAULT 0, output_tokens INTEGER DEFAULT 0,
    cache_read_tokens INTEGER DEFAULT 0, cache_write_tokens INTEGER DEFAULT 0,
    reasoning_tokens INTEGER DEFAULT 0, estimated_cost_usd REAL DEFAULT 0,
    actual_cost_usd REAL DEFAULT 0, cost_status TEXT
);
"""
START = 1_769_860_800.25
CALLS = [
    {"id": "c1", "type": "function", "function": {"name": "terminal", "arguments": '{"a" : 1 }'}},
    {"id": "c2", "type": "function", "function": {"name": "patch", "arguments": '{"cut of'}},
]


def insert(old: apsw.Connection, table: str, **values: object) -> None:
    names = ", ".join(values)
    marks = ", ".join("?" * len(values))
    old.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(values.values()))  # noqa: S608


def say(old: apsw.Connection, session: str, role: str, content: str | None, **more: object) -> None:
    insert(old, "messages", session_id=session, role=role, content=content, timestamp=START, **more)


class Progress:
    """Remembers every report."""

    def __init__(self) -> None:
        self.reports: list[tuple[int, int]] = []

    def __call__(self, done: int, total: int) -> None:
        self.reports.append((done, total))


@pytest.fixture
def public(tmp_path: Path) -> Path:
    path = tmp_path / "state.db"
    old = apsw.Connection(str(path))
    old.execute("PRAGMA journal_mode = WAL")
    old.execute(SCHEMA)
    insert(
        old,
        "sessions",
        id="20260131_120000_aaaaaa",
        source="cli",
        model="gpt",
        billing_provider="openai",
        system_prompt="You are old.",
        started_at=START,
        ended_at=START + 60,
        end_reason="agent_close",
        cwd="/w",
        title="Old plans",
        api_call_count=9,
    )
    insert(
        old,
        "sessions",
        id="20260131_120000_bbbbbb",
        source="telegram",
        user_id="7",
        session_key="agent:main:telegram:dm:7",
        parent_session_id="20260131_120000_aaaaaa",
        started_at=START + 1,
        api_call_count=2,
        input_tokens=5,
        output_tokens=1,
    )
    insert(old, "sessions", id="early", source="cli", started_at=1.0, parent_session_id="gone")
    first = "20260131_120000_aaaaaa"
    say(old, first, "user", "forgotten kumquat", active=0, compacted=1)
    say(old, first, "user", "undone kumquat", active=0, compacted=0)
    say(old, first, "user", "live kumquat")
    say(
        old,
        first,
        "assistant",
        None,
        tool_calls=json.dumps(CALLS),
        reasoning="hm",
        finish_reason="tool_calls",
    )
    say(old, first, "tool", "done", tool_call_id="c1", tool_name="terminal")
    say(old, first, "assistant", "That is all.", finish_reason="stop")
    image = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "x"}}]
    say(old, "20260131_120000_bbbbbb", "user", "\x00json:" + json.dumps(image))
    say(old, "20260131_120000_bbbbbb", "system", "be kind")
    say(old, "orphan", "user", "nobody knows me")
    insert(
        old,
        "session_model_usage",
        session_id=first,
        model="gpt",
        billing_provider="openai",
        api_call_count=3,
        input_tokens=10,
        output_tokens=4,
        cache_read_tokens=90,
        estimated_cost_usd=0.5,
        cost_status="estimated",
    )
    old.close()
    return path


async def import_from(store: SqliteStore, public: Path) -> ImportCounts:
    return await store.maintenance.import_legacy(public, Progress())


def digests(folder: Path) -> dict[str, str]:
    """The contents of the public system's files."""
    files = folder.glob("state.db*")
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


async def test_everything_is_imported(public: Path, store: SqliteStore):
    assert await import_from(store, public) == ImportCounts(sessions=4, messages=8)
    archive = store.archive_for(OWNER)
    first = await archive.get("20260131_120000_aaaaaa")
    assert first.system == "You are old."
    assert (first.title, first.model, first.provider) == ("Old plans", "gpt", "openai")
    assert first.started_at == datetime.fromtimestamp(START, UTC)
    assert first.end_reason == "agent_close"
    second = await archive.get("20260131_120000_bbbbbb")
    assert second.principal == "telegram:7"
    assert second.parent == first.id
    assert (await archive.get("early")).parent is None
    assert (await archive.get("orphan")).started_at == datetime.fromtimestamp(START, UTC)
    assert list(await store.maintenance.integrity()) == []


async def test_messages_are_converted(public: Path, store: SqliteStore):
    await import_from(store, public)
    archive = store.archive_for(OWNER)
    stored = await archive.messages("20260131_120000_aaaaaa")
    questions, called, done, answer = [row.message for row in stored]
    assert [row.seq for row in stored] == [2, 3, 4, 5]
    assert isinstance(questions, User)
    assert questions.parts == (Text("live kumquat"),)
    assert isinstance(called, Assistant)
    assert called.parts[0] == Reasoning("hm")
    assert called.stop is Stop.TOOLS
    assert bytes(called.calls[0].args) == b'{"a" : 1 }'
    assert (bytes(called.calls[1].args), called.calls[1].broken) == (b"{}", '{"cut of')
    assert isinstance(done, Result)
    assert (done.call, done.parts) == ("c1", (Text("done"),))
    assert isinstance(answer, Assistant)
    assert (answer.text, answer.stop) == ("That is all.", Stop.END)
    other = await archive.messages("20260131_120000_bbbbbb")
    assert [part for row in other for part in row.message.parts] == [
        Text("look"),
        Text("[a part of the kind 'image_url' that was not imported]"),
        Text("be kind"),
    ]


async def test_compacted_messages_are_found_and_undone_ones_are_not(
    public: Path, store: SqliteStore
):
    await import_from(store, public)
    found = await store.archive_for(OWNER).search("kumquat")
    assert {hit.snippet for hit in found.hits} == {
        "forgotten >>>kumquat<<<",
        "live >>>kumquat<<<",
    }
    digests = await store.archive_for(OWNER).list(SessionFilter(title="Old plans"))
    assert (digests[0].messages, digests[0].tool_calls) == (5, 2)
    assert digests[0].preview == "forgotten kumquat"


async def test_usage_is_imported(public: Path, store: SqliteStore):
    await import_from(store, public)
    archive = store.archive_for(OWNER)
    assert list(await archive.usage("20260131_120000_aaaaaa")) == [
        ModelUsage(
            model="gpt",
            provider="openai",
            calls=3,
            usage=Usage(input=100, output=4, cache_read=90),
            cost=0.5,
        )
    ]
    (second,) = await archive.usage("20260131_120000_bbbbbb")
    assert (second.calls, second.usage, second.cost) == (2, Usage(5, 1), None)
    (digest,) = await archive.list(SessionFilter(source="telegram"))
    assert (digest.model_calls, digest.cost) == (2, None)


async def test_public_database_stays_as_it_was(public: Path, store: SqliteStore):
    before = digests(public.parent)
    assert set(before) == {"state.db"}
    await import_from(store, public)
    await import_from(store, public)
    assert digests(public.parent) == before


async def test_public_system_can_write_meanwhile(public: Path, store: SqliteStore):
    running = apsw.Connection(str(public))
    say(running, "early", "user", "in the journal only")
    before = digests(public.parent)
    assert (await import_from(store, public)).messages == 9
    assert {name: digests(public.parent)[name] for name in ("state.db", "state.db-wal")} == {
        name: before[name] for name in ("state.db", "state.db-wal")
    }
    say(running, "early", "user", "later")
    running.close()
    assert (await import_from(store, public)).messages == 1


async def test_unchanged_database_is_not_read_again(public: Path, store: SqliteStore):
    await import_from(store, public)
    public.chmod(0)  # so that reading it would fail, except for root
    progress = Progress()
    assert await store.maintenance.import_legacy(public, progress) == ImportCounts()
    assert progress.reports == []


async def test_new_sessions_and_messages_are_imported_once(public: Path, store: SqliteStore):
    await import_from(store, public)
    with closing(apsw.Connection(str(public))) as old:
        say(old, "early", "user", "more of the old")
        insert(old, "sessions", id="new", source="cli", started_at=START, title="Old plans")
        say(old, "new", "user", "new words")
    assert await import_from(store, public) == ImportCounts(sessions=1, messages=2)
    assert await import_from(store, public) == ImportCounts()
    archive = store.archive_for(OWNER)
    assert [row.message.parts for row in await archive.messages("early")] == [
        (Text("more of the old"),)
    ]
    assert (await archive.get("new")).title == "Old plans (new)"


async def test_deleted_session_is_not_imported_again(public: Path, store: SqliteStore):
    await import_from(store, public)
    await store.archive_for(OWNER).delete(["20260131_120000_aaaaaa", "early"])
    with closing(apsw.Connection(str(public))) as old:
        say(old, "20260131_120000_bbbbbb", "user", "again")
    assert await import_from(store, public) == ImportCounts(messages=1)


async def test_chat_stays_in_its_session_when_another_one_is_imported(
    public: Path, store: SqliteStore, clock: FakeClock
):
    await import_from(store, public)
    key = "agent:main:telegram:dm:7"
    with closing(apsw.Connection(str(public))) as old:
        insert(
            old, "sessions", id="later", source="telegram", user_id="7", session_key=key,
            started_at=START + 99,
        )  # fmt: skip
    await import_from(store, public)
    found = await store.archive_for(OWNER).by_key(key)
    assert found is not None
    assert found.id == "20260131_120000_bbbbbb"
    assert (await store.archive_for(OWNER).get("later")).key == ""


async def test_large_import_is_done_in_pages(public: Path, store: SqliteStore):
    with closing(apsw.Connection(str(public))) as old, old:
        for number in range(2 * PAGE_ROWS):
            say(old, "early", "user", f"number {number}")
    progress = Progress()
    added = await store.maintenance.import_legacy(public, progress)
    assert added.messages == 8 + 2 * PAGE_ROWS
    done = [done for done, _ in progress.reports]
    assert len(done) == 4
    assert done == sorted(done)
    assert progress.reports[-1][0] == progress.reports[-1][1]


async def test_processes_that_import_together_import_once(
    public: Path, path: Path, clock: FakeClock, store: SqliteStore
):
    added: list[ImportCounts] = []

    async def work(one: SqliteStore) -> None:
        added.append(await import_from(one, public))

    async with open_store(path, clock) as other, anyio.create_task_group() as group:
        group.start_soon(work, store)
        group.start_soon(work, other)
    assert sum(one.messages for one in added) == 8
    assert (await store.maintenance.stats()).messages == 8


async def test_unreadable_row_is_left_out(public: Path, store: SqliteStore):
    with closing(apsw.Connection(str(public))) as old:
        insert(old, "messages", session_id="early", role="user", timestamp=START, active="no")
        say(old, "early", "user", "after it")
    assert (await import_from(store, public)).messages == 9


async def test_only_the_public_database_is_imported(tmp_path: Path, store: SqliteStore):
    path = tmp_path / "state.db"
    with pytest.raises(StoreError, match="no database"):
        await import_from(store, path)
    other = apsw.Connection(str(path))
    other.execute("CREATE TABLE cats (name TEXT)")
    other.close()
    with pytest.raises(StoreError, match="another program"):
        await import_from(store, path)
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(StoreError):
        await import_from(store, path)
