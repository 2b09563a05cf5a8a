"""A tool call that kills its own program takes effect once, and is reported to the model."""

import json
import os
import subprocess
import sys
from pathlib import Path

CHILD = Path(__file__).with_name("dying_host.py")
RUNS = 100
TIMEOUT = 240


def test_effect_happens_once_in_a_hundred_runs(tmp_path: Path) -> None:
    env = {"PYTHONPATH": str(CHILD.parents[2]), "PATH": os.defpath, "HOME": str(tmp_path)}
    command = [sys.executable, str(CHILD), str(tmp_path), str(RUNS)]
    done = subprocess.run(
        command, env=env, capture_output=True, timeout=TIMEOUT, check=False, text=True
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"calls": RUNS, "unknown": RUNS}
    effects = (tmp_path / "effects").read_text().split()
    assert effects == [str(run) for run in range(RUNS)]
