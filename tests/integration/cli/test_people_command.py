"""`hermes people` links accounts, for the owner of the home."""

import os
from pathlib import Path

from hermes.gateway.people import People
from hermes.kit.clock import SystemClock
from support.cli_process import TEST_TIMEOUT, CliResult
from support.preloaded_python import run_python

PROGRAM = """
import sys
from hermes.cli.arguments import build_parser
from hermes.cli.boundary import run_guarded
from hermes.cli.context import CliContext
from hermes.config.env import Env, process_env
from hermes.cli.verbs import people

parser = build_parser("people")
context = CliContext(Env(process_env()), None)
sys.exit(run_guarded(lambda: people.run(parser.parse_args(sys.argv[1:]), context)))
"""


class PeopleCli:
    """A home, with the gateway's view of its people."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.home.mkdir()
        self.gateway = People(self.home / "platforms" / "people", SystemClock())
        self.env = {"PATH": os.environ["PATH"], "HERMES_HOME": str(self.home), "LANG": "C.UTF-8"}

    def __call__(self, *words: str) -> CliResult:
        done = run_python(["-c", PROGRAM, *words], env=self.env, timeout=TEST_TIMEOUT)
        return CliResult(done.returncode, done.stdout.decode(), done.stderr.decode())


def test_list_in_an_empty_home_creates_nothing(tmp_path: Path) -> None:
    cli = PeopleCli(tmp_path)
    ran = cli("list")
    assert (ran.code, ran.out, ran.err) == (0, "", "No accounts are linked.\n")
    assert list(cli.home.iterdir()) == []


def test_accounts_are_linked_listed_and_unlinked(tmp_path: Path) -> None:
    cli = PeopleCli(tmp_path)
    assert cli.gateway.find("telegram:42") is None
    assert cli("link", "Telegram:42", "qqbot:E4F4", "signal:+1555").code == 0
    person = cli.gateway.find("qqbot:E4F4")
    assert person is not None, "a running gateway sees it"
    assert person.principal == "telegram:42"
    code = cli.gateway.issue("telegram:42", "42", "Ann")
    cli.gateway.check("irc:ann", code)
    cli.gateway.redeem("irc:ann", "ann", code)
    lines = [line.split() for line in cli("list").out.splitlines()]
    assert lines[0] == ["PERSON", "ACCOUNT", "LINKED", "BY"]
    assert [line[:3] for line in lines[1:]] == [
        ["1", "telegram:42", "you"], ["1", "qqbot:E4F4", "you"], ["1", "signal:+1555", "you"],
        ["1", "irc:ann", "a"],
    ]  # fmt: skip
    again = cli("link", "telegram:42", "slack:U1")
    assert "linked by a code and not by you: irc:ann." in again.err
    assert cli("unlink", "irc:ann").code == 0
    assert cli("link", "telegram:42", "slack:U1").err == ""
    assert cli("unlink", "qqbot:E4F4").code == 0
    assert cli.gateway.find("qqbot:E4F4") is None
    again = cli("unlink", "qqbot:E4F4")
    assert (again.code, "is not linked" in again.err) == (2, True)


def test_invalid_account_is_rejected(tmp_path: Path) -> None:
    cli = PeopleCli(tmp_path)
    for words in (("telegram:42", "ann"), ("telegram:42", "telegram:42")):
        ran = cli("link", *words)
        assert ran.code == 2
        assert "account" in ran.err
    assert cli.gateway.all() == ()


def test_account_on_an_unknown_platform_is_refused(tmp_path: Path) -> None:
    cli = PeopleCli(tmp_path)
    ran = cli("link", "telegram:1", "foo:2")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("hermes: Unknown platform: foo.\n")
    (cli.home / "config.yaml").write_text("platforms: {foo: {}}\n")
    assert cli("link", "telegram/work:1", "foo:2").code == 0
