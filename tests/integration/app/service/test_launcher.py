"""Starting a gateway in the background: ready, failed, silent or delayed."""

import os
import re
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from hermes.app.service.launcher import LaunchFailed, LaunchNotReady, _Pipe, gateway_command, launch
from hermes.config.home import Home
from support.cli_process import wait_for_process_exit

SAYS = """
import os, signal, sys
pipe = int(sys.argv[-1])
sys.stdout.write(f"pid {os.getpid()}\\n")
sys.stdout.flush()
"""
ENV = {"PATH": "/usr/bin:/bin", "NOTIFY_SOCKET": "/somebody/else", "HOME": "/"}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path, tmp_path)


def command(code: str) -> list[str]:
    return [sys.executable, "-c", SAYS + code]


def end(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    wait_for_process_exit(pid)


def test_ready_in_several_writes(home: Home) -> None:
    reply: list[str] = []
    code = "os.write(pipe, b'STATUS=a'); os.write(pipe, b'b\\nREADY=1\\n'); signal.pause()"
    launched = launch(home, ENV, command(code), reply.append)
    assert (reply, launched.status) == (["ab"], "ab")
    assert f"pid {launched.pid}\n" in (home.logs / "gateway.log").read_text()
    end(launched.pid)


def test_silent_start_is_not_a_failure(home: Home) -> None:
    with pytest.raises(LaunchNotReady, match=r"\(pid \d+\) is not ready after") as caught:
        launch(home, ENV, command("signal.pause()"), print, timeout=0.3)
    # So early that it may not have printed anything.
    end(int(re.findall(r"pid (\d+)", str(caught.value))[0]))


def test_timeout_can_be_extended() -> None:
    ours, theirs = os.pipe()
    with closing(_Pipe(ours, 0.0)) as pipe:
        os.write(theirs, b"EXTEND_TIMEOUT_USEC=60000000\nREA")
        lines = pipe.lines()
        pipe.wait_longer(next(lines).partition("=")[2])
        assert pipe.remaining > 30
        pipe.wait_longer("soon")
        os.write(theirs, b"DY=1\n")
        assert next(lines) == "READY=1"
        os.close(theirs)
        assert list(lines) == []
        assert not pipe.silent


def test_last_output_is_shown(home: Home) -> None:
    home.logs.mkdir()
    (home.logs / "gateway.log").write_bytes(b"from long ago\n" * 500_000)
    code = "sys.stderr.write('the port is taken\\n'); sys.exit(3)"
    with pytest.raises(LaunchFailed, match="exit code 3") as failed:
        launch(home, ENV, command(code), print)
    assert failed.value.ended_with == 3
    assert "the port is taken" in str(failed.value)
    assert "long ago" not in str(failed.value)
    assert (home.logs / "gateway.log.1").stat().st_size > 5_000_000


def test_surviving_child_does_not_hide_the_exit(home: Home) -> None:
    """Notifier keeps the pipe from being inherited; here that is done by hand."""
    code = (
        "import subprocess\nos.set_inheritable(pipe, False)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])\n"
        "sys.stdout.write(f'child {child.pid}\\n'); sys.stdout.flush(); os._exit(4)"
    )
    with pytest.raises(LaunchFailed) as failed:
        launch(home, ENV, command(code), print)
    assert failed.value.ended_with == 4
    child = int((home.logs / "gateway.log").read_text().split()[-1])
    os.kill(child, signal.SIGKILL)


def test_service_manager_variables_are_removed(home: Home) -> None:
    code = "sys.stdout.write(str(sorted(os.environ))); sys.exit(0)"
    with pytest.raises(LaunchFailed) as failed:
        launch(home, ENV, command(code), print)
    assert "HERMES_HOME" in str(failed.value)
    assert "NOTIFY_SOCKET" not in str(failed.value)


def test_current_folder_is_not_on_the_module_path(home: Home, tmp_path: Path) -> None:
    for name in ("msgspec.py", "hermes.py"):
        (tmp_path / name).write_text("raise SystemExit('planted')", encoding="utf-8")
    args = [*gateway_command(home), "--help"]
    ran = subprocess.run(args, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "usage: hermes" in ran.stdout
