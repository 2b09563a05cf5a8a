"""The fork server reports failures of its children and runs one at a time."""

import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import msgspec
import pytest

from support.cli_process import TEST_TIMEOUT, wait_for_data
from support.fork_server import EXIT_LINE, START_COMMAND
from support.gateway_process import GatewaySpec

pytestmark = pytest.mark.slow


@pytest.fixture
def server() -> Generator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "support.fork_server"]
    pipe = subprocess.PIPE
    env = {"PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=env) as process:
        try:
            yield process
        finally:
            process.kill()


def start_gateways(process: subprocess.Popen[bytes], folder: Path, count: int = 1) -> None:
    """Start gateways that fail immediately, because their home is a file."""
    home = folder / "home"
    home.touch()
    spec = GatewaySpec(folder=str(folder), home=str(home), overheard=("default",))
    (folder / "spec.json").write_bytes(msgspec.json.encode(spec))
    assert process.stdin is not None
    process.stdin.write(f"{START_COMMAND}{folder / 'spec.json'}\n".encode() * count)
    process.stdin.flush()


def test_failing_child_reports_its_traceback(
    server: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    start_gateways(server, tmp_path)
    assert server.stdout is not None
    output = b""
    while EXIT_LINE.encode() not in output:
        data = wait_for_data(server.stdout.fileno())
        assert data, "the server ended before its child"
        output += data
    _, errors = server.communicate(timeout=TEST_TIMEOUT)
    assert f"{EXIT_LINE}1".encode() in output
    assert b"Traceback" in errors
    assert str(tmp_path / "home").encode() in errors


def test_second_child_is_rejected_while_one_runs(
    server: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    start_gateways(server, tmp_path, count=2)
    _, errors = server.communicate(timeout=TEST_TIMEOUT)
    assert b"while another one is running" in errors
    assert server.returncode == 1
