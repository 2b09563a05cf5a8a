"""A gateway that is signalled while it starts ends as requested and leaves no trace."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from hermes.app.service.lifecycle import ExitCode
from hermes.app.service.lock import running_gateway
from hermes.config.home import profile_home
from support.cli_process import TEST_TIMEOUT

TESTS = str(Path(__file__).parents[3])
MOMENTS = ["deaf", "never", *(str(4**power) for power in range(8))]


@pytest.mark.parametrize(
    ("number", "code", "phase"),
    [
        (signal.SIGTERM, 128 + signal.SIGTERM, "stopped"),
        (signal.SIGUSR1, ExitCode.RESTART, "running"),
    ],
)
def test_signal_at_any_moment_of_the_start(
    tmp_path: Path, number: signal.Signals, code: int, phase: str
) -> None:
    args = [
        sys.executable,
        "-m",
        "support.interrupted_start",
        str(tmp_path),
        number.name,
        *MOMENTS,
    ]
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": TESTS}
    ran = subprocess.run(
        args, env=env, capture_output=True, text=True, timeout=2 * TEST_TIMEOUT, check=False
    )
    assert ran.stdout.splitlines() == [f"{moment} {int(code)}" for moment in MOMENTS], ran.stderr
    for moment in MOMENTS:
        home = profile_home(tmp_path / moment, "default")
        state = msgspec.json.decode(home.gateway_state.read_bytes())
        assert (running_gateway(home), home.gateway_pid.exists()) == (None, False)
        assert state["gateway_state"] == phase
        assert state["active_agents"] == 0
        assert (home.path / ".clean_shutdown").exists()
        assert not (home.path / "gateway.sock").exists()
