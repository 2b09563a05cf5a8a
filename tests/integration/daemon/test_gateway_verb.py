"""`hermes gateway` against real processes: started, ended, killed, replaced and looked at."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hermes.app.service.lock import running_gateway
from hermes.config.home import Home
from support.cli_process import (
    HERMES_PROGRAM,
    TEST_TIMEOUT,
    CliResult,
    RunningCli,
    reserved_port,
    wait_for_data,
    wait_for_process_exit,
)

STANDIN = str(Path(__file__).parent / "standin")


class Person:
    """Somebody with a home and no systemd; what they start is ended after the test."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.home.mkdir()
        self.bin = root / "bin"
        self.bin.mkdir()
        self.env = {
            "PATH": str(self.bin),
            "HOME": str(root),
            "LANG": "C.UTF-8",
            "HERMES_HOME": str(self.home),
            "PYTHONPATH": STANDIN,
        }

    def __call__(self, *words: str, **env: str) -> CliResult:
        done = subprocess.run(
            [HERMES_PROGRAM, *words],
            env=self.env | env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TEST_TIMEOUT,
            check=False,
        )
        return CliResult(done.returncode, done.stdout.decode(), done.stderr.decode())

    @contextmanager
    def running(self, *words: str, **env: str) -> Iterator[RunningCli]:
        with subprocess.Popen(
            [HERMES_PROGRAM, *words],
            env=self.env | env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            try:
                yield RunningCli(process)
            finally:
                process.kill()

    def profile(self, name: str = "default") -> Home:
        path = self.home if name == "default" else self.home / "profiles" / name
        return Home(self.home, path, name)

    def state(self) -> dict:
        return json.loads((self.home / "gateway_state.json").read_text())

    def end(self) -> None:
        for path in [self.home, *self.home.glob("profiles/*")]:
            record = running_gateway(Home(self.home, path))
            if record is not None:
                os.kill(record.pid, signal.SIGKILL)
                wait_for_process_exit(record.pid)


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    somebody = Person(tmp_path)
    yield somebody
    somebody.end()


def test_the_life_of_a_gateway(person: Person) -> None:
    nothing = person("gateway", "status")
    assert nothing.code == 3
    assert nothing.out.splitlines()[0].split() == ["gateway", "not", "running"]
    assert person("gateway", "stop").out == "The gateway of profile default is not running\n"

    started = person("gateway", "start")
    assert (started.code, started.err) == (0, "  connecting telegram\n  2 platforms\n")
    record = running_gateway(person.profile())
    assert record is not None
    assert f"(pid {record.pid})" in started.out
    assert json.loads((person.home / "gateway.pid").read_text())["pid"] == record.pid
    assert person.state()["gateway_state"] == "degraded"
    assert (person.home / "gateway_state.json").stat().st_mode & 0o777 == 0o600
    assert "ready first" in (person.home / "logs" / "gateway.log").read_text()
    assert os.getsid(record.pid) == record.pid

    again = person("gateway", "start")
    assert (again.code, f"is already running (pid {record.pid})" in again.out) == (0, True)
    assert "changed since it started" not in again.out
    settings = person.home / "config.yaml"
    settings.touch()
    os.utime(settings, (2**32, 2**32))
    told = person("gateway", "start").out
    assert "config.yaml changed since it started. " in told
    assert "hermes gateway restart" in told
    settings.unlink()
    shown = person("gateway", "status")
    assert shown.code == 0
    assert f"pid {record.pid}, since " in shown.out
    rows = {line.split()[0]: line.split() for line in shown.out.splitlines() if line}
    assert rows["telegram"][1:] == ["connected", "just", "now"]
    assert rows["discord"][1:2] == ["retrying"]
    assert "failed: no route to host" in shown.out
    told = json.loads(person("gateway", "status", "--json").out)
    assert (told["running"], told["pid"], told["died"]) == (True, record.pid, False)
    assert told["state"]["platforms"]["discord"]["error_code"] == "failed"

    stopped = person("gateway", "stop")
    assert stopped.out == f"The gateway of profile default stopped (pid {record.pid})\n"
    wait_for_process_exit(record.pid)
    assert person.state()["gateway_state"] == "stopped"
    assert (person.home / ".clean_shutdown").exists()
    assert not (person.home / "gateway.pid").exists()
    assert not (person.home / ".gateway-planned-stop.json").exists()
    after = person("gateway", "status")
    assert (after.code, "stopped on request" in after.out) == (3, True)


def test_there_is_only_one(person: Person) -> None:
    with person.running("gateway", "run") as first:
        first.hears("ready")
        second = person("gateway", "run")
        assert second.code == 1
        assert f"is running already (pid {first.process.pid}, since " in second.err
        assert "--replace" in second.err
        with person.running("gateway", "run", "--replace") as third:
            third.hears("ready stopped")
            assert first.process.wait(TEST_TIMEOUT) == 0
            assert person.state()["pid"] == third.process.pid
            assert running_gateway(person.profile()).pid == third.process.pid


def test_of_many_that_start_at_once_one_runs(person: Person) -> None:
    starts = [
        subprocess.Popen(
            [HERMES_PROGRAM, "gateway", "run"], env=person.env, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for _ in range(4)
    ]  # fmt: skip
    try:
        # The winner stays, so the others end first.
        losers = [start for start in starts if _lost(start)]
        assert len(losers) == 3
        assert {start.wait(TEST_TIMEOUT) for start in losers} == {1}
        (winner,) = [start for start in starts if start not in losers]
        assert running_gateway(person.profile()).pid == winner.pid
    finally:
        for start in starts:
            start.kill()
            start.communicate(timeout=TEST_TIMEOUT)


def _lost(start: "subprocess.Popen[bytes]") -> bool:
    """Nothing on stdout means that it ended without having been ready."""
    return wait_for_data(start.stdout.fileno()) == b""


def test_an_unplanned_signal_leaves_it_to_be_started_again(person: Person) -> None:
    with person.running("gateway", "run") as gateway:
        gateway.hears("ready")
        ran = gateway.told(signal.SIGTERM)
    assert ran.code == 143
    assert person.state()["gateway_state"] == "degraded"
    assert person.state()["exit_reason"] == "ended by signal 15"
    assert not (person.home / "gateway.pid").exists()
    assert json.loads((person.home / ".clean_shutdown").read_text())["ending"] == "signal"
    status = person("gateway", "status")
    assert (status.code, "ended by signal 15" in status.out) == (3, True)


def test_a_killed_one_is_told_and_leaves_nothing_in_the_way(person: Person) -> None:
    with person.running("gateway", "run") as gateway:
        gateway.hears("ready")
        gateway.told(signal.SIGKILL)
        assert (person.home / "gateway.pid").exists()
        status = person("gateway", "status")
        assert (status.code, "it crashed or was killed" in status.out) == (3, True)
        assert json.loads(person("gateway", "status", "--json").out)["died"] is True
    with person.running("gateway", "run") as gateway:
        gateway.hears("ready crashed park=False wait=0")


def test_it_says_whom_it_serves_and_how_to_end_it(person: Person) -> None:
    with person.running("gateway", "run") as gateway:
        gateway.hears("ready first")
        said = gateway.heard.decode()
        assert f"running for profile default (pid {gateway.process.pid}). Ctrl+C stops it." in said
        assert "  telegram: connected\n" in said
        assert "  discord: retrying (no route to host)\n" in said
        assert str(person.home / "logs" / "agent.log") in said
        gateway.told(signal.SIGTERM)
    with person.running("gateway", "run", "-q") as gateway:
        gateway.hears("ready")
        assert gateway.heard.startswith(b"ready")


def test_settings_that_it_has_not_read_are_told(person: Person) -> None:
    person("gateway", "start")
    assert "restart to apply" not in person("gateway", "status").out
    person("config", "set", "timezone", "Europe/Berlin")
    assert "config.yaml changed since it started" in person("gateway", "status").out


def test_a_wish_to_restart_is_fulfilled_in_place(person: Person) -> None:
    with person.running("gateway", "run") as gateway:
        gateway.hears("ready first")
        gateway.process.send_signal(signal.SIGUSR1)
        gateway.hears("ready restart")
        assert running_gateway(person.profile()).pid == gateway.process.pid
    with person.running("gateway", "run", "--external-supervisor") as gateway:
        gateway.hears("ready crashed")
        assert gateway.told(signal.SIGUSR1).code == 75
    assert person.state()["restart_requested"] is True


def test_restarts_that_do_not_end_park_and_then_wait(person: Person) -> None:
    with person.running("gateway", "run") as gateway:
        for number in range(6):
            expected = f"park={number >= 3} wait={5 if number >= 5 else 0}"
            gateway.hears(expected)
            gateway.heard = b""
            gateway.process.send_signal(signal.SIGUSR1)
        gateway.hears("park=True wait=10")


def test_restart_from_outside(person: Person) -> None:
    person("gateway", "start")
    first = running_gateway(person.profile())
    ran = person("gateway", "restart")
    second = running_gateway(person.profile())
    assert (ran.code, "stopped" in ran.out, "is running" in ran.out) == (0, True, True)
    assert first.pid != second.pid
    assert "ready stopped" in (person.home / "logs" / "gateway.log").read_text()


def test_a_start_that_fails_tells_why(person: Person) -> None:
    ran = person("gateway", "start", STANDIN="fails")
    assert ran.code == 78
    assert "ended with exit code 78 before it was ready" in ran.err
    assert "telegram has no token" in ran.err
    assert person.state()["gateway_state"] == "startup_failed"
    assert person.state()["exit_reason"] == "telegram has no token. Set TELEGRAM_BOT_TOKEN."
    crashed = person("gateway", "start", STANDIN="crashes")
    assert (crashed.code, "was killed by signal 9" in crashed.err) == (137, True)


def test_who_cannot_wait_for_turns_interrupts_twice(person: Person) -> None:
    with person.running("gateway", "run", STANDIN="stubborn") as gateway:
        gateway.hears("ready")
        with person.running("gateway", "stop") as stop:
            gateway.hears("heard 15")
            stop.process.send_signal(signal.SIGINT)
            assert stop.process.stderr is not None
            heard = b""
            while b"press Ctrl+C again" not in heard:
                data = wait_for_data(stop.process.stderr.fileno())
                assert data, f"it hung up after {heard!r}"
                heard += data
            assert b"waiting for 1 running turn to end" in heard
            ran = stop.told(signal.SIGINT)
        assert (ran.code, "was killed" in ran.out) == (0, True)
        assert gateway.process.wait(TEST_TIMEOUT) == -signal.SIGKILL
    assert person.state()["gateway_state"] == "stopped"
    assert not (person.home / "gateway.pid").exists()
    with person.running("gateway", "run", STANDIN="stubborn") as gateway:
        gateway.hears("ready")
        assert person("gateway", "stop", "--force").code == 0
        assert gateway.process.wait(TEST_TIMEOUT) == -signal.SIGKILL


def test_a_turn_does_not_wait_for_the_gateway_that_waits_for_it(person: Person) -> None:
    with person.running("gateway", "run", STANDIN="stubborn") as gateway:
        gateway.hears("ready")
        ran = person("gateway", "stop", HERMES_SESSION_ID="s1")
        assert ran.out == "The gateway stops after this turn\n"
        gateway.hears("heard 15")
        gateway.process.send_signal(signal.SIGUSR2)
        assert gateway.process.wait(TEST_TIMEOUT) == 0
    with person.running("gateway", "run") as gateway:
        gateway.hears("ready")
        assert "restarts after" in person("gateway", "restart", HERMES_SESSION_ID="s1").out
        gateway.hears("ready restart")


def test_one_gateway_for_all_profiles(person: Person) -> None:
    for name in ("work", "play"):
        person("profile", "create", name)
    with person.running("gateway", "run", STANDIN="all") as gateway:
        gateway.hears("ready")
        pid = gateway.process.pid
        for words in (["gateway", "start"], ["gateway", "run"], ["gateway", "run", "--replace"]):
            refused = person("-p", "work", *words)
            assert refused.code == 1
            assert (
                f"Profile work is served already by the gateway of profile default (pid {pid}"
                in refused.err
            )
        assert person("-p", "work", "gateway", "stop").code == 1
        status = person("-p", "work", "gateway", "status")
        assert (status.code, "served by the gateway of profile default" in status.out) == (0, True)
        rows = [line.split() for line in person("gateway", "list").out.splitlines()]
        assert [row[:2] for row in rows[1:]] == [
            [name, str(pid)] for name in ("default", "play", "work")
        ]
        gateway.told(signal.SIGTERM)
    assert person("-p", "work", "gateway", "status").code == 3
    with person.running("-p", "work", "gateway", "run") as own:
        own.hears("ready")
        refused = person("gateway", "run", STANDIN="all")
        assert refused.code == 1
        assert f"of profile work is running already (pid {own.process.pid}" in refused.err
        assert running_gateway(person.profile()) is None


def test_looking_deeper(person: Person) -> None:
    with person.running("gateway", "run") as gateway:
        gateway.hears("ready")
        shown = person("gateway", "status", "--deep")
    assert "service  not installed" in shown.out
    assert "1 start on record" in shown.out


def test_a_garbled_home_is_no_obstacle(person: Person) -> None:
    for name in ("gateway.lock", "gateway_state.json", "gateway.pid", "gateway-starts.log"):
        (person.home / name).write_bytes(b"\xff{]")
    (person.home / ".clean_shutdown").write_bytes(b"")
    assert person("gateway", "status").code == 3
    with person.running("gateway", "run") as gateway:
        gateway.hears("ready signal")
        assert person("gateway", "status").code == 0


def test_what_excludes_each_other_is_told(person: Person) -> None:
    assert person("gateway", "run", "-q", "-v").code == 2


def test_a_pipe_that_is_gone_is_no_obstacle(person: Person) -> None:
    with person.running("gateway", "run", "--ready-fd", "99") as gateway:
        gateway.hears("ready")


def test_a_port_that_another_profile_has_is_named_with_a_command_for_this_one(
    person: Person,
) -> None:
    person.profile("work").path.mkdir(parents=True)
    # Real gateways, which really listen.
    del person.env["PYTHONPATH"]
    with reserved_port() as port:
        api = {"ENABLED": "true", "KEY": "0123456789abcdef0123", "PORT": str(port)}
        person.env |= {f"API_SERVER_{name}": value for name, value in api.items()}
        assert person("gateway", "start").code == 0
        ran = person("-p", "work", "gateway", "start")
        assert ran.code == 0
        assert "hermes -p work config set platforms.api_server.extra.port" in ran.err
        assert "The gateway of profile default (pid " in ran.err
        assert "serves api_server: each gateway needs its own ports" in ran.err
        assert "hermes -p work config set" in person("-p", "work", "gateway", "status").out
