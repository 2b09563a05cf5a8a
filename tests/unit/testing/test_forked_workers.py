"""The plugin behind `pytest --jobs` must not lose a test or its result."""

import json
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


WAITS = """
import time
from pathlib import Path

def test_waits():
    deadline = time.monotonic() + 60
    while not all(map(Path.exists, map(Path, {awaited}))):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    Path("{name}").touch()
"""
"""A test that waits until other tests have run."""


def run(folder: Path, *args: str, jobs: int = 3) -> str:
    command = [sys.executable, "-m", "pytest", "-p", "support.forked_workers", f"--jobs={jobs}"]
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


def test_files_that_took_longest_come_first(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / f"test_{name}.py").write_text(WAITS.format(awaited=["z"], name=name))
    (tmp_path / "test_z.py").write_text(WAITS.format(awaited=[], name="z"))
    (tmp_path / "durations.json").write_text('{"test_a.py": 5, "test_z.py": 9}')
    assert "4 passed" in run(tmp_path, f"--durations-file={tmp_path / 'durations.json'}", jobs=2)


def test_files_do_not_wait_behind_a_long_one(tmp_path: Path) -> None:
    short = [f"short{number}" for number in range(6)]
    (tmp_path / "test_long.py").write_text(WAITS.format(awaited=short, name="long"))
    for name in short:
        (tmp_path / f"test_{name}.py").write_text(WAITS.format(awaited=[], name=name))
        folder = tmp_path / f"folder-{name}"
        folder.mkdir()
        (folder / f"test_in_{name}.py").write_text("def test_in_a_folder(): pass")
    (tmp_path / "durations.json").write_text('{"test_long.py": 9}')
    assert "13 passed" in run(tmp_path, f"--durations-file={tmp_path / 'durations.json'}", jobs=2)


def test_durations_are_saved(tmp_path: Path) -> None:
    """Short files need none, and those of files that were not run are kept."""
    for name in ("now_fast", "not_run"):
        (tmp_path / f"test_{name}.py").write_text("def test_is_fast(): pass")
    file = tmp_path / "durations.json"
    file.write_text('{"test_now_fast.py": 9, "test_not_run.py": 9, "test_deleted.py": 9}')
    output = run(tmp_path, f"--durations-file={file}", "--save-durations", "test_now_fast.py")
    assert "1 passed" in output
    assert json.loads(file.read_bytes()) == {"test_not_run.py": 9}


def test_error_at_the_end_of_a_worker_is_reported(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "import pytest\n\n"
        "@pytest.fixture(scope='session')\n"
        "def server():\n    yield\n    raise RuntimeError('cannot be stopped')\n"
    )
    for name in ("a", "b"):
        (tmp_path / f"test_{name}.py").write_text(f"def test_{name}(server): pass")
    output = run(tmp_path, jobs=2)
    assert "exit code 1" in output
    assert "FAILED fixtures of worker" in output
