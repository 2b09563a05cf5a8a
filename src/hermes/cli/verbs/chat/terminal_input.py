"""Reading lines from a person: history, completion of commands, several lines at once."""

import os
import readline
import signal
import sys
import termios
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from select import select
from types import FrameType, TracebackType
from typing import Self, TextIO

from hermes.cli.output import Style
from hermes.kit.clock import Clock
from hermes.kit.terminal_text import single_line
from hermes.kit.text import one_line
from hermes.kit.threads import Worker
from hermes.schema.questions import ApprovalChoice, Question, QuestionKind

MAX_HISTORY = 1000
NEWS_INTERVAL = 1.0
"""Seconds between two looks at whether something came in by itself."""
_CONTINUATION = "\\"


class NewsArrived(Exception):
    """Something came in while nobody typed."""


@contextmanager
def _poll_news(news: Callable[[], bool], lines: list[str]) -> Generator[None]:
    """Look now and then while `lines` are read; what somebody has begun is not taken away."""

    def look(number: int, frame: FrameType | None) -> None:
        if not lines and not readline.get_line_buffer() and news():
            raise NewsArrived

    before = signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, NEWS_INTERVAL, NEWS_INTERVAL)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class LineEditor:
    """Use as a context: the history is read on entering, and every line is kept at once."""

    def __init__(
        self, history: Path, commands: Sequence[str], style: Style, folder: str = ""
    ) -> None:
        """In `folder` are the files that are meant after an @."""
        self._history = history
        self._folder = folder
        self._words = [f"/{name}" for name in commands]
        self._prompt = _colour_prompt(style, "> ")
        self._more = _colour_prompt(style, "… ")
        self._paste = "on" if style.moves else "off"
        self._found: list[str] = []

    def __enter__(self) -> Self:
        readline.set_history_length(MAX_HISTORY)
        readline.set_auto_history(False)
        with suppress(OSError):
            self._history.touch(mode=0o600)
            readline.read_history_file(self._history)
        readline.set_completer_delims(" \t\n")
        readline.set_completer(self._complete)
        readline.parse_and_bind("tab: complete")
        readline.parse_and_bind(f"set enable-bracketed-paste {self._paste}")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        """Only to keep the file from growing: the lines themselves are in it already."""
        with suppress(OSError):
            if len(self._history.read_bytes().splitlines()) > 2 * MAX_HISTORY:
                readline.clear_history()
                readline.read_history_file(self._history)
                readline.write_history_file(self._history)
                self._history.chmod(0o600)

    def read(self, news: Callable[[], bool] = lambda: False) -> str:
        """The next request. A line that ends with a backslash goes on; Ctrl+C drops what is typed.

        Raises `EOFError` at the end, `KeyboardInterrupt` for Ctrl+C on an empty line, and `News`
        when there is some while nothing is typed.
        """
        lines: list[str] = []
        with _poll_news(news, lines):
            return self._read(lines)

    def _read(self, lines: list[str]) -> str:
        while True:
            try:
                line = input(self._more if lines else self._prompt)
            except KeyboardInterrupt:
                # The editor left the cursor behind what was typed.
                sys.stdout.write("\n")
                if not lines and not readline.get_line_buffer():
                    raise
                lines.clear()
                continue
            # First of all: from here on no news take it away.
            lines.append(line)
            self.keep(line)
            if not line.endswith(_CONTINUATION):
                return "\n".join(lines)
            lines[-1] = line.removesuffix(_CONTINUATION)

    def keep(self, line: str) -> None:
        """Into the history and its file; the same line twice in a row is one."""
        length = readline.get_current_history_length()
        flat = " ".join(line.splitlines())
        if not flat.strip() or (length and readline.get_history_item(length) == flat):
            return
        readline.add_history(flat)
        with suppress(OSError):
            readline.append_history_file(1, self._history)

    def _complete(self, text: str, state: int) -> str | None:
        if state == 0:
            self._found = self._fitting(text)
        return self._found[state] if state < len(self._found) else None

    def _fitting(self, text: str) -> list[str]:
        if text.startswith("/"):
            return [word + " " for word in self._words if word.startswith(text)]
        if text.startswith("@"):
            from hermes.tui.completion import suggestions

            found = [one.text for one in suggestions(text, {}, self._folder)]
            return found if len(found) == 1 else _with_typed_prefix(text, found)
        return []


def _with_typed_prefix(text: str, found: Sequence[str]) -> list[str]:
    """Those that begin as it was typed: the editor puts in what all of them have in common."""
    kept = [one for one in found if one.startswith(text)]
    return kept or [one for one in found if one.startswith(f"@file:{text[1:]}")]


def _colour_prompt(style: Style, prompt: str) -> str:
    """Colours are marked as taking no room, so that the editor counts columns rightly."""
    if not style.on:
        return prompt
    return f"\x01\x1b[1;36m\x02{prompt}\x01\x1b[0m\x02"


FOREGROUND_POLL = 0.2
"""Seconds between two looks at whether we are in front again."""
_READ_SIZE = 64 * 1024


class BackgroundReader:
    """Reads the terminal in a thread of its own, except while a question is being answered."""

    def __init__(self, fd: int, heard: Callable[[str], None]) -> None:
        self._fd = fd
        self._heard = heard
        self._reading = threading.Lock()
        self._free = threading.Event()
        self._over = threading.Event()
        self._ended = threading.Event()
        self._free.set()

    @contextmanager
    def paused(self) -> Generator[None]:
        """What is typed now is for somebody else."""
        self._free.clear()
        try:
            with self._reading:
                yield
        finally:
            self._free.set()

    @contextmanager
    def open(self) -> Generator[None]:
        """What is typed after the end is left where it is."""
        woken, wake = os.pipe()
        Worker("chat-hears", lambda: self._listen(woken)).start()
        try:
            yield
        finally:
            self._over.set()
            os.write(wake, b"\0")
            self._ended.wait()
            os.close(wake)
            os.close(woken)

    def _listen(self, woken: int) -> None:
        try:
            while not self._over.is_set():
                select([self._fd, woken], [], [])
                self._free.wait()
                if not self._is_foreground():
                    # Whoever reads from a terminal in the background is stopped.
                    self._over.wait(FOREGROUND_POLL)
                elif text := self._read():
                    self._heard(text)
        except OSError:
            # The terminal is gone: whoever waits for the turn is told of that.
            pass
        finally:
            self._ended.set()

    def _read(self) -> str:
        """A whole line, as a terminal gives it; empty when somebody else was faster."""
        with self._reading:
            if self._over.is_set() or not select([self._fd], [], [], 0)[0]:
                return ""
            data = os.read(self._fd, _READ_SIZE)
        return data.decode("utf-8", "replace").strip()

    def _is_foreground(self) -> bool:
        with suppress(OSError):
            return os.tcgetpgrp(self._fd) == os.getpgrp()
        return False


ANSWER_POLL = 0.2
"""Seconds between two looks at the clock, and at whether somebody wants an end."""
_CHOICE_KEYS = {choice.value[0]: choice for choice in ApprovalChoice}


def ask_at_terminal(
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
    out.write(_answer_prompt(question, end - clock.monotonic()))
    out.flush()
    while (line := _read_answer(stdin.fileno(), over)) is not None:
        if question.kind is QuestionKind.CLARIFY:
            return line.strip() or None
        if chosen := _parse_choice(line, question.choices):
            return chosen
        out.write(
            f"I did not understand {one_line(single_line(line), 40)!r}, "
            "so nothing is decided yet.\n"
        )
        out.write(_answer_prompt(question, end - clock.monotonic()))
        out.flush()
    out.write("\n")
    out.flush()
    return None


def _answer_prompt(question: Question, seconds: float) -> str:
    choices = [single_line(one) for one in question.choices]
    if question.kind is QuestionKind.CLARIFY:
        return "".join(f"  {number}. {one}\n" for number, one in enumerate(choices, 1)) + "> "
    named = " / ".join(f"[{one[0]}]{one[1:]}" for one in choices)
    return f"{named}, within {max(1, round(seconds))} s (Enter alone denies): "


def _parse_choice(line: str, choices: tuple[str, ...]) -> str:
    """Nothing when it is not clearly one of the choices; Enter alone is a clear no."""
    word = line.strip().strip(".!").lower()
    word = {"": "deny", "y": "once", "yes": "once", "n": "deny", "no": "deny"}.get(word, word)
    chosen = _CHOICE_KEYS.get(word, word)
    return chosen if chosen in choices else ""


def _read_answer(fd: int, over: Callable[[], bool]) -> str | None:
    while not over():
        if select([fd], [], [], ANSWER_POLL)[0]:
            return os.read(fd, _READ_SIZE).decode("utf-8", "replace")
    return None
