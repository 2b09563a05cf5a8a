"""A tool call that kills its own program takes effect once, and is reported to the model."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CHILD = Path(__file__).with_name("dying_host.py")


@pytest.mark.parametrize("runs", [20, pytest.param(100, marks=pytest.mark.soak)])
def test_effect_happens_once_in_each_run(tmp_path: Path, runs: int) -> None:
    env = {"PYTHONPATH": str(CHILD.parents[2]), "PATH": os.defpath, "HOME": str(tmp_path)}
    command = [sys.executable, str(CHILD), str(tmp_path), str(runs)]
    done = subprocess.run(
        command, env=env, capture_output=True, check=False, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"calls": runs, "unknown": runs}
    effects = (tmp_path / "effects").read_text().split()
    assert effects == [str(run) for run in range(runs)]
