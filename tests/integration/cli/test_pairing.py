"""`hermes pairing`: the owner lets people in and out, beside a gateway that does the same."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hermes.gateway.pairing import Pairing, PairingCode, PairingRefused
from hermes.kit.clock import SystemClock
from support.cli_process import TEST_TIMEOUT, CliResult

PROGRAM = """
import sys
from hermes.cli.boundary import run_guarded
from hermes.cli.context import make_context
from hermes.cli.parser import Parser
from hermes.cli.verbs import pairing

parser = Parser(prog="hermes pairing")
pairing.add_arguments(parser)
sys.exit(run_guarded(lambda: pairing.run(parser.parse_args(sys.argv[1:]), make_context(None))))
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


class House:
    """One person's home, with a gateway's own view of its pairings."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.home.mkdir()
        self.folder = self.home / "platforms" / "pairing"
        self.gateway = Pairing(self.folder, SystemClock())
        self.env = {"PATH": os.environ["PATH"], "HERMES_HOME": str(self.home), "LANG": "C.UTF-8"}

    def __call__(self, *words: str, **env: str) -> CliResult:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *words],
            env=self.env | env,
            capture_output=True,
            timeout=TEST_TIMEOUT,
            check=False,
        )
        return CliResult(done.returncode, done.stdout.decode(), done.stderr.decode())

    def code_for(self, user: str, name: str = "") -> str:
        issued = self.gateway.request("telegram", user, name)
        assert isinstance(issued, PairingCode)
        return issued.code


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def test_an_empty_home_has_nothing_to_show_and_stays_empty(house: House) -> None:
    ran = house("list")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err == "Nobody waits for approval, and nobody was let in by a code.\n"
    assert list(house.home.iterdir()) == []


def test_a_person_is_let_in_and_out(house: House) -> None:
    code = house.code_for("42", "Ann")
    waiting = house("list").out.splitlines()
    assert waiting[0] == "Waiting for approval:"
    assert waiting[1].split() == ["PLATFORM", "USER", "ASKED", "NAME"]
    assert waiting[2].split() == ["telegram", "42", "just", "now", "Ann"]
    assert code not in "".join(waiting)

    ran = house("approve", "telegram", code.lower())
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("42 (Ann) may talk to the agent on telegram from now on\n")
    assert house.gateway.approved("telegram") == {"42"}
    assert "Let in:" in house("list", "telegram").out
    assert house("list", "discord").out == ""

    ran = house("revoke", "telegram", "42")
    assert (ran.code, ran.out) == (0, "42 is no longer let in on telegram\n")
    assert house.gateway.approved("telegram") == frozenset()
    assert house("revoke", "telegram", "42").code == 2


def test_a_wrong_code_is_told_and_too_many_close_the_door(house: House) -> None:
    code = house.code_for("42")
    errors = [house("approve", "telegram", "AAAAAAAA") for _ in range(5)]
    assert {ran.code for ran in errors} == {2}
    assert "4 tries left" in errors[0].err
    assert "1 try left" in errors[3].err
    assert "again in 60 minutes" in errors[4].err
    locked = house("approve", "telegram", code)
    assert locked.code == 2
    assert "too many wrong ones" in locked.err
    assert isinstance(house.gateway.request("telegram", "43"), PairingRefused)


def test_what_is_no_code_or_no_platform_is_told(house: House) -> None:
    assert "is not a pairing code" in house("approve", "telegram", "hello").err
    assert "is not a platform name" in house("approve", "../x", "AAAAAAAA").err
    assert house("approve", "telegram").code == 2


def test_all_that_waits_is_forgotten(house: House) -> None:
    house.code_for("1")
    house.code_for("2")
    assert house("clear-pending", "telegram").out == "2 codes forgotten\n"
    assert house.gateway.pending() == []


def test_a_name_cannot_play_with_the_terminal(house: House) -> None:
    code = house.code_for("42", "\x1b[2J\u202eAnn")
    assert all(evil not in house("list").out for evil in ("\x1b", "\u202e"))
    assert all(evil not in house("approve", "telegram", code).out for evil in ("\x1b", "\u202e"))


def test_who_is_taken_out_is_taken_off_the_list_as_well(house: House) -> None:
    dotenv = house.home / ".env"
    dotenv.write_text("# mine\nTELEGRAM_ALLOWED_USERS=1, 42,7\n")
    house("approve", "telegram", house.code_for("42"))
    ran = house("revoke", "telegram", "42")
    assert "taken out of TELEGRAM_ALLOWED_USERS" in ran.out
    assert dotenv.read_text() == "# mine\nTELEGRAM_ALLOWED_USERS=1,7\n"


def test_a_list_that_cannot_be_changed_from_here_is_told(house: House) -> None:
    house("approve", "telegram", house.code_for("42"))
    ran = house("revoke", "telegram", "42", TELEGRAM_ALLOWED_USERS="42")
    assert ran.code == 0
    assert "is named in TELEGRAM_ALLOWED_USERS as well" in ran.err


def test_a_damaged_file_is_told(house: House) -> None:
    house.folder.mkdir(parents=True)
    (house.folder / "telegram-approved.json").write_text("{")
    ran = house("list")
    assert ran.code == 78
    assert "telegram-approved.json is damaged" in ran.err


def test_processes_that_write_at_once_lose_nothing(house: House) -> None:
    users = [str(number) for number in range(200)]
    house.folder.mkdir(parents=True)
    file = house.folder / "telegram-approved.json"
    file.write_text(json.dumps({"kept": {}} | {user: {} for user in users}))
    revokers = [
        subprocess.Popen(
            [sys.executable, "-c", REVOKER, str(house.folder), *users[start::4]],
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
    assert house.gateway.approved("telegram") == {"kept"}
    assert [path.name for path in house.folder.iterdir()] == [file.name]
