"""`hermes pairing` approves and revokes users while a gateway uses the same files."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hermes.gateway.pairing import Pairing, PairingCode, PairingRejected
from hermes.kit.clock import SystemClock
from support.cli_process import TEST_TIMEOUT, CliResult
from support.preloaded_python import run_python

PROGRAM = """
import sys
from hermes.cli.arguments import build_parser
from hermes.cli.boundary import run_guarded
from hermes.cli.context import CliContext
from hermes.config.env import Env, process_env
from hermes.cli.verbs import pairing

parser = build_parser("pairing")
context = CliContext(Env(process_env()), None)
sys.exit(run_guarded(lambda: pairing.run(parser.parse_args(sys.argv[1:]), context)))
"""
REVOKER = """
import sys
from pathlib import Path
from hermes.gateway.pairing import Pairing
from hermes.kit.clock import SystemClock

pairing = Pairing(Path(sys.argv[1]), SystemClock())
print("ready", flush=True)
sys.stdin.readline()
assert all(pairing.revoke("telegram", user) for user in sys.argv[2:])
"""


class PairingCli:
    """A home, with the gateway's view of its pairings."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.home.mkdir()
        self.folder = self.home / "platforms" / "pairing"
        self.gateway = Pairing(self.folder, SystemClock())
        self.env = {"PATH": os.environ["PATH"], "HERMES_HOME": str(self.home), "LANG": "C.UTF-8"}

    def __call__(self, *words: str, **env: str) -> CliResult:
        done = run_python(["-c", PROGRAM, *words], env=self.env | env, timeout=TEST_TIMEOUT)
        return CliResult(done.returncode, done.stdout.decode(), done.stderr.decode())

    def code_for(self, user: str, name: str = "") -> str:
        issued = self.gateway.request("telegram", user, name)
        assert isinstance(issued, PairingCode)
        return issued.code


@pytest.fixture
def cli(tmp_path: Path) -> PairingCli:
    return PairingCli(tmp_path)


def test_list_in_an_empty_home_creates_nothing(cli: PairingCli) -> None:
    ran = cli("list")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err == "No pending requests and no approved users.\n"
    assert list(cli.home.iterdir()) == []


def test_person_is_approved_and_revoked(cli: PairingCli) -> None:
    code = cli.code_for("42", "Ann")
    waiting = cli("list").out.splitlines()
    assert waiting[0] == "Pending:"
    assert waiting[1].split() == ["PLATFORM", "USER", "ASKED", "NAME"]
    assert waiting[2].split() == ["telegram", "42", "just", "now", "Ann"]
    assert code not in "".join(waiting)

    ran = cli("approve", "telegram", code.lower())
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("42 (Ann) can now message the agent on telegram\n")
    assert cli.gateway.approved("telegram") == {"42"}
    assert "Approved:" in cli("list", "telegram").out
    assert cli("list", "discord").out == ""

    ran = cli("revoke", "telegram", "42")
    assert (ran.code, ran.out) == (0, "42 can no longer message the agent on telegram\n")
    assert cli.gateway.approved("telegram") == frozenset()
    assert cli("revoke", "telegram", "42").code == 2


def test_name_that_is_the_id_is_shown_once(cli: PairingCli) -> None:
    code = cli.code_for("ann", "ann")
    assert cli("approve", "telegram", code).out.startswith("ann can now message the agent on")


def test_too_many_wrong_codes_lock_the_platform(cli: PairingCli) -> None:
    code = cli.code_for("42")
    errors = [cli("approve", "telegram", "AAAAAAAA") for _ in range(5)]
    assert {ran.code for ran in errors} == {2}
    assert "4 tries left" in errors[0].err
    assert "1 try left" in errors[3].err
    assert "again in 60 minutes" in errors[4].err
    locked = cli("approve", "telegram", code)
    assert locked.code == 2
    assert "too many wrong attempts" in locked.err
    assert isinstance(cli.gateway.request("telegram", "43"), PairingRejected)


def test_invalid_code_or_platform_is_reported(cli: PairingCli) -> None:
    assert "is not a pairing code" in cli("approve", "telegram", "hello").err
    assert "Unknown platform: ../x." in cli("approve", "../x", "AAAAAAAA").err
    assert cli("approve", "telegram").code == 2


def test_pending_codes_are_cleared(cli: PairingCli) -> None:
    cli.code_for("1")
    cli.code_for("2")
    assert cli("clear-pending", "telegram").out == "2 codes discarded\n"
    assert cli.gateway.pending() == []


def test_names_are_escaped(cli: PairingCli) -> None:
    code = cli.code_for("42", "\x1b[2J\u202eAnn")
    assert all(evil not in cli("list").out for evil in ("\x1b", "\u202e"))
    assert all(evil not in cli("approve", "telegram", code).out for evil in ("\x1b", "\u202e"))


def test_revoked_user_is_removed_from_the_allow_list(cli: PairingCli) -> None:
    dotenv = cli.home / ".env"
    dotenv.write_text("# mine\nTELEGRAM_ALLOWED_USERS=1, 42,7\n")
    cli("approve", "telegram", cli.code_for("42"))
    ran = cli("revoke", "telegram", "42")
    assert "also removed from TELEGRAM_ALLOWED_USERS" in ran.out
    assert dotenv.read_text() == "# mine\nTELEGRAM_ALLOWED_USERS=1,7\n"


def test_allow_list_in_the_environment_is_reported(cli: PairingCli) -> None:
    cli("approve", "telegram", cli.code_for("42"))
    ran = cli("revoke", "telegram", "42", TELEGRAM_ALLOWED_USERS="42")
    assert ran.code == 0
    assert "is also in TELEGRAM_ALLOWED_USERS" in ran.err


def test_damaged_file_is_reported(cli: PairingCli) -> None:
    cli.folder.mkdir(parents=True)
    (cli.folder / "telegram-approved.json").write_text("{")
    ran = cli("list")
    assert ran.code == 78
    assert "telegram-approved.json is damaged" in ran.err


def test_concurrent_processes_lose_nothing(cli: PairingCli) -> None:
    users = [str(number) for number in range(200)]
    cli.folder.mkdir(parents=True)
    file = cli.folder / "telegram-approved.json"
    file.write_text(json.dumps({"kept": {}} | {user: {} for user in users}))
    revokers = [
        subprocess.Popen(
            [sys.executable, "-c", REVOKER, str(cli.folder), *users[start::4]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for start in range(4)
    ]
    assert [revoker.stdout.readline() for revoker in revokers] == [b"ready\n"] * 4
    for revoker in revokers:
        revoker.stdin.write(b"\n")
        revoker.stdin.flush()
    for revoker in revokers:
        revoker.communicate(timeout=TEST_TIMEOUT)
    assert [revoker.returncode for revoker in revokers] == [0] * 4
    assert cli.gateway.approved("telegram") == {"kept"}
    assert [path.name for path in cli.folder.iterdir()] == [file.name]


def test_code_for_an_unknown_platform_does_not_count_as_an_attempt(cli: PairingCli) -> None:
    ran = cli("approve", "telegrm", "ABCDEFGH")
    assert ran.code == 2
    assert ran.err == "hermes: Unknown platform: telegrm.\n  Did you mean telegram?\n"
    issued = cli.gateway.request("of_a_plugin", "ann", "Ann")
    assert isinstance(issued, PairingCode)
    assert cli("approve", "of_a_plugin", issued.code).code == 0
