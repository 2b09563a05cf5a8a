"""`hermes sessions` as a process with a real home and a real terminal."""

import json
import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pexpect
import pytest

from hermes.kit.terminal_text import display_width
from hermes.ports.store import OpenSession
from hermes.schema.sessions import Session
from support.cli_process import wait_for_data
from support.preloaded_python import run_python
from support.stored_sessions import HOSTILE_TEXT, full_session, simple_session, write_store

COMMAND = [sys.executable, "-m", "hermes", "sessions"]


class Home:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(path.parent),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "HERMES_HOME": str(path),
            "TZ": "JST-9",
        }

    @property
    def database(self) -> Path:
        return self.path / "hermes.db"

    def run(
        self, *words: str, code: int = 0, stdin: bytes = b"", **env: str
    ) -> subprocess.CompletedProcess[bytes]:
        done = run_python([*COMMAND[1:], *words], stdin=stdin, env={**self.env, **env}, timeout=60)
        assert done.returncode == code, done.stderr.decode()
        assert b"Traceback" not in done.stderr
        return done

    def terminal(self, *words: str, columns: int = 80) -> pexpect.spawn:
        return pexpect.spawn(
            COMMAND[0],
            [*COMMAND[1:], *words],
            env={name: value for name, value in self.env.items() if name != "COLUMNS"},
            encoding="utf-8",
            dimensions=(40, columns),
            timeout=120,
        )

    def ids(self) -> list[str]:
        return [json.loads(line)["id"] for line in self.run("list", "--json").stdout.splitlines()]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def write_public_database(home: Home, messages: int) -> None:
    home.path.mkdir()
    with closing(sqlite3.connect(home.path / "state.db")) as old, old:
        old.executescript(
            "CREATE TABLE schema_version (version INTEGER);"
            "CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT, started_at REAL);"
            "CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id TEXT, role TEXT,"
            " content TEXT, timestamp REAL);"
            "INSERT INTO sessions VALUES ('theirs', 'cli', 1)"
        )
        rows = [("theirs", "user", f"number {n}", float(n)) for n in range(messages)]
        insert = "INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, ?, ?, ?)"
        old.executemany(insert, rows)


def many(count: int) -> list[OpenSession]:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    return [
        OpenSession(
            Session(
                id=f"20260101_{n:06}_abcdef",
                started_at=start + timedelta(minutes=n),
                title=f"Session number {n} with a title of ordinary length",
                system="You are Hermes. " * 20,
            )
        )
        for n in range(count)
    ]


def test_empty_home_is_reported_and_unchanged(home: Home) -> None:
    done = home.run("list")
    assert (done.stdout, done.stderr) == (b"", b"No sessions yet.\n")
    assert b"No sessions yet." in home.run("show", "x", code=1).stderr
    assert not home.path.exists()


def test_times_are_shown_in_the_local_zone(home: Home) -> None:
    write_store(home.database, *simple_session("s", at=datetime(2026, 1, 31, 20, 0, tzinfo=UTC)))
    assert "2026-02-01 05:01" in home.run("list").stdout.decode()
    assert "started   2026-02-01 05:00 JST" in home.run("show", "s").stdout.decode()
    assert "2026-01-31T20:01:00Z" in home.run("list", "--json").stdout.decode()
    assert home.run("list", "--json", "--since", "2026-02-01 05:00:01").stdout == b""
    assert home.run("list", "--json", "--since", "2026-02-01 04:59").stdout != b""


@pytest.mark.parametrize(
    "words", [("list", "-n", "10000"), ("list", "-n", "10000", "--json"), ("export", "--all")]
)
def test_closed_pipe_is_tolerated(home: Home, words: tuple[str, ...]) -> None:
    write_store(home.database, *many(10_000))
    child = subprocess.Popen(
        [*COMMAND, *words], env=home.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stderr is not None
    assert wait_for_data(child.stdout.fileno())
    child.stdout.close()
    complaints = child.stderr.read()
    child.stderr.close()
    assert child.wait(60) == 141
    assert complaints == b""


@pytest.mark.parametrize(
    "env", [{"PYTHONIOENCODING": "cp1252"}, {"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C"}]
)
def test_limited_encodings_are_tolerated(home: Home, env: dict[str, str]) -> None:
    write_store(
        home.database, *simple_session("s", title=HOSTILE_TEXT, words=[HOSTILE_TEXT, "→ 日本語"])
    )
    for words in (["list"], ["show", "s"], ["search", "日本語"], ["stats"]):
        home.run(*words, **env)
    line = json.loads(home.run("export", "s", **env).stdout.decode("utf-8"))
    assert line["title"] == HOSTILE_TEXT
    assert (
        json.loads(home.run("list", "--json", **env).stdout.decode("utf-8"))["title"]
        == HOSTILE_TEXT
    )
    assert HOSTILE_TEXT.encode() in home.run("show", "--raw", "s", **env).stdout


def messages_of(line: bytes) -> tuple[str, list[tuple[str, object, object]]]:
    """The id and messages of an exported session, without trust and owner."""
    session = json.loads(line)
    messages = session["messages"]
    return session["id"], [(m["role"], m.get("content"), m.get("tool_calls")) for m in messages]


def test_sessions_are_piped_between_homes(home: Home, tmp_path: Path) -> None:
    write_store(
        home.database,
        *full_session("20260131_120000_aaaaaa", title=HOSTILE_TEXT),
        *simple_session("b", parent=None),
    )
    exported = home.run("export", "--all").stdout
    other = Home(tmp_path / "other")
    output = other.run("import", "-", stdin=exported).stdout
    assert output == b"Imported 2 sessions with 10 messages.\n"
    assert other.path.stat().st_mode & 0o777 == 0o700
    assert other.database.stat().st_mode & 0o777 == 0o600
    carried = other.run("export", "--all").stdout
    assert [messages_of(line) for line in carried.splitlines()] == [
        messages_of(line) for line in exported.splitlines()
    ]
    third = Home(tmp_path / "third")
    third.run("import", "-", stdin=carried)
    assert third.run("export", "--all").stdout == carried
    again = other.run("import", "-", stdin=exported).stdout.decode()
    assert "Skipped, already present" in again
    bad = Home(tmp_path / "bad").run("import", "-", stdin=exported + b"{}\n", code=2)
    assert b"Line 3 is not an exported session" in bad.stderr


def test_delete_without_terminal_deletes_nothing(home: Home) -> None:
    write_store(home.database, *simple_session("s"))
    for words in (["delete", "s"], ["prune", "--older-than", "0d"]):
        done = home.run(*words, code=2)
        assert b"add --yes" in done.stderr
    assert home.ids() == ["s"]
    assert home.run("delete", "s", "--yes").stdout == b"Deleted 1 session.\n"
    assert home.ids() == []


def test_delete_asks_at_a_terminal(home: Home) -> None:
    write_store(home.database, *simple_session("s", title="Mine"), *simple_session("t"))
    child = home.terminal("delete", "Mine")
    child.expect_exact("Delete 1 session permanently? [y/N]")
    child.sendline("no")
    child.expect_exact("Nothing was changed.")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 1
    child = home.terminal("delete", "Mine")
    child.expect_exact("[y/N]")
    child.sendintr()
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 130
    assert sorted(home.ids()) == ["s", "t"]
    child = home.terminal("delete", "Mine")
    child.expect_exact("[y/N]")
    child.sendline("y")
    child.expect_exact("Deleted 1 session.")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
    assert home.ids() == ["t"]


@pytest.mark.parametrize("columns", [40, 80, 132])
def test_list_fits_a_real_terminal(home: Home, columns: int) -> None:
    write_store(
        home.database,
        *simple_session("20260131_120000_aaaaaa", title=HOSTILE_TEXT * 3),
        *simple_session("20260131_120000_bbbbbb", words=["日本語のとても長いタイトル" * 9]),
    )
    child = home.terminal("list", columns=columns)
    child.expect(pexpect.EOF)
    shown = re.sub(r"\x1b\[\d*m", "", child.before).splitlines()
    assert len(shown) == 3
    assert all(display_width(line) <= columns for line in shown)
    assert "\x1b" not in "".join(shown)


def test_matches_are_highlighted_on_a_terminal(home: Home) -> None:
    write_store(home.database, *simple_session("s", words=["a red fish"]))
    child = home.terminal("search", "fish")
    child.expect_exact("a red \x1b[1;33mfish\x1b[0m")
    child.expect(pexpect.EOF)
    assert b"a red fish\n" in home.run("search", "fish").stdout


def test_ten_thousand_sessions_are_listed_quickly(home: Home) -> None:
    write_store(home.database, *many(10_000))
    assert len(home.run("list").stdout.splitlines()) == 21
    assert b"10,000 sessions" in home.run("stats").stdout
    pruned = home.run("prune", "--before", "2026-01-07", "--yes").stdout.splitlines()[-1]
    left = home.run("stats", "--json").stdout
    assert pruned == f"Deleted {10_000 - json.loads(left)['sessions']:,} sessions.".encode()


def test_usage_error_has_exit_code_2(home: Home) -> None:
    assert b"  search    search the messages of all sessions\n" in home.run(code=2).stderr
    assert b"is not an age" in home.run("list", "--older-than", "soon", code=2).stderr


def test_help_describes_the_json_output(home: Home) -> None:
    shown = home.run("list", "--help").stdout.decode()
    write_store(home.database, *full_session("s"))
    for name in json.loads(home.run("list", "--json").stdout):
        assert f'"{name}"' in shown
    shown = home.run("stats", "--help").stdout.decode()
    for name in json.loads(home.run("stats", "--json").stdout):
        assert f'"{name}"' in shown
    shown = home.run("search", "--help").stdout.decode()
    for name in json.loads(home.run("search", "file", "two", "--json").stdout):
        assert f'"{name}"' in shown


def test_first_import_shows_a_bar_at_a_terminal(home: Home) -> None:
    write_public_database(home, 3_000)
    before = (home.path / "state.db").read_bytes()
    child = home.terminal("list")
    child.expect(r"\[#+\.+\] +\d+% importing sessions")
    child.expect("theirs")
    child.expect(pexpect.EOF)
    assert (home.path / "state.db").read_bytes() == before
    assert b"importing" not in home.run("list").stderr
    assert home.ids() == ["theirs"]
