"""Importing the public system's database is complete and atomic."""

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path

import apsw
import pytest

from hermes.schema.errors import StoreError
from hermes.schema.messages import Assistant, Reasoning, Result, Stop, Text, Usage, User
from hermes.schema.scope import OWNER
from hermes.schema.sessions import ModelUsage, SessionFilter
from hermes.store.legacy_import import ImportResult, import_legacy
from hermes.store.sqlite import open_store
from hermes.testing.clock import FakeClock

pytestmark = pytest.mark.anyio

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


@pytest.fixture
def public(path: Path) -> Path:
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


async def test_everything_is_imported(public: Path, clock: FakeClock):
    adopted = import_legacy(public, clock)
    kept = public.with_name("state.db.public-1")
    assert adopted == ImportResult(sessions=4, messages=9, backup_path=kept)
    async with open_store(public, clock) as store:
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
        assert (await archive.get("orphan")).id == "orphan"
        assert list(await store.integrity()) == []


async def test_messages_are_converted(public: Path, clock: FakeClock):
    import_legacy(public, clock)
    async with open_store(public, clock) as store:
        archive = store.archive_for(OWNER)
        stored = await archive.messages("20260131_120000_aaaaaa")
        asked, called, done, answer = [row.message for row in stored]
        assert [row.seq for row in stored] == [3, 4, 5, 6]
        assert isinstance(asked, User)
        assert asked.parts == (Text("live kumquat"),)
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
            Text("[a part of the kind 'image_url' that was not brought over]"),
            Text("be kind"),
        ]


async def test_compacted_messages_are_found_and_undone_ones_are_not(public: Path, clock: FakeClock):
    import_legacy(public, clock)
    async with open_store(public, clock) as store:
        hits = await store.archive_for(OWNER).search("kumquat")
        assert {hit.snippet for hit in hits} == {
            "forgotten >>>kumquat<<<",
            "live >>>kumquat<<<",
        }
        digests = await store.archive_for(OWNER).list(SessionFilter(title="Old plans"))
        assert (digests[0].messages, digests[0].tool_calls) == (5, 2)
        assert digests[0].preview == "forgotten kumquat"


async def test_usage_is_imported(public: Path, clock: FakeClock):
    import_legacy(public, clock)
    async with open_store(public, clock) as store:
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


async def test_old_file_is_kept(public: Path, clock: FakeClock):
    kept = import_legacy(public, clock).backup_path
    assert kept is not None
    old = apsw.Connection(str(kept))
    assert old.execute("SELECT count(*) FROM messages").get == 9
    assert old.pragma("integrity_check") == "ok"
    old.close()
    assert {file.name for file in public.parent.iterdir()} == {"state.db", "state.db.public-1"}


async def test_second_import_changes_nothing(public: Path, clock: FakeClock):
    import_legacy(public, clock)
    before = hashlib.sha256(public.read_bytes()).hexdigest()
    assert import_legacy(public, clock) == ImportResult(0, 0, None)
    assert hashlib.sha256(public.read_bytes()).hexdigest() == before
    assert not public.with_name("state.db.public-2").exists()


async def test_remains_of_a_killed_import_are_removed(public: Path, clock: FakeClock):
    public.with_name(".state.db.adopting").write_bytes(b"half a database")
    public.with_name(".state.db.adopting-wal").write_bytes(b"half a journal")
    public.with_name("state.db.public-1").hardlink_to(public)
    adopted = import_legacy(public, clock)
    assert adopted.backup_path == public.with_name("state.db.public-1")
    assert adopted.messages == 9


async def test_older_kept_file_is_not_overwritten(public: Path, clock: FakeClock):
    public.with_name("state.db.public-1").write_text("from long ago")
    assert import_legacy(public, clock).backup_path == public.with_name("state.db.public-2")
    assert public.with_name("state.db.public-1").read_text() == "from long ago"


async def test_import_is_refused_while_the_file_is_open(public: Path, clock: FakeClock):
    running = apsw.Connection(str(public))
    assert running.execute("SELECT count(*) FROM sessions").get == 3
    with pytest.raises(StoreError, match="Another process") as caught:
        import_legacy(public, clock)
    assert caught.value.hint
    running.execute("UPDATE sessions SET title = 'still running' WHERE id = 'early'")
    running.close()
    assert import_legacy(public, clock).sessions == 4


async def test_only_the_public_database_is_imported(path: Path, clock: FakeClock):
    with pytest.raises(StoreError, match="no database"):
        import_legacy(path, clock)
    other = apsw.Connection(str(path))
    other.execute("CREATE TABLE cats (name TEXT)")
    other.close()
    with pytest.raises(StoreError, match="another program"):
        import_legacy(path, clock)
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(StoreError):
        import_legacy(path, clock)
