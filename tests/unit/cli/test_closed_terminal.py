"""Closing the terminal during a full-screen chat is not an error."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
from hermes.cli.boundary import run_guarded
from hermes.cli.context import CliContext
from hermes.cli.verbs.chat.full_screen import _print_ending
from hermes.config.env import Env, process_env
from hermes.schema.terminal import (ConversationState)

def end():
    context = CliContext(Env(process_env()), None)
    _print_ending(context, ConversationState(session="s1", started=True), "Text.")
    return 0

sys.exit(run_guarded(end))
"""


@pytest.mark.slow
def test_closed_terminal_causes_no_error(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    controller, terminal = os.openpty()
    os.close(controller)
    try:
        ran = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "HERMES_HOME": str(tmp_path)},
            stdin=subprocess.DEVNULL,
            stdout=terminal,
            stderr=subprocess.PIPE,
            timeout=120,
            check=False,
        )
    finally:
        os.close(terminal)
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert list((tmp_path / "logs").iterdir()) == []
