"""Whoever forks lives tells how they broke, and has one at a time."""

import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import msgspec
import pytest

from hermes.testing.fork_server import EXIT_LINE, START_COMMAND
from hermes.testing.gateway_process import GatewaySpec
from support.cli_process import TEST_TIMEOUT, wait_for_data


@pytest.fixture
def nursery() -> Generator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "hermes.testing.fork_server"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        try:
            yield process
        finally:
            process.kill()


def order(process: subprocess.Popen[bytes], folder: Path, lives: int = 1) -> None:
    """Lives that break as soon as they begin: their home is a file."""
    home = folder / "home"
    home.touch()
    spec = GatewaySpec(folder=str(folder), home=str(home), overheard=("default",))
    (folder / "spec.json").write_bytes(msgspec.json.encode(spec))
    assert process.stdin is not None
    process.stdin.write(f"{START_COMMAND}{folder / 'spec.json'}\n".encode() * lives)
    process.stdin.flush()


def test_failing_child_reports_its_traceback(
    nursery: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    order(nursery, tmp_path)
    assert nursery.stdout is not None
    heard = b""
    while EXIT_LINE.encode() not in heard:
        piece = wait_for_data(nursery.stdout.fileno())
        assert piece, "it ended before its life"
        heard += piece
    _, said = nursery.communicate(timeout=TEST_TIMEOUT)
    assert f"{EXIT_LINE}1".encode() in heard
    assert b"Traceback" in said
    assert str(tmp_path / "home").encode() in said


def test_second_child_is_refused_while_one_runs(
    nursery: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    order(nursery, tmp_path, lives=2)
    _, said = nursery.communicate(timeout=TEST_TIMEOUT)
    assert b"one life at a time" in said
    assert nursery.returncode == 1
