"""`hermes gateway` against real processes: start, stop, kill, replace and status."""

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

STANDIN = str(Path(__file__).parent / "fake_service")


class CliHome:
    """A home without systemd; started processes are ended after the test."""

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

    def __call__(self, *args: str, **env: str) -> CliResult:
        done = subprocess.run(
            [HERMES_PROGRAM, *args],
            env=self.env | env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TEST_TIMEOUT,
            check=False,
        )
        return CliResult(done.returncode, done.stdout.decode(), done.stderr.decode())

    @contextmanager
    def running(self, *args: str, **env: str) -> Iterator[RunningCli]:
        with subprocess.Popen(
            [HERMES_PROGRAM, *args],
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
def cli_home(tmp_path: Path) -> Iterator[CliHome]:
    manual_runner = CliHome(tmp_path)
    yield manual_runner
    manual_runner.end()


def test_start_status_and_stop(cli_home: CliHome) -> None:
    nothing = cli_home("gateway", "status")
    assert nothing.code == 3
    assert nothing.out.splitlines()[0].split() == ["gateway", "not", "running"]
    assert cli_home("gateway", "stop").out == "The gateway of profile default is not running\n"

    started = cli_home("gateway", "start")
    assert (started.code, started.err) == (0, "  connecting telegram\n  2 platforms\n")
    record = running_gateway(cli_home.profile())
    assert record is not None
    assert f"(pid {record.pid})" in started.out
    assert json.loads((cli_home.home / "gateway.pid").read_text())["pid"] == record.pid
    assert cli_home.state()["gateway_state"] == "degraded"
    assert (cli_home.home / "gateway_state.json").stat().st_mode & 0o777 == 0o600
    assert "ready first" in (cli_home.home / "logs" / "gateway.log").read_text()
    assert os.getsid(record.pid) == record.pid

    again = cli_home("gateway", "start")
    assert (again.code, f"is already running (pid {record.pid})" in again.out) == (0, True)
    assert "changed since it started" not in again.out
    settings = cli_home.home / "config.yaml"
    settings.touch()
    assert "changed since it started" not in cli_home("gateway", "start").out
    settings.write_text("timezone: UTC\n")
    (cli_home.home / ".env").write_text("LANG=C\n")
    reply = cli_home("gateway", "start").out
    assert "config.yaml and .env changed since it started. " in reply
    assert "hermes gateway restart" in reply
    settings.unlink()
    shown = cli_home("gateway", "status")
    assert shown.code == 0
    assert f"pid {record.pid}, since " in shown.out
    rows = {line.split()[0]: line.split() for line in shown.out.splitlines() if line}
    assert rows["telegram"][1:] == ["connected", "just", "now"]
    assert rows["discord"][1:2] == ["retrying"]
    assert "failed: no route to host" in shown.out
    reply = json.loads(cli_home("gateway", "status", "--json").out)
    assert (reply["running"], reply["pid"], reply["died"]) == (True, record.pid, False)
    assert reply["state"]["platforms"]["discord"]["error_code"] == "failed"

    stopped = cli_home("gateway", "stop")
    assert stopped.out == f"The gateway of profile default stopped (pid {record.pid})\n"
    wait_for_process_exit(record.pid)
    assert cli_home.state()["gateway_state"] == "stopped"
    assert (cli_home.home / ".clean_shutdown").exists()
    assert not (cli_home.home / "gateway.pid").exists()
    assert not (cli_home.home / ".gateway-planned-stop.json").exists()
    after = cli_home("gateway", "status")
    assert (after.code, "stopped on request" in after.out) == (3, True)


def test_second_gateway_is_refused(cli_home: CliHome) -> None:
    with cli_home.running("gateway", "run") as first:
        first.wait_for("ready")
        second = cli_home("gateway", "run")
        assert second.code == 1
        assert f"is already running (pid {first.process.pid}, since " in second.err
        assert "--replace" in second.err
        with cli_home.running("gateway", "run", "--replace") as third:
            third.wait_for("ready stopped")
            assert first.process.wait(TEST_TIMEOUT) == 0
            assert cli_home.state()["pid"] == third.process.pid
            assert running_gateway(cli_home.profile()).pid == third.process.pid


def test_only_one_of_many_concurrent_starts_runs(cli_home: CliHome) -> None:
    starts = [
        subprocess.Popen(
            [HERMES_PROGRAM, "gateway", "run"], env=cli_home.env, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for _ in range(4)
    ]  # fmt: skip
    try:
        # The winner keeps running, so the others end first.
        losers = [start for start in starts if _lost(start)]
        assert len(losers) == 3
        assert {start.wait(TEST_TIMEOUT) for start in losers} == {1}
        (winner,) = [start for start in starts if start not in losers]
        assert running_gateway(cli_home.profile()).pid == winner.pid
    finally:
        for start in starts:
            start.kill()
            start.communicate(timeout=TEST_TIMEOUT)


def _lost(start: "subprocess.Popen[bytes]") -> bool:
    """Nothing on stdout means that it ended before it was ready."""
    return wait_for_data(start.stdout.fileno()) == b""


def test_unplanned_signal_keeps_it_restartable(cli_home: CliHome) -> None:
    with cli_home.running("gateway", "run") as gateway:
        gateway.wait_for("ready")
        ran = gateway.send_signal(signal.SIGTERM)
    assert ran.code == 143
    assert cli_home.state()["gateway_state"] == "stopped"
    assert cli_home.state()["exit_reason"] == "ended by signal 15"
    assert not (cli_home.home / "gateway.pid").exists()
    assert json.loads((cli_home.home / ".clean_shutdown").read_text())["ending"] == "signal"
    status = cli_home("gateway", "status")
    assert (status.code, "ended by signal 15" in status.out) == (3, True)


def test_killed_gateway_is_reported_and_can_be_restarted(cli_home: CliHome) -> None:
    with cli_home.running("gateway", "run") as gateway:
        gateway.wait_for("ready")
        gateway.send_signal(signal.SIGKILL)
        assert (cli_home.home / "gateway.pid").exists()
        status = cli_home("gateway", "status")
        assert (status.code, "it crashed or was killed" in status.out) == (3, True)
        assert json.loads(cli_home("gateway", "status", "--json").out)["died"] is True
    with cli_home.running("gateway", "run") as gateway:
        gateway.wait_for("ready crashed park=False wait=0")


def test_run_prints_profiles_and_how_to_stop(cli_home: CliHome) -> None:
    with cli_home.running("gateway", "run") as gateway:
        gateway.wait_for("ready first")
        output = gateway.output.decode()
        assert (
            f"running for profile default (pid {gateway.process.pid}). Ctrl+C stops it." in output
        )
        assert "  telegram: connected\n" in output
        assert "  discord: retrying (no route to host)\n" in output
        assert str(cli_home.home / "logs" / "agent.log") in output
        gateway.send_signal(signal.SIGTERM)
    with cli_home.running("gateway", "run", "-q") as gateway:
        gateway.wait_for("ready")
        assert gateway.output.startswith(b"ready")


def test_changed_settings_are_reported(cli_home: CliHome) -> None:
    cli_home("gateway", "start")
    assert "To apply the changes" not in cli_home("gateway", "status").out
    cli_home("config", "set", "timezone", "Europe/Berlin")
    assert "config.yaml changed since it started" in cli_home("gateway", "status").out


def test_gateway_is_not_stopped_if_the_settings_are_wrong(cli_home: CliHome) -> None:
    cli_home("gateway", "start")
    record = running_gateway(cli_home.profile())
    (cli_home.home / "config.yaml").write_text("agent: [\n")
    refused = cli_home("gateway", "restart")
    assert (refused.code, refused.out) == (78, "")
    assert "The gateway was not restarted." in refused.err
    assert "invalid YAML" in refused.err
    assert running_gateway(cli_home.profile()) == record
    assert "config.yaml changed and is not valid: " in cli_home("gateway", "status").out


def test_requested_restart_happens_in_place(cli_home: CliHome) -> None:
    with cli_home.running("gateway", "run") as gateway:
        gateway.wait_for("ready first")
        gateway.process.send_signal(signal.SIGUSR1)
        gateway.wait_for("ready restart")
        assert running_gateway(cli_home.profile()).pid == gateway.process.pid
    with cli_home.running("gateway", "run", "--external-supervisor") as gateway:
        gateway.wait_for("ready crashed")
        assert gateway.send_signal(signal.SIGUSR1).code == 75
    assert cli_home.state()["restart_requested"] is True


def test_restart_loop_parks_turns_and_then_waits(cli_home: CliHome) -> None:
    with cli_home.running("gateway", "run") as gateway:
        for number in range(6):
            expected = f"park={number >= 3} wait={5 if number >= 5 else 0}"
            gateway.wait_for(expected)
            gateway.output = b""
            gateway.process.send_signal(signal.SIGUSR1)
        gateway.wait_for("park=True wait=10")


def test_restart_command(cli_home: CliHome) -> None:
    cli_home("gateway", "start")
    first = running_gateway(cli_home.profile())
    ran = cli_home("gateway", "restart")
    second = running_gateway(cli_home.profile())
    assert (ran.code, "stopped" in ran.out, "is running" in ran.out) == (0, True, True)
    assert first.pid != second.pid
    assert "ready stopped" in (cli_home.home / "logs" / "gateway.log").read_text()


def test_failed_start_is_explained(cli_home: CliHome) -> None:
    ran = cli_home("gateway", "start", STANDIN="fails")
    assert ran.code == 78
    assert "ended with exit code 78 before it was ready" in ran.err
    assert "telegram has no token" in ran.err
    assert cli_home.state()["gateway_state"] == "startup_failed"
    assert cli_home.state()["exit_reason"] == "telegram has no token. Set TELEGRAM_BOT_TOKEN."
    crashed = cli_home("gateway", "start", STANDIN="crashes")
    assert (crashed.code, "was killed by signal 9" in crashed.err) == (137, True)


def test_second_interrupt_kills_the_gateway(cli_home: CliHome) -> None:
    with cli_home.running("gateway", "run", STANDIN="stubborn") as gateway:
        gateway.wait_for("ready")
        with cli_home.running("gateway", "stop") as stop:
            gateway.wait_for("heard 15")
            stop.process.send_signal(signal.SIGINT)
            assert stop.process.stderr is not None
            received = b""
            while b"press Ctrl+C again" not in received:
                data = wait_for_data(stop.process.stderr.fileno())
                assert data, f"it hung up after {received!r}"
                received += data
            assert b"waiting for 1 running turn to end" in received
            ran = stop.send_signal(signal.SIGINT)
        assert (ran.code, "was killed" in ran.out) == (0, True)
        assert gateway.process.wait(TEST_TIMEOUT) == -signal.SIGKILL
    assert cli_home.state()["gateway_state"] == "stopped"
    assert not (cli_home.home / "gateway.pid").exists()
    with cli_home.running("gateway", "run", STANDIN="stubborn") as gateway:
        gateway.wait_for("ready")
        assert cli_home("gateway", "stop", "--force").code == 0
        assert gateway.process.wait(TEST_TIMEOUT) == -signal.SIGKILL


def test_stop_from_within_a_turn_does_not_deadlock(cli_home: CliHome) -> None:
    with cli_home.running("gateway", "run", STANDIN="stubborn") as gateway:
        gateway.wait_for("ready")
        ran = cli_home("gateway", "stop", HERMES_SESSION_ID="s1")
        assert ran.out == "The gateway stops after this turn\n"
        gateway.wait_for("heard 15")
        gateway.process.send_signal(signal.SIGUSR2)
        assert gateway.process.wait(TEST_TIMEOUT) == 0
    with cli_home.running("gateway", "run") as gateway:
        gateway.wait_for("ready")
        assert "restarts after" in cli_home("gateway", "restart", HERMES_SESSION_ID="s1").out
        gateway.wait_for("ready restart")


def test_one_gateway_for_all_profiles(cli_home: CliHome) -> None:
    for name in ("work", "play"):
        cli_home("profile", "create", name)
    with cli_home.running("gateway", "run", STANDIN="all") as gateway:
        gateway.wait_for("ready")
        pid = gateway.process.pid
        for args in (["gateway", "start"], ["gateway", "run"], ["gateway", "run", "--replace"]):
            refused = cli_home("-p", "work", *args)
            assert refused.code == 1
            assert (
                f"Profile work is already served by the gateway of profile default (pid {pid}"
                in refused.err
            )
        assert cli_home("-p", "work", "gateway", "stop").code == 1
        status = cli_home("-p", "work", "gateway", "status")
        assert (status.code, "served by the gateway of profile default" in status.out) == (0, True)
        rows = [line.split() for line in cli_home("gateway", "list").out.splitlines()]
        assert [row[:2] for row in rows[1:]] == [
            [name, str(pid)] for name in ("default", "play", "work")
        ]
        gateway.send_signal(signal.SIGTERM)
    assert cli_home("-p", "work", "gateway", "status").code == 3
    with cli_home.running("-p", "work", "gateway", "run") as own:
        own.wait_for("ready")
        refused = cli_home("gateway", "run", STANDIN="all")
        assert refused.code == 1
        assert f"of profile work is already running (pid {own.process.pid}" in refused.err
        assert running_gateway(cli_home.profile()) is None


def test_deep_status(cli_home: CliHome) -> None:
    with cli_home.running("gateway", "run") as gateway:
        gateway.wait_for("ready")
        shown = cli_home("gateway", "status", "--deep")
    assert "service  not installed" in shown.out
    assert "1 start on record" in shown.out


def test_invalid_state_files_are_ignored(cli_home: CliHome) -> None:
    for name in ("gateway.lock", "gateway_state.json", "gateway.pid", "gateway-starts.log"):
        (cli_home.home / name).write_bytes(b"\xff{]")
    (cli_home.home / ".clean_shutdown").write_bytes(b"")
    assert cli_home("gateway", "status").code == 3
    with cli_home.running("gateway", "run") as gateway:
        gateway.wait_for("ready signal")
        assert cli_home("gateway", "status").code == 0


def test_conflicting_options_are_reported(cli_home: CliHome) -> None:
    assert cli_home("gateway", "run", "-q", "-v").code == 2


def test_closed_pipe_is_ignored(cli_home: CliHome) -> None:
    with cli_home.running("gateway", "run", "--ready-fd", "99") as gateway:
        gateway.wait_for("ready")


def test_port_conflict_hint_names_the_profile(
    cli_home: CliHome,
) -> None:
    cli_home.profile("work").path.mkdir(parents=True)
    # Real gateways that listen on real ports.
    del cli_home.env["PYTHONPATH"]
    with reserved_port() as port:
        api = {"ENABLED": "true", "KEY": "0123456789abcdef0123", "PORT": str(port)}
        cli_home.env |= {f"API_SERVER_{name}": value for name, value in api.items()}
        assert cli_home("gateway", "start").code == 0
        ran = cli_home("-p", "work", "gateway", "start")
        assert ran.code == 0
        assert "hermes -p work config set platforms.api_server.extra.port" in ran.err
        assert "The gateway of profile default (pid " in ran.err
        assert "serves api_server: each gateway needs its own ports" in ran.err
        assert "hermes -p work config set" in cli_home("-p", "work", "gateway", "status").out
