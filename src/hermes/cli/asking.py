"""A question of the turn, put to whoever sits at the terminal."""

import os
import termios
from collections.abc import Callable
from contextlib import suppress
from select import select
from typing import TextIO

from hermes.cli.export.plain import flat
from hermes.kit.clock import Clock
from hermes.schema.questions import Asking, Choice, Question

GLANCE = 0.2
"""Seconds between two looks at the clock, and at whether somebody wants an end."""
_MOST = 64 * 1024
_LETTERS = {choice.value[0]: choice for choice in Choice}


def asked_at_terminal(
    question: Question,
    stdin: TextIO,
    out: TextIO,
    clock: Clock,
    *,
    interrupted: Callable[[], bool],
) -> str | None:
    """The answer; None when the time was over, or when nobody wants to go on."""
    choices = [flat(one) for one in question.choices]
    if question.kind is Asking.CLARIFY:
        lines = [f"  {number}. {one}\n" for number, one in enumerate(choices, 1)]
        out.write("".join(lines) + "> ")
    else:
        named = " / ".join(f"[{one[0]}]{one[1:]}" for one in choices)
        out.write(f"{named} (Enter alone denies): ")
    out.flush()
    # What was typed before anything was asked is no answer to it.
    with suppress(termios.error, OSError):
        termios.tcflush(stdin.fileno(), termios.TCIFLUSH)

    def over() -> bool:
        return interrupted() or clock.now() >= question.until

    line = _line(stdin.fileno(), over)
    if line is None:
        out.write("\n")
        out.flush()
        return None
    if question.kind is Asking.CLARIFY:
        return line.strip() or None
    return _meant(line, question.choices)


def _meant(line: str, choices: tuple[str, ...]) -> str:
    """Anything that is not clearly one of the choices refuses."""
    word = line.strip().lower()
    word = {"y": "once", "yes": "once", "n": "deny", "no": "deny"}.get(word, word)
    chosen = _LETTERS.get(word, word)
    return chosen if chosen in choices else Choice.DENY


def _line(fd: int, over: Callable[[], bool]) -> str | None:
    while not over():
        if select([fd], [], [], GLANCE)[0]:
            return os.read(fd, _MOST).decode("utf-8", "replace")
    return None
