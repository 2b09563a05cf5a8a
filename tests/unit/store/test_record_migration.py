"""Rows that earlier versions stored in `records` are found in the tables that replaced it."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from hermes.gateway.messages import read_inbox_message, read_outbox_message
from hermes.gateway.stale_progress import LIVE_PROGRESS, FinalEdit, progress_key
from hermes.ports.api_records import Callback
from hermes.ports.approvals import ApprovalRequest, Isolation
from hermes.ports.chat_records import UnreachableChat
from hermes.ports.delegation import Task
from hermes.ports.ledger import Author, ChangeOrigin, ChangeState, FileEdit, ProposalState
from hermes.ports.processes import ProcessState
from hermes.ports.store import QueueItem
from hermes.schema.scope import Address, Role
from hermes.store.connection import READ_WRITE, Connection, connect, migrations
from hermes.store.database_file import APPLICATION_ID
from hermes.store.sqlite import open_store
from hermes.testing.clock import FakeClock

AT = 1_750_000_000_000_000
QUESTION = {
    "question": {
        "id": "ask_1",
        "kind": "approval",
        "session": "s1",
        "run": "r1",
        "text": "May I?",
        "until": "2026-11-17T12:00:00Z",
    },
    "digest": "d",
    "principal": "ann",
    "state": "open",
    "wish": {"tool": "terminal", "action": "é", "reaching": "beyond"},
    "address": {"channel": "telegram", "chat": "1", "thread": None},
    "answer": "",
    "words": "because",
    "by": "owner",
    "at": "2026-11-17T12:00:00Z",
    "call": "call_1",
    "key": "agent:main:x",
    "holder": "",
    "ends": 12.5,
}
SCOPE = {
    "profile": "default",
    "session": "s1",
    "run": "r",
    "workspace": "/w",
    "principal": "ann",
    "role": "guest",
}
GRANT = {"id": "g", "tool": "t", "reaching": "open", "argv": ["ls"], "by": "ann", "session": ""}


@pytest.fixture
def old(path: Path) -> Connection:
    """A database of schema 8, as the versions before the repositories left it."""
    connection = connect(path, READ_WRITE)
    for number, script in migrations():
        if number <= 8:
            connection.execute(script.read_text())
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute("PRAGMA user_version = 8")
    return connection


def add(
    connection: Connection,
    kind: str,
    name: str,
    body: Mapping[str, object] | str | bytes | None,
    *,
    session: str = "s1",
    state: str = "open",
    is_open: bool = True,
    holder: str = "",
) -> None:
    encoded = body if isinstance(body, bytes) else msgspec.json.encode(body)
    connection.execute(
        "INSERT INTO records (kind, id, session, state, at, body, open, holder)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (kind, name, session, state, AT, encoded, int(is_open), holder),
    )


async def test_questions_and_approvals_are_moved(old: Connection, path: Path, clock: FakeClock):
    add(old, "question", "ask_1", QUESTION, holder="host/boot/1/2/w")
    short = {"question": QUESTION["question"], "digest": "", "principal": ""}
    add(old, "question", "ask_2", short, state="used", is_open=False)
    add(old, "grant", "g", GRANT, session="", state="given")
    add(old, "grant", "gone", GRANT, session="", state="revoked", is_open=False)
    add(old, "yolo", "s1", {}, state="on")
    add(old, "yolo", "s2", {}, session="s2", state="off", is_open=False)
    old.close()
    async with open_store(path, clock) as store:
        (question,) = await store.approvals.open_questions()
        assert (question.question.id, question.principal, question.holder) == (
            "ask_1",
            "ann",
            "host/boot/1/2/w",
        )
        assert question.request == ApprovalRequest(
            tool="terminal", action="é", reaching=Isolation.BEYOND
        )
        assert question.address == Address("telegram", "1")
        assert (question.answer_text, question.answered_by, question.deadline) == (
            "because",
            "owner",
            12.5,
        )
        assert (question.call, question.key) == ("call_1", "agent:main:x")
        found = await store.approvals.questions("s1")
        assert [(one.state, one.request, one.address) for one in found[1:]] == [
            ("used", None, None)
        ]
        (saved,) = await store.approvals.saved()
        assert (saved.id, saved.argv, saved.asked_by) == ("g", ("ls",), "ann")
        assert not saved.is_from_owner
        assert await store.approvals.yolo("s1")
        assert not await store.approvals.yolo("s2")


async def test_background_work_is_moved(old: Connection, path: Path, clock: FakeClock):
    dead = "elsewhere/x/1/2"
    process = {
        "id": "p1",
        "command": "make é",
        "folder": "/w",
        "scope": SCOPE,
        "started": "2026-11-17T12:45:17.791440Z",
        "pid": 7,
        "notify": True,
        "watch": ["done"],
    }
    add(old, "process", "p1", process, state="running", holder=dead)
    ended = {**process, "id": "p2", "state": "exited", "exit_code": 3}
    add(old, "process", "p2", ended, state="exited", is_open=False)
    work = {"id": "d1", "scope": SCOPE, "tasks": [{"goal": "a"}], "reports": [None]}
    add(old, "delegation", "d1", work, state="running", holder=dead)
    add(old, "delegation", "d2", work, state="brought", is_open=False)
    old.close()
    async with open_store(path, clock) as store:
        (running,) = await store.processes.abandoned()
        assert (running.command, running.pid, running.notify) == ("make é", 7, True)
        assert (running.watch, running.scope.role) == (("done",), Role.GUEST)
        assert running.started.isoformat().startswith("2026-11-17T12:45:17.791")
        last = (await store.processes.all())[-1]
        assert (last.state, last.exit_code) == (ProcessState.EXITED, 3)
        assert last.ended is not None
        (work_left,) = await store.delegations.abandoned()
        assert (work_left.id, work_left.tasks) == ("d1", (Task(goal="a"),))
        assert (work_left.scope.role, work_left.scope.principal) == (Role.GUEST, "ann")


async def test_rows_about_chats_are_moved(old: Connection, path: Path, clock: FakeClock):
    where = {"channel": "telegram", "chat": "1", "thread": None}
    topic = '["telegram","1",null]'
    location = {"key": "k1", "address": where, "principal": "ann", "role": "guest"}
    add(old, "location", "s1", {**location, "asker": {"user": "7"}}, state="here")
    chat = {"space": "main", "platform": "telegram", "kind": "dm", "chat": "1"}
    add(old, "chat_key", "k1", chat, session=topic, state="used", is_open=False)
    posted = '["telegram","1","p1"]'
    add(old, "question_post", posted, "ask_1", session="", state="asked", is_open=False)
    add(old, "turn_taken", "m1", None, session="ann", state="taken", is_open=False)
    for name, state in (("a", 3), ("b", 0)):
        old.execute(
            "INSERT INTO queue_items (key, queue, topic, body, attempts, state, reason)"
            " VALUES (?, 'unreachable', ?, x'', 0, ?, 'blocked')",
            (f"unreachable:{name}", name, state),
        )
    old.close()
    async with open_store(path, clock) as store:
        found = await store.chats.location("s1")
        assert found is not None
        assert (found.key, found.principal, found.role) == ("k1", "ann", Role.GUEST)
        assert (found.address, found.asker.user) == (Address("telegram", "1"), "7")
        key = await store.chats.session_key("k1")
        assert key is not None
        assert (key.topic, msgspec.json.decode(key.chat)) == (topic, chat)
        assert await store.chats.question_in(Address("telegram", "1"), "p1") == "ask_1"
        assert len(await store.chats.started_turns("ann", 9)) == 1
        assert list(await store.chats.unreachable(9)) == [UnreachableChat("a", "blocked")]
        assert list(await store.queues.topics("unreachable")) == []


async def test_rows_about_sessions_are_moved(old: Connection, path: Path, clock: FakeClock):
    add(old, "view", "s1", {"times": 2}, state="3", is_open=False)
    add(old, "pin", "pin_1", {"text": "é"}, state="pinned")
    add(old, "pin", "pin_2", {"text": "gone"}, state="taken back", is_open=False)
    add(old, "run_end", "r1", "broken", state="failed", is_open=False)
    before = {"dollars": 1.5}
    add(old, "spent_before", "2026-01-31:a:b", before, session="", state="noted", is_open=False)
    add(old, "codex_thread", "s1", {"thread": "th"}, state="kept", is_open=False)
    add(old, "remote_session", "far_1", {"scope": SCOPE, "after": 3}, state="followed")
    add(old, "api_callback", "s1", {"url": "https://a.example", "sealed": "x"}, state="on")
    add(old, "api_callback", "s2", None, session="s2", state="off", is_open=False)
    begun = {"print": "f", "finished": None}
    add(old, "api_reply", "key_1", begun, state="begun", holder="elsewhere/x/1/2")
    done = {"print": "f", "finished": {"a": 1}}
    add(old, "api_reply", "key_2", done, state="done", is_open=False)
    old.close()
    async with open_store(path, clock) as store:
        view = await store.compaction.view("s1")
        assert view is not None
        assert (view.version, msgspec.json.decode(view.state)) == (3, {"times": 2})
        assert [pin.text for pin in await store.compaction.pins("s1")] == ["é"]
        (failed,) = await store.runs.failures("s1")
        assert (failed.run, failed.outcome, failed.reason) == ("r1", "failed", "broken")
        assert await store.runs.spend_before("2026-01-31", "a:b") == 1.5
        thread = await store.runtime_sessions.get("codex", "s1")
        assert thread is not None
        assert msgspec.json.decode(thread.state) == {"thread": "th"}
        assert [one.id for one in await store.runtime_sessions.newest("proxy", 9)] == ["far_1"]
        assert await store.api.callback("s1") == Callback("https://a.example", sealed="x")
        assert await store.api.callback("s2") is None
        (lost,) = await store.api.abandoned_requests()
        assert (lost.id, lost.fingerprint, lost.answer) == ("key_1", "f", None)
        request = await store.api.keyed_request("key_2")
        assert request is not None
        assert request.answer is not None
        assert msgspec.json.decode(request.answer) == {"a": 1}


async def test_ledger_is_moved(old: Connection, path: Path, clock: FakeClock):
    change = {
        "id": "chg_1",
        "kind": "memory",
        "name": "user",
        "summary": "é",
        "by": "review",
        "at": "2025-06-15T15:06:40Z",
        "edits": [{"path": "a", "before": None, "after": "/w=="}],
        "origin": {"session": "s1", "principal": "ann", "words": ["web"]},
        "undoes": "chg_0",
    }
    add(old, "change", "chg_1", change, session="", state="applying", holder="elsewhere/x/1/2")
    add(old, "change", "chg_2", change, session="", state="undone", is_open=False)
    proposal = {**change, "id": "pro_1", "request": {"a": 1}}
    add(old, "proposal", "pro_1", proposal, state="waiting")
    add(old, "proposal", "pro_2", {**proposal, "id": "pro_2"}, state="rejected", is_open=False)
    old.close()
    async with open_store(path, clock) as store:
        (left,) = await store.ledger.abandoned_changes()
        assert (left.id, left.by, left.undoes) == ("chg_1", Author.REVIEW, "chg_0")
        assert left.edits == (FileEdit("a", None, b"\xff"),)
        assert left.origin == ChangeOrigin(session="s1", principal="ann", sources=("web",))
        (undone,) = await store.ledger.changes(state=ChangeState.UNDONE, limit=9)
        assert undone.change.id == "chg_2"
        (waiting,) = await store.ledger.proposals(state=ProposalState.WAITING, limit=9)
        assert (waiting.id, msgspec.json.decode(waiting.request)) == ("pro_1", {"a": 1})
        assert waiting.at.isoformat() == "2025-06-15T15:06:40+00:00"
        (rejected,) = await store.ledger.proposals(state=ProposalState.REJECTED, limit=9)
        assert rejected.id == "pro_2"


def add_item(connection: Connection, key: str, queue: str, body: object) -> None:
    connection.execute(
        "INSERT INTO queue_items (key, queue, topic, body, attempts) VALUES (?, ?, ?, ?, 0)",
        (key, queue, '["test","1",null]', msgspec.json.encode(body)),
    )


async def test_fields_of_waiting_messages_are_renamed(
    old: Connection, path: Path, clock: FakeClock
):
    where = {"channel": "test", "chat": "1"}
    reply = {"type": "reply", "address": where, "text": "é", "at": "2026-11-17T12:00:00Z"}
    marks = {"bubble": "p1", "apart": True, "doubt": True, "brought": True, "unsure": 1}
    add_item(old, "r1", "outbox:test", {**reply, **marks})
    add_item(old, "r2", "outbox:test", {**reply, "bubble": None, "apart": False})
    add_item(old, "r3", "outbox:test", "not an object")
    add_item(old, "run-1:bubble:p1", "progress", {"post": "p1", "words": "the end"})
    add_item(old, "run-2:bubble:p2", "progress", "p2")
    add_item(old, "run-3:left:p3", "final_edits:test", {"post": "p3", "words": "cut off"})
    user = {"type": "user", "id": "m1", "parts": [{"type": "text", "text": "hi"}], "trust": "guest"}
    prompt = {
        "type": "message",
        "user": user,
        "address": where,
        "principal": "ann",
        "role": "guest",
    }
    add_item(old, "m1", "inbox", prompt)
    old.close()
    async with open_store(path, clock) as store:

        async def items(queue: str) -> list[QueueItem]:
            return list(await store.queues.claim(queue, None, "me", timedelta(minutes=1), 9))

        first, second, odd = await items("outbox:test")
        message = read_outbox_message(first.body)
        assert (message.progress_post, message.text, message.unsure) == ("p1", "é", 1)
        assert (message.separate, message.may_repeat, message.cross_post) == (True, True, True)
        message = read_outbox_message(second.body)
        assert (message.progress_post, message.separate) == (None, False)
        assert bytes(odd.body) == b'"not an object"'
        live, plain = await items(LIVE_PROGRESS)
        assert (live.key, plain.key) == (progress_key("run-1", "p1"), progress_key("run-2", "p2"))
        assert msgspec.json.decode(live.body, type=FinalEdit) == FinalEdit("p1", "the end")
        (edit,) = await items("final_edits:test")
        assert msgspec.json.decode(edit.body, type=FinalEdit) == FinalEdit("p3", "cut off")
        (waiting,) = await items("inbox")
        question = read_inbox_message(waiting.body)
        assert (question.principal, question.role) == ("ann", Role.GUEST)


KINDS = (
    "question grant yolo process delegation location chat_key question_post turn_taken view pin"
    " run_end spent_before codex_thread remote_session api_callback api_reply change proposal other"
)


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"\xff", b"null", b"{}"])
async def test_unreadable_rows_do_not_prevent_the_migration(
    old: Connection, path: Path, clock: FakeClock, body: bytes
):
    for kind in KINDS.split():
        add(old, kind, "odd", body)
    add(old, "question", "ask_1", QUESTION)
    old.close()
    async with open_store(path, clock) as store:
        assert [one.question.id for one in await store.approvals.open_questions()] == ["ask_1"]
        assert list(await store.maintenance.integrity()) == []
