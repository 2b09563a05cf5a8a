"""The plugin behind `pytest --jobs` must not lose a test or its result."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

TESTS = {
    "test_passes.py": """
import os
import pytest

@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    print("built", file=open("built", "a"))
    return tmp_path_factory.mktemp("shared")

@pytest.mark.parametrize("number", range(20))
def test_passes(shared, tmp_path, number):
    assert tmp_path != shared

def test_is_skipped():
    pytest.skip("here")
""",
    "test_fails.py": """
def test_fails():
    print("said before it failed")
    assert [1, 2] == [1, 3]

def test_passes_after_it():
    pass
""",
    "test_dies.py": """
import os, signal

def test_dies():
    os.kill(os.getpid(), signal.SIGKILL)

def test_comes_too_late():
    pass
""",
}


def run(folder: Path, *args: str) -> str:
    command = [sys.executable, "-m", "pytest", "-p", "support.forked_workers", "--jobs", "3"]
    options = ["-c", os.devnull, "--rootdir", str(folder), "--basetemp", str(folder / "temporary")]
    support = str(Path(__file__).parents[2])
    done = subprocess.run(
        [*command, *options, "-p", "no:cacheprovider", "-q", *args],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": support},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    return f"exit code {done.returncode}\n{done.stdout}"


def test_every_test_has_a_result(tmp_path: Path) -> None:
    for name, text in TESTS.items():
        (tmp_path / name).write_text(text)
    output = run(tmp_path)
    assert "exit code 1" in output
    assert "3 failed, 21 passed, 1 skipped" in output
    assert "said before it failed" in output
    assert "assert [1, 2] == [1, 3]" in output
    for lost in ("test_dies", "test_comes_too_late"):
        assert f"FAILED test_dies.py::{lost} - no result" in output
    assert (tmp_path / "built").read_text() == "built\n"


def test_run_ends_at_the_first_failure_if_asked(tmp_path: Path) -> None:
    (tmp_path / "test_fails.py").write_text(TESTS["test_fails.py"])
    output = run(tmp_path, "-x")
    assert "exit code 1" in output
    assert "stopping after 1 failures" in output
