"""A line of whoever sits at the terminal, and may press Ctrl+C at any moment."""

from contextlib import suppress
from select import select
from typing import TextIO

GLANCE = 0.2
"""Seconds after which a Ctrl+C is heard that came in the moment before the wait for a key."""


def typed_line(stdin: TextIO) -> str:
    """The next line with its end; nothing when there is none."""
    if stdin.isatty():
        # A test's terminal is no file, and has all that will ever be typed.
        with suppress(OSError, ValueError):
            while not select([stdin], [], [], GLANCE)[0]:
                continue
    return stdin.readline()
