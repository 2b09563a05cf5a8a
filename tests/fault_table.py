"""What can go wrong, and what everybody is told then: one cause, one next step."""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from hermes.testing.mock_openai import Fault, Reply, Rule, Script
from past_sessions import keep, talk

NEXT_MODEL = "choose another model"
ADDRESS = "hermes config set model.base_url"


class Said(Struct, frozen=True):
    """`cause` and `step` are words of the sentence; the exit code is the command line's."""

    name: str
    cause: str
    step: str
    exit_code: int = 1


class Turn(Struct, frozen=True):
    """A fault of the model's answer to a prompt that has the name of the fault in it."""

    said: Said
    reply: Reply


def _status(name: str, cause: str, step: str) -> Turn:
    return Turn(Said(name, cause, step), Reply(fault=Fault("status", named=name)))


def _stream(kind: str, cause: str) -> Turn:
    reply = Reply("some words to begin with", fault=Fault(kind, after=2), chunk=4)
    return Turn(Said(f"stream {kind}", cause, NEXT_MODEL), reply)


def _odd(name: str, fault: Fault, cause: str, step: str) -> Turn:
    return Turn(Said(name, cause, step), Reply("x", fault=fault))


_PAGE = Fault(
    "status", status=200, body="<html>log in</html>", headers={"content-type": "text/html"}
)
_ELSEWHERE = Fault("status", status=302, headers={"location": "http://127.0.0.1:9/x"})

TURNS: Sequence[Turn] = [
    _status("unauthorized", "refused the key (401)", "hermes config set OPENAI_API_KEY"),
    _status("forbidden", "refused the key (403)", "hermes config set OPENAI_API_KEY"),
    _status("out_of_credit", "no credit left (402)", "Top up the account"),
    _status("model_not_found", "does not serve the model", "hermes model"),
    _status("too_large", "is too long for mock", "/new"),
    _status("context_too_long", "maximum context length", "/new"),
    _status("rate_limited", "limits the rate (429)", "Wait a little"),
    _status("policy", "declined the content", "Say it differently"),
    _status("bad_request", "did not accept the request (400)", "begin a new conversation"),
    _status("server_error", "overloaded or broken (500)", NEXT_MODEL),
    _status("bad_gateway", "overloaded or broken (502)", NEXT_MODEL),
    _status("unavailable", "overloaded or broken (503)", NEXT_MODEL),
    _status("overloaded", "overloaded or broken (529)", NEXT_MODEL),
    _stream("cut", "broke off the connection"),
    _stream("garbage", "sent a broken stream"),
    _stream("bad_json", "sent a broken stream"),
    _stream("error_event", "overloaded or broken"),
    _stream("no_end", "stopped in mid-answer"),
    _odd("cut early", Fault("cut"), "broke off the connection", NEXT_MODEL),
    _odd("page", _PAGE, "answered with a web page", ADDRESS),
    _odd("redirect", _ELSEWHERE, "sends us to", ADDRESS),
    _odd("teapot", Fault("status", status=418, body="short"), "(418)", "begin a new conversation"),
    Turn(Said("says nothing", "was empty", "another model"), Reply("")),
]
SCRIPT = Script(rules=[Rule(one.said.name, [one.reply]) for one in TURNS], models=("mock",))
SETTINGS = "agent:\n  api_max_retries: 1\n"


class World(Struct, frozen=True):
    """A home in which every turn fails; `url` is the model's address, where it is not the mock's.

    `broken` writes what is wrong with the home.
    """

    name: str
    faults: Sequence[Said]
    url: str = ""
    env: Mapping[str, str] = {}
    settings: str = ""
    broken: Callable[[Path], object] = lambda home: None


def _alone(name: str, cause: str, step: str, exit_code: int = 1) -> Sequence[Said]:
    return [Said(name, cause, step, exit_code)]


_NOBODY = {"OPENAI_API_KEY": "", "HERMES_INFERENCE_PROVIDER": "", "HERMES_INFERENCE_MODEL": ""}

WORLDS: Sequence[World] = [
    World("a model with faults", [one.said for one in TURNS]),
    World(
        "refused", _alone("hello", "no connection to openai", "Is the local server running?"),
        url="http://127.0.0.1:9/v1",
    ),
    World(
        "unknown name", _alone("hello", "cannot be found", "Check the network and the address."),
        url="http://nowhere.invalid/v1",
    ),
    World(
        "not an address", _alone("hello", "is no address", ADDRESS), url="http://127.0.0.1:99999/v1"
    ),
    World(
        "no host", _alone("hello", "no request can be made", ADDRESS), url="http://a..b/v1"
    ),
    World(
        "no model", _alone("hello", "no model provider is set up", "hermes setup", 78),
        env={**_NOBODY, "OPENAI_BASE_URL": ""},
    ),
    World(
        "no key", _alone("hello", "there is no key", "hermes config set OPENAI_API_KEY", 78),
        env={"OPENAI_API_KEY": ""}, url="https://api.openai.com/v1",
    ),
    World(
        "unknown provider", _alone("hello", "unknown provider 'nosuch'", "Choose one of", 78),
        env={"HERMES_INFERENCE_PROVIDER": "nosuch"},
    ),
    World(
        "unreadable soul", _alone("hello", "SOUL.md cannot be read", "Make it a file", 78),
        broken=lambda home: (home / "SOUL.md").mkdir(),
    ),
]  # fmt: skip


class Opening(Struct, frozen=True):
    """A home that cannot be opened at all."""

    said: Said
    broken: Callable[[Path], object]


def _config(text: str | bytes) -> Callable[[Path], object]:
    data = text.encode() if isinstance(text, str) else text
    return lambda home: (home / "config.yaml").write_bytes(data)


def _sql(home: Path, script: str) -> None:
    with closing(sqlite3.connect(home / "state.db")) as database:
        database.executescript(script)


def _newer(home: Path) -> None:
    keep(home / "state.db", *talk("s", at=datetime(2026, 1, 1, tzinfo=UTC)))
    _sql(home, "PRAGMA user_version = 9999")


def _no_folder(home: Path) -> None:
    home.rmdir()
    home.write_text("a file")


PUBLIC = """
CREATE TABLE schema_version (version INTEGER);
CREATE TABLE sessions (id TEXT);
CREATE TABLE messages (id TEXT);
"""
EDIT = "hermes config edit"

OPENINGS: Sequence[Opening] = [
    Opening(Said("home is a file", "is not a directory", "Point HERMES_HOME", 78), _no_folder),
    Opening(Said("no yaml", "this is not YAML", EDIT, 78), _config("agent:\n  max_turns: [\n")),
    Opening(
        Said("wrong type", "agent.max_turns: expected", EDIT, 78),
        _config("agent:\n  max_turns: many\n"),
    ),
    Opening(Said("a list", "found a list", "Begin each line", 78), _config("- a\n- b\n")),
    Opening(
        Said("wrong bytes", "is not UTF-8", "Save the file", 78), _config(b"model: \xff\xfe\n")
    ),
    Opening(
        Said("settings are a folder", "config.yaml cannot be read", "Check that it is a file", 78),
        lambda home: (home / "config.yaml").mkdir(),
    ),
    Opening(
        Said("secrets are a folder", ".env cannot be read", "Check that it is a file", 78),
        lambda home: (home / ".env").mkdir(),
    ),
    Opening(
        Said("secrets are no text", ".env: byte 0 is not UTF-8", "Save the file", 78),
        lambda home: (home / ".env").write_bytes(b"\xff\x00A=1\n"),
    ),
    Opening(
        Said("keys are damaged", "auth.json is damaged", "hermes auth add", 78),
        lambda home: (home / "auth.json").write_text("{oops"),
    ),
    Opening(
        Said("no database", "is damaged or not a database", "restore a backup"),
        lambda home: (home / "state.db").write_bytes(b"this is none, not at all " * 200),
    ),
    Opening(
        Said("the public system's", "another program of the same name", "hermes sessions adopt"),
        lambda home: _sql(home, PUBLIC),
    ),
    Opening(
        Said("another program's", "a database of another program", "Move it away"),
        lambda home: _sql(home, "CREATE TABLE x (a); PRAGMA user_version = 3"),
    ),
    Opening(Said("a newer one", "has schema 9999", "Update Hermes"), _newer),
    Opening(
        Said("a folder", "cannot be opened for writing", "Check who owns"),
        lambda home: (home / "state.db").mkdir(),
    ),
    Opening(
        Said("logs are a file", "logs cannot be created", "point HERMES_HOME", 78),
        lambda home: (home / "logs").write_text(""),
    ),
]


class Usage(Struct, frozen=True):
    """A wrong command line."""

    said: Said
    words: Sequence[str]


USAGES: Sequence[Usage] = [
    Usage(Said("no session", "There is no session 'nope'", "hermes sessions list"), ["-r", "nope"]),
    Usage(Said("nothing yet", "no session to continue", "Just start talking"), ["-c"]),
    Usage(Said("no toolset", "there is no toolset 'nope'", "Known toolsets", 2), ["-t", "nope"]),
    Usage(Said("no folder", "/nowhere is not a folder", "--cwd", 2), ["--cwd", "/nowhere"]),
    Usage(
        Said("no picture", "/nowhere.png cannot be read", "Check", 2), ["--image", "/nowhere.png"]
    ),
    Usage(Said("no png", "is no picture", "PNG", 2), ["--image", "/etc/hostname"]),
    Usage(
        Said("no place", "where --usage-file points", "another place", 2),
        ["--usage-file", "/nowhere/u.json"],
    ),
]

COUNT = len(TURNS) + len(WORLDS) - 1 + len(OPENINGS) + len(USAGES)


def judge(said: Said, shown: str) -> None:
    """One cause, one next step after it, and nothing of the program's insides."""
    where = f"{said.name}: {shown!r}"
    assert "Traceback" not in shown, where
    assert "internal error" not in shown, where
    flat = " ".join(shown.split())
    assert flat.count(said.cause) == 1, where
    assert flat.count(said.step) == 1, where
    assert flat.index(said.cause) < flat.index(said.step), where
