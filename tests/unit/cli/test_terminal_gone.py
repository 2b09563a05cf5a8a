"""A terminal that was closed is no crash."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

LEAVE = """
import sys
from hermes.cli.boundary import run_guarded
from hermes.cli.context import make_context
from hermes.cli.verbs.chat.full_screen import _leave
from hermes.tui.client import Now

def leave():
    _leave(make_context(None), Now(session="s1", started=True), "What was said.")
    return 0

sys.exit(run_guarded(leave))
"""


@pytest.mark.slow
def test_leaving_a_terminal_that_is_gone_is_quiet(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    ours, theirs = os.openpty()
    os.close(ours)
    try:
        ran = subprocess.run(
            [sys.executable, "-c", LEAVE],
            env={**os.environ, "HERMES_HOME": str(tmp_path)},
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=subprocess.PIPE,
            timeout=120,
            check=False,
        )
    finally:
        os.close(theirs)
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert list((tmp_path / "logs").iterdir()) == []
