"""Reading a line from the terminal, interrupted by Ctrl+C."""

import os
import signal
import threading
from io import StringIO
from typing import TextIO

import pytest

from hermes.cli.dialog import POLL_INTERVAL, ask

TRIES = 300


class Pressed(Exception):
    """Raised instead of KeyboardInterrupt, which pytest handles itself."""


def test_line_is_read_from_terminal_and_pipe() -> None:
    out = StringIO()
    assert ask(StringIO("y\n"), out, "Sure? ") == "y\n"
    assert out.getvalue() == "Sure? "
    controller, device = os.openpty()
    with os.fdopen(device) as terminal:
        os.write(controller, b"yes\n\x04")
        assert [ask(terminal, out, "? "), ask(terminal, out, "? ")] == ["yes\n", ""]
    os.close(controller)


def test_signal_before_the_wait_is_handled() -> None:
    """A signal delivered to another thread does not interrupt the wait itself."""
    received = threading.Event()
    controller, device = os.openpty()

    def on_signal(number: int, frame: object) -> None:
        if not received.is_set():
            received.set()
            raise Pressed

    def press() -> None:
        for _ in range(TRIES):
            if received.wait(POLL_INTERVAL):
                return
            signal.raise_signal(signal.SIGUSR1)
        # From here on the key press ends the wait, not the signal.
        received.set()
        os.write(controller, b"too late\n")

    def wait(terminal: TextIO) -> None:
        # Start only now: an earlier signal would end the test.
        pressing.start()
        ask(terminal, StringIO(), "? ")

    before = signal.signal(signal.SIGUSR1, on_signal)
    pressing = threading.Thread(target=press)
    try:
        with os.fdopen(device) as terminal, pytest.raises(Pressed):
            wait(terminal)
    finally:
        received.set()
        pressing.join()
        signal.signal(signal.SIGUSR1, before)
        os.close(controller)
