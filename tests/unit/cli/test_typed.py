"""A line from a terminal, and a Ctrl+C that comes when nobody can be woken by it."""

import os
import signal
import threading
from io import StringIO
from typing import TextIO

import pytest

from hermes.cli.dialog import POLL_INTERVAL, read_line

TRIES = 300


class Pressed(Exception):
    """What a Ctrl+C raises, but for pytest's own."""


def test_a_line_is_read_from_wherever_it_comes() -> None:
    assert read_line(StringIO("y\n")) == "y\n"
    ours, theirs = os.openpty()
    with os.fdopen(theirs) as terminal:
        os.write(ours, b"yes\n\x04")
        assert [read_line(terminal), read_line(terminal)] == ["yes\n", ""]
    os.close(ours)


def test_a_signal_is_heard_that_has_not_ended_the_wait() -> None:
    """As one that comes just before it: here another thread of the process is the one it meets."""
    heard = threading.Event()
    ours, theirs = os.openpty()

    def hear(number: int, frame: object) -> None:
        if not heard.is_set():
            heard.set()
            raise Pressed

    def press() -> None:
        for _ in range(TRIES):
            if heard.wait(POLL_INTERVAL):
                return
            signal.raise_signal(signal.SIGUSR1)
        # What is heard now is heard because a key was pressed.
        heard.set()
        os.write(ours, b"too late\n")

    def wait(terminal: TextIO) -> None:
        # Not earlier: what is heard before somebody expects it ends the test.
        pressing.start()
        read_line(terminal)

    before = signal.signal(signal.SIGUSR1, hear)
    pressing = threading.Thread(target=press)
    try:
        with os.fdopen(theirs) as terminal, pytest.raises(Pressed):
            wait(terminal)
    finally:
        heard.set()
        pressing.join()
        signal.signal(signal.SIGUSR1, before)
        os.close(ours)
