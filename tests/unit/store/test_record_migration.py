"""Rows that version 0.2 stored in `records` are found in the tables that replaced it."""

from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from hermes.ports.approvals import ApprovalRequest, Isolation
from hermes.ports.delegation import Task
from hermes.ports.processes import ProcessState
from hermes.schema.scope import Address, Role
from hermes.store.connection import READ_WRITE, Connection, connect, migrations
from hermes.store.database_file import APPLICATION_ID
from hermes.store.sqlite import open_store
from hermes.testing.clock import FakeClock

pytestmark = pytest.mark.anyio

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
        (asked,) = await store.approvals.open_questions()
        assert (asked.question.id, asked.principal, asked.holder) == (
            "ask_1",
            "ann",
            "host/boot/1/2/w",
        )
        assert asked.request == ApprovalRequest(
            tool="terminal", action="é", reaching=Isolation.BEYOND
        )
        assert asked.address == Address("telegram", "1")
        assert (asked.answer_text, asked.answered_by, asked.deadline) == ("because", "owner", 12.5)
        assert (asked.call, asked.key) == ("call_1", "agent:main:x")
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


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"\xff", b"null", b"{}"])
async def test_unreadable_rows_do_not_prevent_the_migration(
    old: Connection, path: Path, clock: FakeClock, body: bytes
):
    for kind in ("question", "grant", "yolo", "process", "delegation"):
        add(old, kind, "odd", body)
    add(old, "question", "ask_1", QUESTION)
    old.close()
    async with open_store(path, clock) as store:
        assert [one.question.id for one in await store.approvals.open_questions()] == ["ask_1"]
        assert list(await store.maintenance.integrity()) == []
