"""`hermes send`: into the outbox, out of it, and what is told of each copy."""

import io
import json
import os
import subprocess
from argparse import Namespace
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import anyio
import pytest

from hermes.app.service.lock import take_lock
from hermes.app.service.options import RunOptions
from hermes.app.service.process import GatewayProcess, hold_gateway
from hermes.app.service.status import Phase, PlatformState, Snapshot
from hermes.cli.context import CliContext
from hermes.cli.parser import Parser
from hermes.cli.verbs.send import add_arguments
from hermes.cli.verbs.send.sender import send
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.gateway.messages import outbox_name, read_outbox_message
from hermes.kit.clock import SystemClock
from hermes.ports.store import CompleteItem
from hermes.schema.scope import Address
from hermes.store.sqlite import open_store
from support.cli_process import HERMES_PROGRAM, TEST_TIMEOUT, CliResult

CONFIG = """\
platforms:
  telegram: {enabled: true, home_channel: {chat_id: "100", thread_id: "7"}}
  discord: {enabled: true}
"""


class House:
    def __init__(self, root: Path) -> None:
        self.home = Home(root / "home", root / "home")
        self.home.path.mkdir()
        self.home.config.write_text(CONFIG)
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(root),
            "HERMES_HOME": str(self.home.path),
            "LANG": "C.UTF-8",
        }

    def __call__(self, *words: str, stdin: bytes | None = None, **env: str) -> CliResult:
        given = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}
        done = subprocess.run(
            [HERMES_PROGRAM, "send", *words], env=self.env | env, capture_output=True,
            timeout=TEST_TIMEOUT,
            check=False, cwd=self.home.path, **given,
        )  # fmt: skip
        return CliResult(done.returncode, done.stdout.decode(), done.stderr.decode())

    def waiting(self, channel: str = "telegram") -> list[tuple[Address, str]]:
        async def look() -> list[tuple[Address, str]]:
            async with open_store(self.home.state_db, SystemClock()) as store:
                rows = await store.queues.claim(outbox_name(channel), None, "me", timedelta(0), 100)
                replies = [read_outbox_message(row) for row in rows]
                assert all(reply.brought for reply in replies)
                return [(reply.address, reply.text) for reply in replies]

        return anyio.run(look)


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def test_without_a_gateway_it_is_safe_in_the_outbox(house: House) -> None:
    ran = house("-t", "telegram:42", "the build is green")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == (
        "telegram:42: accepted (no gateway runs; it goes out after: hermes gateway start)\n"
    )
    assert house.waiting() == [(Address("telegram", "42"), "the build is green")]


def test_text_comes_from_pipes_and_files(house: House) -> None:
    (house.home.path / "note.txt").write_text("from a file\n")
    assert house("-t", "telegram", "-q", stdin=b"piped\n").out == ""
    house("-t", "telegram", "-f", "note.txt", "-s", "Note")
    house("-t", "telegram", "-f", "-", stdin="ünï".encode())
    at = Address("telegram", "100", "7")
    assert house.waiting() == [(at, "piped"), (at, "Note\n\nfrom a file"), (at, "ünï")]


@pytest.mark.parametrize(
    ("words", "stdin"),
    [
        (["-t", "telegram"], b""),
        (["-t", "telegram", "  \n"], None),
        (["-t", "telegram:", "hi"], None),
        (["-t", "nowhere:1", "hi"], None),
        (["-t", "discord", "hi"], None),
        (["-t", "telegram", "-f", "missing.txt"], None),
        (["-t", "telegram", "-f", "x", "hi"], None),
        (["-t", "telegram"], b"\xff\xfe"),
        (["-t", "telegram"], b"x" * (1024 * 1024 + 1)),
    ],
)
def test_what_cannot_be_meant_is_told(house: House, words: list[str], stdin: bytes | None) -> None:
    ran = house(*words, stdin=stdin)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("hermes: ")
    assert not house.home.state_db.exists()


def test_origin_is_the_chat_of_the_turn_or_the_first_home(house: House) -> None:
    turn = {"HERMES_SESSION_PLATFORM": "discord", "HERMES_SESSION_CHAT_ID": "5"}
    assert house("hi", **turn).out.startswith("discord:5: accepted")
    assert house("hi").out.startswith("telegram:100:7: accepted")
    assert house.waiting("discord") == [(Address("discord", "5"), "hi")]


def test_local_is_a_file_and_a_part_that_failed_is_told(house: House) -> None:
    ran = house("-t", "local", "kept")
    path = Path(ran.out.removeprefix("local: written (").rstrip(")\n"))
    assert (ran.code, path.read_text()) == (0, "kept\n")
    assert path.is_relative_to(house.home.path)
    ran = house("-t", "telegram,nowhere:1", "--json", "both")
    told = json.loads(ran.out)
    assert (ran.code, told["ok"]) == (1, False)
    assert {line["target"]: line["outcome"] for line in told["results"]} == {
        "nowhere:1": "failed",
        "local": "written",
        "telegram:100:7": "accepted",
    }


def test_places_are_listed_and_found_by_name(house: House) -> None:
    entries = [{"id": 5, "name": "General", "type": "channel"}, {"id": "6"}, "garbage"]
    house.home.channel_directory.write_text(
        json.dumps({"platforms": {"discord": entries, "slack": [{"id": "C1", "name": "ops"}]}})
    )
    listed = house("-l").out.splitlines()
    assert [line.split() for line in listed[1:-1]] == [
        ["telegram:100:7", "home", "channel"],
        ["discord:5", "channel", "General"],
        ["discord:6"],
        ["slack:C1", "ops"],
    ]
    assert listed[-1].startswith("local ")
    assert json.loads(house("-l", "--json").out)[0] == {
        "target": "telegram:100:7",
        "about": "home channel",
    }
    assert house("-t", "discord:#general", "hi").out.startswith("discord:5: accepted")
    entries[1]["name"] = "general"
    house.home.channel_directory.write_text(json.dumps({"platforms": {"discord": entries}}))
    assert "2 discord chats are named" in house("-t", "discord:#general", "hi").err


def test_a_file_can_always_be_written(house: House) -> None:
    house.home.config.write_text("")
    ran = house("-l")
    assert ran.out.splitlines()[1].startswith("local ")
    assert "/sethome" in ran.err


def test_a_name_is_one_only_after_its_mark(house: House) -> None:
    """Whoever names a chat after the id of another one gets nothing that was meant for that."""
    entries = [
        {"id": "666", "name": "42", "type": "group"},
        {"id": "667", "name": "@news", "type": "group"},
        {"id": "#irc", "name": "", "type": "channel"},
        {"id": "668", "name": "#irc", "type": "group"},
        {"id": "669", "name": "boss", "type": "dm"},
    ]
    house.home.channel_directory.write_text(json.dumps({"platforms": {"telegram": entries}}))
    for given, meant in {
        "42": "42",
        "@news": "@news",
        "#irc": "#irc",
        "#boss": "#boss",
        "#42": "666",
        "#": "#",
    }.items():
        ran = house("-t", f"telegram:{given}", "hi")
        assert ran.out.startswith(f"telegram:{meant}: accepted"), ran


class Office:
    """This process holds the lock, as a gateway would; `wake` is its delivery."""

    def __init__(self, house: House, gateway_process: GatewayProcess) -> None:
        self.house = house
        self.gateway_process = gateway_process
        self.woken: list[Path] = []
        platforms = {"telegram": PlatformState(state="connected")}
        gateway_process.state.write(Snapshot(gateway_state=Phase.RUNNING, platforms=platforms))

    def delivers(self, folder: Path) -> bool:
        return self._settle(folder, refused=False)

    def refuses(self, folder: Path) -> bool:
        return self._settle(folder, refused=True)

    def sleeps(self, folder: Path) -> bool:
        self.woken.append(folder)
        return False

    def _settle(self, folder: Path, *, refused: bool) -> bool:
        async def settle() -> None:
            async with open_store(self.house.home.state_db, SystemClock()) as store:
                lane = outbox_name("telegram")
                for row in await store.queues.claim(lane, None, "me", timedelta(0), 100):
                    if refused:
                        await store.queues.park(row.key, "the chat is gone")
                    else:
                        await store.commit(CompleteItem(row.key))

        self.woken.append(folder)
        anyio.run(settle)
        return True

    def send(self, wake, *words: str) -> CliResult:
        parser = Parser(prog="hermes send")
        add_arguments(parser)
        args: Namespace = parser.parse_args(words)
        streams = (io.StringIO(), io.StringIO(), io.StringIO())
        code = send(args, CliContext(Env(self.house.env), None, streams), wake)
        return CliResult(code, streams[1].getvalue(), streams[2].getvalue())


@pytest.fixture
def office(house: House) -> Iterator[Office]:
    with hold_gateway(house.home, [], RunOptions(), SystemClock()) as gateway_process:
        yield Office(house, gateway_process)


def test_a_running_gateway_is_woken_and_its_delivery_told(office: Office) -> None:
    ran = office.send(office.delivers, "-t", "telegram", "hi")
    assert (ran.code, ran.out) == (0, "telegram:100:7: delivered\n")
    assert office.woken == [office.house.home.path]


def test_what_was_given_up_is_a_failure(office: Office) -> None:
    ran = office.send(office.refuses, "-t", "telegram:1", "hi")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "hermes: telegram:1: failed (the chat is gone)\n"


def test_nobody_waits_longer_than_they_like(office: Office) -> None:
    ran = office.send(office.sleeps, "-t", "telegram", "--no-wait", "hi")
    assert (ran.code, "the gateway was not reached" in ran.out) == (0, True)
    ran = office.send(office.sleeps, "-t", "telegram", "--timeout", "0.05", "hi")
    assert (ran.code, "telegram:100:7: accepted" in ran.out) == (0, True)
    ran = office.send(office.sleeps, "-t", "discord:1", "hi")
    assert "the gateway that runs has no discord" in ran.out


def test_a_guest_of_another_profile_s_gateway_knows_its_own_platforms(office: Office) -> None:
    work = Home(office.house.home.root, office.house.home.root / "profiles" / "work", "work")
    work.path.mkdir(parents=True)
    work.config.write_text(CONFIG)
    platforms = {"telegram": "connected", "work/discord": "connected", "work/telegram": "fatal"}
    states = {name: PlatformState(state=state) for name, state in platforms.items()}
    office.gateway_process.state.write(Snapshot(gateway_state=Phase.RUNNING, platforms=states))
    lock = take_lock(work, office.gateway_process.record)
    try:
        office.house.env["HERMES_HOME"] = str(work.path)
        ran = office.send(office.sleeps, "-t", "telegram:1,discord:1", "--timeout", "0.01", "hi")
        assert "telegram:1: accepted (the gateway that runs has no telegram" in ran.out
        assert "discord:1: accepted (the gateway was not reached" in ran.out
        assert office.woken == [work.path, office.house.home.path]
    finally:
        lock.release()
