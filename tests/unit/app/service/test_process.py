"""The gateway process of a home: what it finds at the start and leaves at the end."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import structs

from hermes.app.service.control import StopOptions, stop_gateway
from hermes.app.service.lifecycle import (
    Ending,
    RunOptions,
    announce_stop,
    clean_shutdown_file,
    planned_stop,
    planned_stop_file,
)
from hermes.app.service.lock import AlreadyRunning, own_record, running_gateway
from hermes.app.service.main import run_gateway
from hermes.app.service.process import GatewayProcess, hold_gateway
from hermes.app.service.state_file import StateFile
from hermes.app.service.status import Phase, Snapshot, gateway_status, read_state
from hermes.cli.verbs.chat import has_gateway
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.config.sections.messaging import Gateway
from hermes.kit.errors import ConfigError
from hermes.testing.clock import FakeClock

RUNNING = Snapshot(gateway_state=Phase.RUNNING, active_agents=3)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path, tmp_path)


def hold(home: Home, **options: bool):
    return hold_gateway(home, [], RunOptions(**options), FakeClock())


def end(gateway_process: GatewayProcess, ending: Ending, number: int = 0) -> int:
    gateway_process.state.put(RUNNING)
    return gateway_process.end(ending, number)


@pytest.mark.parametrize(
    ("ending", "number", "code", "phase"),
    [
        (Ending.STOPPED, 15, 0, "stopped"),
        (Ending.RESTART, 10, 75, "running"),
        (Ending.SIGNAL, 15, 143, "stopped"),
        (Ending.SIGNAL, 2, 130, "stopped"),
        (Ending.FAILED, 0, 1, "running"),
    ],
)
def test_every_ending_has_its_exit_code_and_state(
    home: Home, ending: Ending, number: int, code: int, phase: str
) -> None:
    with hold(home) as gateway_process:
        assert gateway_process.previous_ending is None
        assert home.gateway_pid.exists()
        assert end(gateway_process, ending, number) == code
    state = read_state(home.gateway_state)
    assert state is not None
    assert (state.gateway_state, state.active_agents) == (phase, 0)
    assert state.restart_requested == (ending is Ending.RESTART)
    assert state.exit_reason
    assert not home.gateway_pid.exists()
    assert clean_shutdown_file(home).exists() == (ending is not Ending.FAILED)
    with hold(home) as gateway_process:
        assert gateway_process.previous_ending is (
            Ending.CRASHED if ending is Ending.FAILED else ending
        )
        assert not clean_shutdown_file(home).exists()
        end(gateway_process, Ending.STOPPED)


def test_draining_is_not_the_final_state(home: Home) -> None:
    with hold(home) as gateway_process:
        gateway_process.state.write(structs.replace(RUNNING, gateway_state=Phase.DRAINING))
        gateway_process.end(Ending.RESTART)
    assert read_state(home.gateway_state).gateway_state == "running"


def test_failure_is_recorded_and_raised(home: Home) -> None:
    with pytest.raises(ConfigError), hold(home):
        raise ConfigError("no token", hint="Set one.")
    state = read_state(home.gateway_state)
    assert (state.gateway_state, state.exit_reason) == ("startup_failed", "no token. Set one.")
    assert running_gateway(home) is None
    with pytest.raises(ZeroDivisionError), hold(home) as gateway_process:
        _break_down(gateway_process)
    assert read_state(home.gateway_state).gateway_state == "running"
    assert not gateway_status(home).died


def _break_down(gateway_process: GatewayProcess) -> None:
    gateway_process.state.write(RUNNING)
    raise ZeroDivisionError


def test_only_a_stop_announced_to_this_process_is_planned(home: Home) -> None:
    clock = FakeClock()
    announce_stop(home, structs.replace(_no_gateway(home), pid=os.getpid()), clock.now())
    with hold(home) as gateway_process:
        assert not planned_stop_file(home).exists()
        assert gateway_process.ending_of_signal(signal.SIGTERM) is Ending.SIGNAL
        announce_stop(home, structs.replace(gateway_process.record, start_time=1), clock.now())
        assert gateway_process.ending_of_signal(signal.SIGTERM) is Ending.SIGNAL
        announce_stop(home, gateway_process.record, clock.now(), "replaced")
        assert gateway_process.ending_of_signal(signal.SIGTERM) is Ending.STOPPED
        assert planned_stop(home, gateway_process.record).reason == "replaced"
        assert gateway_process.ending_of_signal(signal.SIGUSR1) is Ending.RESTART
        gateway_process.end(Ending.STOPPED)
    assert not planned_stop_file(home).exists()


@pytest.mark.parametrize(("reason", "awaited"), [("stop", False), ("restart", True)])
def test_state_tells_whether_a_restart_follows(home: Home, reason: str, awaited: bool) -> None:
    with hold(home) as gateway_process:
        assert has_gateway(home)
        announce_stop(home, gateway_process.record, FakeClock().now(), reason)
        gateway_process.end(gateway_process.ending_of_signal(signal.SIGTERM), signal.SIGTERM)
    assert has_gateway(home) is awaited
    with hold(home) as gateway_process:
        assert has_gateway(home)
        gateway_process.end(Ending.SIGNAL, signal.SIGTERM)
    assert not has_gateway(home)


def _no_gateway(home: Home):
    with hold(home) as gateway_process:
        gateway_process.end(Ending.STOPPED)
        return gateway_process.record


def test_force_skips_the_wait_but_still_parks(home: Home) -> None:
    for _ in range(8):
        with hold(home, force=True) as gateway_process:
            forced = gateway_process.count_start(Gateway())
            gateway_process.end(Ending.RESTART)
    assert (forced.wait, forced.park) == (0, True)
    with hold(home) as gateway_process:
        assert gateway_process.count_start(Gateway()).wait > 0
        gateway_process.end(Ending.STOPPED)


def test_second_gateway_changes_nothing(home: Home) -> None:
    with hold(home) as gateway_process:
        gateway_process.state.write(RUNNING)
        with pytest.raises(AlreadyRunning), hold(home):
            pass
        assert home.gateway_pid.exists()
        assert gateway_status(home).state.gateway_state == "running"
        gateway_process.end(Ending.STOPPED)


def test_unwritable_home_is_reported(tmp_path: Path) -> None:
    home = Home(tmp_path, tmp_path)
    home.gateway_pid.mkdir()
    with pytest.raises(ConfigError, match=r"cannot be written"), hold(home):
        pass
    assert running_gateway(home) is None


def test_state_of_another_process_is_ignored(home: Home) -> None:
    home.gateway_state.write_text('{"pid": 1, "gateway_state": "running"}')
    assert gateway_status(home).died
    with hold(home) as gateway_process:
        home.gateway_state.write_text('{"pid": 1, "gateway_state": "running"}')
        assert gateway_status(home).state is None
        gateway_process.end(Ending.STOPPED)


@pytest.mark.parametrize(("reason", "awaited"), [("stop", False), ("restart", True)])
def test_killed_gateway_is_not_waited_for(home: Home, reason: str, awaited: bool) -> None:
    """Also when it was about to restart itself."""
    code = "import hermes.kit.ids as h; print(h.process_id(), flush=True); input()"
    words = [sys.executable, "-c", code]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        holder = other.stdout.readline().strip()
        now = FakeClock().now()
        record = structs.replace(own_record(home, now), pid=other.pid, holder=holder)
        draining = Snapshot(gateway_state=Phase.DRAINING, restart_requested=not awaited)
        StateFile(home, record, FakeClock()).write(draining)
        assert stop_gateway(home, record, FakeClock(), StopOptions(force=True, reason=reason))
    assert has_gateway(home) is awaited


def test_start_with_invalid_settings_is_recorded(home: Home) -> None:
    with hold(home) as gateway_process:
        end(gateway_process, Ending.STOPPED, 15)
    (home.path / "config.yaml").write_text("model: [")
    with pytest.raises(ConfigError, match="invalid YAML"):
        run_gateway(home, Env({}), RunOptions())
    state = read_state(home.gateway_state)
    assert state is not None
    assert state.gateway_state == "startup_failed"
    assert "invalid YAML" in (state.exit_reason or "")


def test_running_gateway_keeps_its_state(home: Home) -> None:
    (home.path / "config.yaml").write_text("model: [")
    with hold(home) as gateway_process:
        gateway_process.state.write(RUNNING)
        with pytest.raises(ConfigError, match="invalid YAML"):
            run_gateway(home, Env({}), RunOptions(replace=True))
        state = read_state(home.gateway_state)
        assert state is not None
        assert state.gateway_state == "running"
        end(gateway_process, Ending.STOPPED, 15)
