"""A question of the turn, put to whoever sits at the terminal."""

import os
import termios
from collections.abc import Callable
from contextlib import suppress
from select import select
from typing import TextIO

from hermes.cli.export.plain import flat
from hermes.kit.clock import Clock
from hermes.kit.text import one_line
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
    """The answer; None when the time was over, or when nobody wants to go on.

    An answer to a request for approval that is not understood decides nothing: it is asked again.
    """

    end = clock.monotonic() + question.time_left(clock.now())

    def over() -> bool:
        return interrupted() or clock.monotonic() >= end

    # What was typed before anything was asked is no answer to it.
    with suppress(termios.error, OSError):
        termios.tcflush(stdin.fileno(), termios.TCIFLUSH)
    out.write(_put(question, end - clock.monotonic()))
    out.flush()
    while (line := _line(stdin.fileno(), over)) is not None:
        if question.kind is Asking.CLARIFY:
            return line.strip() or None
        if chosen := _meant(line, question.choices):
            return chosen
        out.write(
            f"I did not understand {one_line(flat(line), 40)!r}, so nothing is decided yet.\n"
        )
        out.write(_put(question, end - clock.monotonic()))
        out.flush()
    out.write("\n")
    out.flush()
    return None


def _put(question: Question, seconds: float) -> str:
    choices = [flat(one) for one in question.choices]
    if question.kind is Asking.CLARIFY:
        return "".join(f"  {number}. {one}\n" for number, one in enumerate(choices, 1)) + "> "
    named = " / ".join(f"[{one[0]}]{one[1:]}" for one in choices)
    return f"{named}, within {max(1, round(seconds))} s (Enter alone denies): "


def _meant(line: str, choices: tuple[str, ...]) -> str:
    """Nothing when it is not clearly one of the choices; Enter alone is a clear no."""
    word = line.strip().strip(".!").lower()
    word = {"": "deny", "y": "once", "yes": "once", "n": "deny", "no": "deny"}.get(word, word)
    chosen = _LETTERS.get(word, word)
    return chosen if chosen in choices else ""


def _line(fd: int, over: Callable[[], bool]) -> str | None:
    while not over():
        if select([fd], [], [], GLANCE)[0]:
            return os.read(fd, _MOST).decode("utf-8", "replace")
    return None
