"""All faults and the message for each: one cause, one next step.

Rows are faults, columns are surfaces. Each cell is tested, or the scenario says why the fault does
not occur there.
"""

import sqlite3
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from support.cli_process import TEST_TIMEOUT, wait_for_data
from support.faults.models import MODELS
from support.faults.scenarios import (
    FILES_ONLY,
    IN_HOMES,
    IN_STORES,
    NO_FLAGS,
    NO_GATEWAY,
    NO_PORT,
    NO_SESSION,
    OTHER_FILES,
    STARTS,
    ExpectedMessage,
    FaultMoment,
    FaultScenario,
    FaultSwitch,
    Surface,
    all_surfaces_but,
)
from support.faulty_disk import DiskFailure, faulty_disk
from support.stored_sessions import simple_session, write_store


def _config(text: str | bytes) -> Callable[[Path], object]:
    data = text.encode() if isinstance(text, str) else text
    return lambda home: (home / "config.yaml").write_bytes(data)


def _sql(home: Path, script: str) -> None:
    with closing(sqlite3.connect(home / "hermes.db")) as database:
        database.executescript(script)


def _newer(home: Path) -> None:
    write_store(home / "hermes.db", *simple_session("s", at=datetime(2026, 1, 1, tzinfo=UTC)))
    _sql(home, "PRAGMA user_version = 9999")


def _secret(home: Path, name: str, data: bytes) -> None:
    (home / name).write_bytes(data)
    (home / name).chmod(0o600)


def _no_folder(home: Path) -> None:
    home.rmdir()
    home.write_text("a file")


@contextmanager
def _full(home: Path) -> Generator[FaultSwitch]:
    """Every database write fails with a full disk."""
    with faulty_disk() as disk:
        yield FaultSwitch(lambda: disk.fail(DiskFailure.FULL, 1, 10**9), disk.heal)


_HOLD_LOCK = """
import sqlite3, sys
held = sqlite3.connect(sys.argv[1], isolation_level=None)
held.execute("BEGIN EXCLUSIVE")
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def _locked(home: Path) -> Generator[FaultSwitch]:
    """Another program locks the file, as a database browser may.

    It must be a different process, because a process does not lock itself out.
    """
    held: list[subprocess.Popen[bytes]] = []

    def on() -> None:
        file = home / "hermes.db"
        if not file.exists():
            with closing(sqlite3.connect(file)) as new:
                new.execute("PRAGMA user_version = 1")
        command = [sys.executable, "-c", _HOLD_LOCK, str(file)]
        held.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        assert held[0].stdout is not None
        assert wait_for_data(held[0].stdout.fileno()).startswith(b"held")

    def off() -> None:
        held[0].communicate(timeout=TEST_TIMEOUT)

    try:
        yield FaultSwitch(on, off)
    finally:
        for one in held:
            one.kill()
            one.communicate()


def _settings_fault(name: str, cause: str, step: str, text: str | bytes) -> FaultScenario:
    return FaultScenario(
        name=name, faults=[ExpectedMessage(name, cause, step, 78)], cannot=IN_HOMES, settings="",
        moment=FaultMoment.OPENING, broken=_config(text),
    )  # fmt: skip


def _file_fault(
    name: str, cause: str, step: str, broken: Callable[[Path], object]
) -> FaultScenario:
    return FaultScenario(
        name=name, faults=[ExpectedMessage(name, cause, step, 78)], cannot=IN_HOMES, settings="",
        moment=FaultMoment.OPENING, broken=broken,
    )  # fmt: skip


def _store_fault(
    name: str, cause: str, step: str, broken: Callable[[Path], object], exit_code: int = 1
) -> FaultScenario:
    return FaultScenario(
        name=name, faults=[ExpectedMessage(name, cause, step, exit_code)], cannot=IN_STORES,
        settings="",
        moment=FaultMoment.OPENING, broken=broken,
    )  # fmt: skip


EDIT = "hermes config edit"
HOME = "export HERMES_HOME="

HOME_FAULTS: Sequence[FaultScenario] = [
    _file_fault("home is a file", "is not a directory", HOME, _no_folder),
    _settings_fault("no yaml", "invalid YAML", EDIT, "agent:\n  max_turns: [\n"),
    _settings_fault("wrong type", "agent.max_turns: expected", EDIT, "agent:\n  max_turns: many\n"),
    _settings_fault("a list", "found a list", EDIT, "- a\n- b\n"),
    _settings_fault("wrong bytes", "is not UTF-8", "mv ", b"model: \xff\xfe\n"),
    _file_fault(
        "settings are a folder", "config.yaml cannot be read", "mv ",
        lambda home: (home / "config.yaml").mkdir(),
    ),
    _file_fault(
        "secrets are a folder", ".env cannot be read", "mv ",
        lambda home: (home / ".env").mkdir(),
    ),
    _file_fault(
        "secrets are no text", "byte 0 is not UTF-8", "mv ",
        lambda home: _secret(home, ".env", b"\xff\x00A=1\n"),
    ),
    _store_fault(
        "keys are damaged", "auth.json is damaged", "hermes auth add",
        lambda home: _secret(home, "auth.json", b"{oops"), 78,
    ),
    _store_fault(
        "no database", "is damaged or not a database", "restore a backup",
        lambda home: (home / "hermes.db").write_bytes(b"this is none, not at all " * 200),
    ),
    _store_fault(
        "another program's", "a database of another program", "mv ",
        lambda home: _sql(home, "CREATE TABLE x (a); PRAGMA user_version = 3"),
    ),
    _store_fault("a newer one", "has schema 9999", "Update Hermes", _newer),
    _store_fault(
        "a folder", "cannot be opened for writing", "ls -ld",
        lambda home: (home / "hermes.db").mkdir(),
    ),
    FaultScenario(
        name="logs are a file", moment=FaultMoment.OPENING, settings="", cannot=IN_STORES,
        faults=[ExpectedMessage("logs are a file", "logs cannot be created", HOME, 78)],
        differs={Surface.DOCTOR: ExpectedMessage("", "logs is not a folder", "mv ")},
        broken=lambda home: (home / "logs").write_text(""),
    ),
    FaultScenario(
        name="a home that cannot be written", moment=FaultMoment.OPENING,
        faults=[ExpectedMessage("unwritable", "cannot be created", HOME, 78)], settings="",
        cannot=IN_STORES, env={"HERMES_HOME": "/proc/hermes"},
        differs={
            Surface.GATEWAY: ExpectedMessage("", "gateway.lock cannot be used", HOME, 78),
            Surface.DOCTOR: ExpectedMessage("", "is not writable", HOME),
        },
    ),
    FaultScenario(
        name="a full disk at the start", moment=FaultMoment.OPENING, open_fault=_full,
        faults=[ExpectedMessage("full", "The disk is full", "df -h", 75)],
        cannot={**IN_STORES, Surface.DOCTOR: "Nothing is stored yet, so nothing is written."},
    ),
    FaultScenario(
        name="a locked file at the start", moment=FaultMoment.OPENING, open_fault=_locked,
        faults=[ExpectedMessage("locked", "locked by another process", "hermes gateway stop", 75)],
        cannot=IN_STORES,
    ),
    FaultScenario(
        name="a full disk in a turn", open_fault=_full, kept=False,
        faults=[ExpectedMessage("hello", "The disk is full", "df -h", 75)],
        differs={Surface.CHAT: ExpectedMessage("hello", "My disk is full", "df -h")},
        cannot={
            Surface.GATEWAY: STARTS, Surface.DOCTOR: NO_SESSION, Surface.CHECK: OTHER_FILES,
        },
    ),
    FaultScenario(
        name="a locked file in a turn", open_fault=_locked, long=True, kept=False,
        faults=[ExpectedMessage("hello", "locked by another process", "hermes gateway stop", 75)],
        differs={
            Surface.CHAT: ExpectedMessage("hello", "has locked my database", "hermes doctor")
        },
        cannot={
            Surface.GATEWAY: STARTS,
            Surface.DOCTOR: "It only reads, and readers do not wait for writers.",
            Surface.CHECK: OTHER_FILES,
        },
    ),
]  # fmt: skip


def _usage(
    name: str, cause: str, step: str, words: Sequence[str], exit_code: int = 2
) -> FaultScenario:
    """A wrong command line of a prompt or any conversation."""
    once = {"--image", "--usage-file"} & {*words}
    reason = "It has no such flag: there is no single answer."
    return FaultScenario(
        name=name, faults=[ExpectedMessage(name, cause, step, exit_code)], words=words,
        moment=FaultMoment.OPENING,
        cannot={
            **dict.fromkeys((Surface.LIBRARY, Surface.API, Surface.CHAT), NO_FLAGS),
            **dict.fromkeys((Surface.PLAIN, Surface.SCREEN) if once else (), reason),
            **dict.fromkeys((Surface.GATEWAY, Surface.DOCTOR, Surface.CHECK), NO_SESSION),
        },
    )  # fmt: skip


USAGE_FAULTS: Sequence[FaultScenario] = [
    _usage("no session", "no session 'nope'", "hermes sessions list", ["-r", "nope"], 1),
    _usage("nothing yet", "no session to continue", "Just start writing", ["-c"], 1),
    _usage("unknown toolset", "Unknown toolset: 'nope'", "Known toolsets", ["-t", "nope"]),
    _usage("no working folder", "/nowhere is not a folder", "--cwd", ["--cwd", "/nowhere"]),
    _usage("no picture", "Cannot read /nowhere.png", "Check", ["--image", "/nowhere.png"]),
    _usage("no png", "is not an image", "PNG", ["--image", "/etc/hostname"]),
    _usage(
        "no place", "is not a folder", "another path",
        ["--usage-file", "/nowhere/u.json"],
    ),
]  # fmt: skip


def _port_fault(name: str, key: str) -> FaultScenario:
    """A platform whose port is in use; `PORT` is replaced with it."""
    return FaultScenario(
        name=f"{name}: port taken",
        faults=[
            ExpectedMessage(
                name,
                "another program is already listening there",
                f"platforms.{name}.extra.port",
                143,
            )
        ],
        differs={
            Surface.DOCTOR: ExpectedMessage(
                name, "another program is already listening there", f"platforms.{name}.extra.port"
            )
        },
        cannot=all_surfaces_but(
            Surface.GATEWAY,
            Surface.DOCTOR,
            because=NO_PORT,
            CHECK=FILES_ONLY,
            API="It cannot be called: `gateway run` and the doctor report it.",
            CHAT="The chats continue: `gateway run` and the doctor report it.",
        ),
        settings="platforms:\n"
        f"  {name}:\n    enabled: true\n    extra:\n      port: PORT\n      {key}\n",
    )


PORT_FAULTS: Sequence[FaultScenario] = [
    _port_fault("api_server", "key: k-0123456789abcdef"),
    _port_fault("webhook", "host: 127.0.0.1"),
]

OLD_PYTHON = FaultScenario(
    moment=FaultMoment.OPENING,
    name="old Python",
    faults=[ExpectedMessage("old", "but this is Python 3.9", "make PYTHON=python3.12 run")],
    cannot={Surface.API: NO_GATEWAY, Surface.CHAT: NO_GATEWAY},
)

SCENARIOS: Sequence[FaultScenario] = [
    *MODELS,
    *HOME_FAULTS,
    *USAGE_FAULTS,
    *PORT_FAULTS,
    OLD_PYTHON,
]
ROWS = [(scenario, fault) for scenario in SCENARIOS for fault in scenario.faults]
SCENARIO_SURFACES = [
    (scenario, surface)
    for scenario in SCENARIOS
    for surface in Surface
    if surface not in scenario.cannot
]
