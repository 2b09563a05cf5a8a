"""Being the gateway of a home: what is found at the start, and what is left at the end."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import structs

from hermes.cli.start import gateway_lives
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.config.sections.chats import Gateway
from hermes.daemon.control import Manner, end_gateway
from hermes.daemon.lock import AlreadyRunning, who_holds
from hermes.daemon.marks import announce_stop, farewell_file, planned_stop, planned_stop_file
from hermes.daemon.options import Ending, RunOptions
from hermes.daemon.process import run_gateway
from hermes.daemon.record import own_record
from hermes.daemon.standing import look
from hermes.daemon.state import Phase, Snapshot, read_state
from hermes.daemon.state_file import StateFile
from hermes.daemon.tenure import Tenure, hold
from hermes.kit.errors import ConfigError
from hermes.testing.clock import FakeClock

RUNNING = Snapshot(gateway_state=Phase.RUNNING, active_agents=3)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path, tmp_path)


def held(home: Home, **options: bool):
    return hold(home, [], RunOptions(**options), FakeClock())


def end(tenure: Tenure, ending: Ending, number: int = 0) -> int:
    tenure.state.put(RUNNING)
    return tenure.end(ending, number)


@pytest.mark.parametrize(
    ("ending", "number", "code", "phase"),
    [
        (Ending.STOPPED, 15, 0, "stopped"),
        (Ending.RESTART, 10, 75, "running"),
        (Ending.SIGNAL, 15, 143, "running"),
        (Ending.SIGNAL, 2, 130, "running"),
        (Ending.FAILED, 0, 1, "running"),
    ],
)
def test_every_end_has_its_code_and_its_last_word(
    home: Home, ending: Ending, number: int, code: int, phase: str
) -> None:
    with held(home) as tenure:
        assert tenure.before is None
        assert home.gateway_pid.exists()
        assert end(tenure, ending, number) == code
    state = read_state(home.gateway_state)
    assert state is not None
    assert (state.gateway_state, state.active_agents) == (phase, 0)
    assert state.restart_requested == (ending is Ending.RESTART)
    assert state.exit_reason
    assert not home.gateway_pid.exists()
    assert farewell_file(home).exists() == (ending is not Ending.FAILED)
    with held(home) as tenure:
        assert tenure.before is (Ending.CRASHED if ending is Ending.FAILED else ending)
        assert not farewell_file(home).exists()
        end(tenure, Ending.STOPPED)


def test_draining_is_not_how_it_is_remembered(home: Home) -> None:
    with held(home) as tenure:
        tenure.state.write(structs.replace(RUNNING, gateway_state=Phase.DRAINING))
        tenure.end(Ending.SIGNAL, signal.SIGTERM)
    assert read_state(home.gateway_state).gateway_state == "running"


def test_a_failure_is_told_and_raised(home: Home) -> None:
    with pytest.raises(ConfigError), held(home):
        raise ConfigError("no token", hint="Set one.")
    state = read_state(home.gateway_state)
    assert (state.gateway_state, state.exit_reason) == ("startup_failed", "no token. Set one.")
    assert who_holds(home) is None
    with pytest.raises(ZeroDivisionError), held(home) as tenure:
        _break_down(tenure)
    assert read_state(home.gateway_state).gateway_state == "running"
    assert not look(home).died


def _break_down(tenure: Tenure) -> None:
    tenure.state.write(RUNNING)
    raise ZeroDivisionError


def test_only_a_stop_that_was_announced_to_us_is_planned(home: Home) -> None:
    clock = FakeClock()
    announce_stop(home, structs.replace(_nobody(home), pid=os.getpid()), clock.now())
    with held(home) as tenure:
        assert not planned_stop_file(home).exists()
        assert tenure.ending_for(signal.SIGTERM) is Ending.SIGNAL
        announce_stop(home, structs.replace(tenure.record, start_time=1), clock.now())
        assert tenure.ending_for(signal.SIGTERM) is Ending.SIGNAL
        announce_stop(home, tenure.record, clock.now(), "replaced")
        assert tenure.ending_for(signal.SIGTERM) is Ending.STOPPED
        assert planned_stop(home, tenure.record).reason == "replaced"
        assert tenure.ending_for(signal.SIGUSR1) is Ending.RESTART
        tenure.end(Ending.STOPPED)
    assert not planned_stop_file(home).exists()


@pytest.mark.parametrize(("reason", "awaited"), [("stop", False), ("restart", True)])
def test_whoever_talks_to_it_knows_whether_another_one_comes(
    home: Home, reason: str, awaited: bool
) -> None:
    with held(home) as tenure:
        assert gateway_lives(home)
        announce_stop(home, tenure.record, FakeClock().now(), reason)
        tenure.end(tenure.ending_for(signal.SIGTERM), signal.SIGTERM)
    assert gateway_lives(home) is awaited
    with held(home) as tenure:
        assert gateway_lives(home)
        tenure.end(Ending.SIGNAL, signal.SIGTERM)
    assert not gateway_lives(home)


def _nobody(home: Home):
    with held(home) as tenure:
        tenure.end(Ending.STOPPED)
        return tenure.record


def test_force_does_not_wait_but_parks_all_the_same(home: Home) -> None:
    for _ in range(8):
        with held(home, force=True) as tenure:
            forced = tenure.count_start(Gateway())
            tenure.end(Ending.RESTART)
    assert (forced.wait, forced.park) == (0, True)
    with held(home) as tenure:
        assert tenure.count_start(Gateway()).wait > 0
        tenure.end(Ending.STOPPED)


def test_a_second_one_changes_nothing(home: Home) -> None:
    with held(home) as tenure:
        tenure.state.write(RUNNING)
        with pytest.raises(AlreadyRunning), held(home):
            pass
        assert home.gateway_pid.exists()
        assert look(home).state.gateway_state == "running"
        tenure.end(Ending.STOPPED)


def test_a_home_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    home = Home(tmp_path, tmp_path)
    home.gateway_pid.mkdir()
    with pytest.raises(ConfigError, match=r"cannot be written"), held(home):
        pass
    assert who_holds(home) is None


def test_a_state_of_another_process_is_not_taken_for_ours(home: Home) -> None:
    home.gateway_state.write_text('{"pid": 1, "gateway_state": "running"}')
    assert look(home).died
    with held(home) as tenure:
        home.gateway_state.write_text('{"pid": 1, "gateway_state": "running"}')
        assert look(home).state is None
        tenure.end(Ending.STOPPED)


@pytest.mark.parametrize(("reason", "awaited"), [("stop", False), ("restart", True)])
def test_one_that_is_killed_is_awaited_no_longer_than_it_should_be(
    home: Home, reason: str, awaited: bool
) -> None:
    """Also when it was about to begin again by itself."""
    code = "import hermes.kit.holder as h; print(h.this_process(), flush=True); input()"
    words = [sys.executable, "-c", code]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        holder = other.stdout.readline().strip()
        now = FakeClock().now()
        record = structs.replace(own_record(home, now), pid=other.pid, holder=holder)
        draining = Snapshot(gateway_state=Phase.DRAINING, restart_requested=not awaited)
        StateFile(home, record, FakeClock()).write(draining)
        assert end_gateway(home, record, FakeClock(), Manner(force=True, reason=reason))
    assert gateway_lives(home) is awaited


def test_a_start_with_wrong_settings_is_the_last_word(home: Home) -> None:
    with held(home) as tenure:
        end(tenure, Ending.STOPPED, 15)
    (home.path / "config.yaml").write_text("model: [")
    with pytest.raises(ConfigError, match="not YAML"):
        run_gateway(home, Env({}), RunOptions())
    state = read_state(home.gateway_state)
    assert state is not None
    assert state.gateway_state == "startup_failed"
    assert "not YAML" in (state.exit_reason or "")


def test_the_one_that_runs_has_the_last_word(home: Home) -> None:
    (home.path / "config.yaml").write_text("model: [")
    with held(home) as tenure:
        tenure.state.write(RUNNING)
        with pytest.raises(ConfigError, match="not YAML"):
            run_gateway(home, Env({}), RunOptions(replace=True))
        state = read_state(home.gateway_state)
        assert state is not None
        assert state.gateway_state == "running"
        end(tenure, Ending.STOPPED, 15)
