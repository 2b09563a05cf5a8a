"""A gateway that lacks a resource at startup exits so that it is restarted."""

import os
import subprocess
from pathlib import Path

import pytest

from hermes.sandbox.bubblewrap import find_bubblewrap
from support.cli_process import HERMES_PROGRAM, TEST_TIMEOUT, CliResult

WRONG_SETTINGS, TRY_AGAIN = 78, 75
"""systemd restarts the gateway after any code but the first."""


class SmallDisk:
    """Runs shell scripts with a home on a separate small file system."""

    def __init__(self, root: Path, program: str) -> None:
        self.home = root / "home"
        self.home.mkdir()
        self.program = program
        self._env = {
            "PATH": f"{Path(HERMES_PROGRAM).parent}:{os.environ['PATH']}",
            "HOME": str(root),
            "LANG": "C.UTF-8",
            "HERMES_HOME": str(self.home),
        }

    def __call__(self, *lines: str) -> CliResult:
        done = subprocess.run(
            [
                *(self.program, "--die-with-parent", "--dev-bind", "/", "/"),
                *("--size", "33554432", "--tmpfs", str(self.home)),
                *("sh", "-c", "\n".join(lines)),
            ],
            env=self._env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TEST_TIMEOUT,
            check=False,
        )
        return CliResult(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.fixture
def small_disk(tmp_path: Path) -> SmallDisk:
    program = find_bubblewrap(os.environ["PATH"])
    if program is None:
        pytest.skip("there is no bubblewrap, which mounts a small disk")
    disk = SmallDisk(tmp_path, program)
    if disk("exit 0").code != 0:
        pytest.skip("nothing may be mounted here")
    return disk


FILL = 'cat /dev/zero > "$HERMES_HOME/fill" 2> /dev/null'
RUN = "hermes gateway run; echo code=$?"
RECOVERS = 'rm "$HERMES_HOME/fill" && hermes gateway start && hermes gateway stop'


@pytest.mark.parametrize("before", [":", "hermes config set timezone UTC && hermes gateway status"])
def test_full_disk_requests_a_restart(small_disk: SmallDisk, before: str) -> None:
    """At the first start, and in an existing home."""
    ran = small_disk(before, FILL, RUN, RECOVERS, 'wc -c < "$HERMES_HOME/SOUL.md"')
    assert f"code={TRY_AGAIN}" in ran.out
    assert "No space left on device" in ran.err
    assert "df -h" in ran.err
    assert "stopped" in ran.out
    assert int(ran.out.splitlines()[-1]) > 0


def test_full_disk_for_the_database_requests_a_restart(small_disk: SmallDisk) -> None:
    """The small files of the start fit, but not the database."""
    leave_a_little = 'truncate -s -100k "$HERMES_HOME/fill"'
    made = "hermes gateway start > /dev/null && hermes gateway stop > /dev/null"
    gone = 'rm "$HERMES_HOME"/hermes.db*'
    reply = "hermes gateway status"
    ran = small_disk(made, gone, FILL, leave_a_little, RUN, reply, RECOVERS)
    assert f"code={TRY_AGAIN}" in ran.out
    assert "The disk is full" in ran.err
    assert "The disk is full" in ran.out
    assert "stopped" in ran.out


def test_read_only_disk_requests_a_restart(small_disk: SmallDisk) -> None:
    ran = small_disk(
        "hermes config set timezone UTC > /dev/null",
        f'{small_disk.program} --dev-bind / / --bind "$HERMES_HOME" "$HERMES_HOME" '
        '--remount-ro "$HERMES_HOME" hermes gateway run',
        "echo code=$?",
    )
    assert f"code={TRY_AGAIN}" in ran.out
    assert "Read-only file system" in ran.err


def test_invalid_settings_request_no_restart(small_disk: SmallDisk) -> None:
    ran = small_disk('echo "gateway: [" > "$HERMES_HOME/config.yaml"', RUN, "hermes gateway status")
    assert f"code={WRONG_SETTINGS}" in ran.out
    assert "config.yaml" in ran.out
