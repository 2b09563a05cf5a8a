"""`hermes send`: queueing, delivery and the report for each target."""

import io
import json
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import anyio
import pytest

from hermes.app.service.lifecycle import RunOptions
from hermes.app.service.lock import take_lock
from hermes.app.service.process import GatewayProcess, hold_gateway
from hermes.app.service.status import Phase, PlatformState, Snapshot
from hermes.cli.arguments import build_parser
from hermes.cli.context import CliContext
from hermes.cli.verbs.send import send
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.gateway.messages import outbox_name, read_outbox_message
from hermes.kit.clock import SystemClock
from hermes.ports.store import CompleteItem
from hermes.schema.scope import Address
from hermes.store.sqlite import open_store
from support.cli_process import HERMES_PROGRAM, TEST_TIMEOUT, CliResult
from support.preloaded_python import run_python

CONFIG = """\
platforms:
  telegram: {enabled: true, home_channel: {chat_id: "100", thread_id: "7"}}
  discord: {enabled: true}
"""


class SendHome:
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

    def __call__(self, *args: str, stdin: bytes | None = None, **env: str) -> CliResult:
        done = run_python(
            [HERMES_PROGRAM, "send", *args], env=self.env | env, cwd=self.home.path, stdin=stdin,
            timeout=TEST_TIMEOUT,
        )  # fmt: skip
        return CliResult(done.returncode, done.stdout.decode(), done.stderr.decode())

    def waiting(self, channel: str = "telegram") -> list[tuple[Address, str]]:
        async def look() -> list[tuple[Address, str]]:
            async with open_store(self.home.database, SystemClock()) as store:
                rows = await store.queues.claim(outbox_name(channel), None, "me", timedelta(0), 100)
                replies = [read_outbox_message(row.body) for row in rows]
                assert all(reply.cross_post for reply in replies)
                return [(reply.address, reply.text) for reply in replies]

        return anyio.run(look)

    def fail(self, reason: str) -> None:
        async def park() -> None:
            async with open_store(self.home.database, SystemClock()) as store:
                (item,) = await store.queues.waiting(outbox_name("telegram"), 10)
                await store.queues.park(item.key, reason)

        anyio.run(park)


@pytest.fixture
def send_home(tmp_path: Path) -> SendHome:
    return SendHome(tmp_path)


def test_message_is_queued_without_a_gateway(send_home: SendHome) -> None:
    ran = send_home("-t", "telegram:42", "the build is green")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == (
        "telegram:42: accepted (no gateway is running; to deliver it: hermes gateway start)\n"
    )
    assert send_home.waiting() == [(Address("telegram", "42"), "the build is green")]


def test_text_from_pipes_and_files(send_home: SendHome) -> None:
    (send_home.home.path / "note.txt").write_text("from a file\n")
    assert send_home("-t", "telegram", "-q", stdin=b"piped\n").out == ""
    send_home("-t", "telegram", "-f", "note.txt", "-s", "Note")
    send_home("-t", "telegram", "-f", "-", stdin="ünï".encode())
    at = Address("telegram", "100", "7")
    assert send_home.waiting() == [(at, "piped"), (at, "Note\n\nfrom a file"), (at, "ünï")]


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
def test_invalid_arguments_are_reported(
    send_home: SendHome, words: list[str], stdin: bytes | None
) -> None:
    ran = send_home(*words, stdin=stdin)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("hermes: ")
    assert not send_home.home.database.exists()


def test_origin_is_the_current_chat_or_the_first_home(send_home: SendHome) -> None:
    turn = {"HERMES_SESSION_PLATFORM": "discord", "HERMES_SESSION_CHAT_ID": "5"}
    assert send_home("hi", **turn).out.startswith("discord:5: accepted")
    assert send_home("hi").out.startswith("telegram:100:7: accepted")
    assert send_home.waiting("discord") == [(Address("discord", "5"), "hi")]


def test_local_target_writes_a_file_and_failures_are_reported(send_home: SendHome) -> None:
    ran = send_home("-t", "local", "kept")
    path = Path(ran.out.removeprefix("local: written (").rstrip(")\n"))
    assert (ran.code, path.read_text()) == (0, "kept\n")
    assert path.is_relative_to(send_home.home.path)
    ran = send_home("-t", "telegram,nowhere:1", "--json", "both")
    reply = json.loads(ran.out)
    assert (ran.code, reply["ok"]) == (1, False)
    assert {line["target"]: line["outcome"] for line in reply["results"]} == {
        "nowhere:1": "failed",
        "local": "written",
        "telegram:100:7": "accepted",
    }


def test_chats_are_listed_and_found_by_name(send_home: SendHome) -> None:
    entries = [
        {"id": 5, "name": "General", "type": "channel"},
        {"id": "6"},
        {"id": "7", "name": "ann", "type": "dm"},
        "garbage",
    ]
    send_home.home.channel_directory.write_text(
        json.dumps({"platforms": {"discord": entries, "slack": [{"id": "C1", "name": "ops"}]}})
    )
    listed = send_home("-l").out.splitlines()
    assert [line.split() for line in listed[1:-1]] == [
        ["telegram:100:7", "home", "channel"],
        ["discord:5", "channel", "General"],
        ["discord:6"],
        ["discord:7", "direct", "message", "ann"],
        ["slack:C1", "ops"],
    ]
    assert listed[-1].startswith("local ")
    assert json.loads(send_home("-l", "--json").out)[0] == {
        "target": "telegram:100:7",
        "about": "home channel",
    }
    assert send_home("-t", "discord:#general", "hi").out.startswith("discord:5: accepted")
    entries[1]["name"] = "general"
    send_home.home.channel_directory.write_text(json.dumps({"platforms": {"discord": entries}}))
    assert "2 discord chats are named" in send_home("-t", "discord:#general", "hi").err


def test_local_target_always_works(send_home: SendHome) -> None:
    send_home.home.config.write_text("")
    ran = send_home("-l")
    assert ran.out.splitlines()[1].startswith("local ")
    assert "/sethome" in ran.err


def test_chat_names_require_their_prefix(send_home: SendHome) -> None:
    """A chat named like another chat's id must not get that chat's messages."""
    entries = [
        {"id": "666", "name": "42", "type": "group"},
        {"id": "667", "name": "@news", "type": "group"},
        {"id": "#irc", "name": "", "type": "channel"},
        {"id": "668", "name": "#irc", "type": "group"},
        {"id": "669", "name": "boss", "type": "dm"},
    ]
    send_home.home.channel_directory.write_text(json.dumps({"platforms": {"telegram": entries}}))
    for value, meant in {
        "42": "42",
        "@news": "@news",
        "#irc": "#irc",
        "#boss": "#boss",
        "#42": "666",
        "#": "#",
    }.items():
        ran = send_home("-t", f"telegram:{value}", "hi")
        assert ran.out.startswith(f"telegram:{meant}: accepted"), ran


class FakeGateway:
    """This process holds the lock like a gateway; `wake` acts as its delivery."""

    def __init__(self, send_home: SendHome, gateway_process: GatewayProcess) -> None:
        self.send_home = send_home
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
            async with open_store(self.send_home.home.database, SystemClock()) as store:
                queue = outbox_name("telegram")
                for row in await store.queues.claim(queue, None, "me", timedelta(0), 100):
                    if refused:
                        await store.queues.park(row.key, "the chat is gone")
                    else:
                        await store.commit(CompleteItem(row.key))

        self.woken.append(folder)
        anyio.run(settle)
        return True

    def send(self, wake, *words: str) -> CliResult:
        args = build_parser("send").parse_args(words)
        streams = (io.StringIO(), io.StringIO(), io.StringIO())
        code = send(args, CliContext(Env(self.send_home.env), None, streams), wake)
        return CliResult(code, streams[1].getvalue(), streams[2].getvalue())


@pytest.fixture
def fake_gateway(send_home: SendHome) -> Iterator[FakeGateway]:
    with hold_gateway(send_home.home, [], RunOptions(), SystemClock()) as gateway_process:
        yield FakeGateway(send_home, gateway_process)


def test_running_gateway_is_woken_and_delivery_reported(fake_gateway: FakeGateway) -> None:
    ran = fake_gateway.send(fake_gateway.delivers, "-t", "telegram", "hi")
    assert (ran.code, ran.out) == (0, "telegram:100:7: delivered\n")
    assert fake_gateway.woken == [fake_gateway.send_home.home.path]


def test_undelivered_message_is_a_failure(fake_gateway: FakeGateway) -> None:
    ran = fake_gateway.send(fake_gateway.refuses, "-t", "telegram:1", "hi")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "hermes: telegram:1: failed (the chat is gone)\n"


def test_wait_is_bounded(fake_gateway: FakeGateway) -> None:
    ran = fake_gateway.send(fake_gateway.sleeps, "-t", "telegram", "--no-wait", "hi")
    assert (ran.code, "the gateway could not be notified" in ran.out) == (0, True)
    ran = fake_gateway.send(fake_gateway.sleeps, "-t", "telegram", "--timeout", "0.05", "hi")
    assert (ran.code, "telegram:100:7: accepted" in ran.out) == (0, True)
    ran = fake_gateway.send(fake_gateway.sleeps, "-t", "discord:1", "hi")
    assert "the running gateway does not serve discord" in ran.out


def test_profile_served_by_another_gateway_uses_its_own_platforms(
    fake_gateway: FakeGateway,
) -> None:
    work = Home(
        fake_gateway.send_home.home.root,
        fake_gateway.send_home.home.root / "profiles" / "work",
        "work",
    )
    work.path.mkdir(parents=True)
    work.config.write_text(CONFIG)
    platforms = {"telegram": "connected", "work/discord": "connected", "work/telegram": "fatal"}
    states = {name: PlatformState(state=state) for name, state in platforms.items()}
    fake_gateway.gateway_process.state.write(
        Snapshot(gateway_state=Phase.RUNNING, platforms=states)
    )
    lock = take_lock(work, fake_gateway.gateway_process.record)
    try:
        fake_gateway.send_home.env["HERMES_HOME"] = str(work.path)
        ran = fake_gateway.send(
            fake_gateway.sleeps, "-t", "telegram:1,discord:1", "--timeout", "0.01", "hi"
        )
        assert "telegram:1: accepted (the running gateway does not serve telegram" in ran.out
        assert "discord:1: accepted (the gateway could not be notified" in ran.out
        assert fake_gateway.woken == [work.path, fake_gateway.send_home.home.path]
    finally:
        lock.release()


def test_undelivered_messages_are_listed_and_settled(send_home: SendHome) -> None:
    assert send_home("--failed").err == "There are no undelivered messages.\n"
    assert send_home("--retry", "all").err == "hermes: There are no undelivered messages.\n"
    for text in ("the build is green", "the build is red"):
        send_home("-t", "telegram:42", text)
        send_home.fail("Bad Request: chat not found")
    shown = send_home("--failed").out.splitlines()
    assert shown[1:3] == [
        "  telegram:42 (just now): the build is green",
        "  Bad Request: chat not found",
    ]
    assert shown[4] == "  telegram:42 (just now): the build is red"
    assert send_home("--retry", shown[0]).out == "1 message will be tried again.\n"
    assert send_home.waiting() == [(Address("telegram", "42"), "the build is green")]
    assert send_home("--discard", shown[0]).code == 1
    (left,) = json.loads(send_home("--failed", "--json").out)
    assert (left["id"], left["text"]) == (shown[3], "the build is red")
    assert send_home("--discard", "all").out == "1 message discarded.\n"
    assert send_home("--failed").out == ""
