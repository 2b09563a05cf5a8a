"""Read from the terminal: the prompt, lines typed during a turn, answers to questions."""

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
from types import FrameType
from typing import Self, TextIO

from hermes.cli.context import CliContext
from hermes.cli.output import Style
from hermes.kit.clock import Clock, SystemClock
from hermes.kit.tasks import Worker
from hermes.kit.terminal_text import single_line
from hermes.kit.text import one_line
from hermes.schema.questions import ApprovalChoice, Question, QuestionKind
from hermes.tui.attention import Attention, notification_sequence

MAX_HISTORY = 1000
NEWS_INTERVAL = 1.0
"""Seconds between checks for messages from elsewhere."""
_CONTINUATION = "\\"


class NewsArrived(Exception):
    """A message arrived from elsewhere while the prompt was empty."""


@contextmanager
def _poll_news(news: Callable[[], bool], lines: list[str]) -> Generator[None]:
    """Raise `NewsArrived` while a line is read, unless something was already typed."""

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
    """A readline prompt with history; use it as a context manager."""

    def __init__(
        self, history: Path, commands: Sequence[str], style: Style, folder: str = ""
    ) -> None:
        """`folder` is where `@` completes file names."""
        self._history = history
        self._folder = folder
        self._commands = [f"/{name}" for name in commands]
        self._prompt = _color_prompt(style, "> ")
        self._continuation_prompt = _color_prompt(style, "… ")
        self._bracketed_paste = "on" if style.can_rewrite else "off"
        self._completions: list[str] = []

    def __enter__(self) -> Self:
        readline.set_history_length(MAX_HISTORY)
        readline.set_auto_history(False)
        with suppress(OSError):
            self._history.touch(mode=0o600)
            readline.read_history_file(self._history)
        readline.set_completer_delims(" \t\n")
        readline.set_completer(self._complete)
        readline.parse_and_bind("tab: complete")
        readline.parse_and_bind(f"set enable-bracketed-paste {self._bracketed_paste}")
        return self

    def __exit__(self, *_: object) -> None:
        """Trim the history file; its lines were written as they were typed."""
        with suppress(OSError):
            if len(self._history.read_bytes().splitlines()) > 2 * MAX_HISTORY:
                readline.clear_history()
                readline.read_history_file(self._history)
                readline.write_history_file(self._history)
                self._history.chmod(0o600)

    def read(self, news: Callable[[], bool] = lambda: False) -> str:
        """The next message. A trailing backslash continues the line; Ctrl+C clears the input.

        Raises `EOFError` at the end, `KeyboardInterrupt` for Ctrl+C on an empty line, and
        `NewsArrived` for a message from elsewhere while nothing is typed.
        """
        lines: list[str] = []
        with _poll_news(news, lines):
            return self._read(lines)

    def _read(self, lines: list[str]) -> str:
        while True:
            try:
                line = input(self._continuation_prompt if lines else self._prompt)
            except KeyboardInterrupt:
                # readline leaves the cursor at the end of the input.
                sys.stdout.write("\n")
                if not lines and not readline.get_line_buffer():
                    raise
                lines.clear()
                continue
            # Do this first, so that `NewsArrived` can no longer discard the line.
            lines.append(line)
            self.add_to_history(line)
            if not line.endswith(_CONTINUATION):
                return "\n".join(lines)
            lines[-1] = line.removesuffix(_CONTINUATION)

    def add_to_history(self, line: str) -> None:
        """Add a line to the history and its file, unless it repeats the last one."""
        length = readline.get_current_history_length()
        flat = " ".join(line.splitlines())
        if not flat.strip() or (length and readline.get_history_item(length) == flat):
            return
        readline.add_history(flat)
        with suppress(OSError):
            readline.append_history_file(1, self._history)

    def _complete(self, text: str, state: int) -> str | None:
        if state == 0:
            self._completions = self._matching(text)
        return self._completions[state] if state < len(self._completions) else None

    def _matching(self, text: str) -> list[str]:
        if text.startswith("/"):
            return [word + " " for word in self._commands if word.startswith(text)]
        if text.startswith("@"):
            from hermes.commands.completion import suggestions

            found = [suggestion.text for suggestion in suggestions(text, {}, self._folder)]
            return found if len(found) == 1 else _with_typed_prefix(text, found)
        return []


def _with_typed_prefix(text: str, found: Sequence[str]) -> list[str]:
    """Only matches with the typed prefix, because readline inserts their common part."""
    kept = [one for one in found if one.startswith(text)]
    return kept or [one for one in found if one.startswith(f"@file:{text[1:]}")]


def _color_prompt(style: Style, prompt: str) -> str:
    """Mark color codes as zero-width, so that readline counts columns correctly."""
    if not style.has_color:
        return prompt
    return f"\x01\x1b[1;36m\x02{prompt}\x01\x1b[0m\x02"


FOREGROUND_POLL = 0.2
"""Seconds between checks whether this process is in the foreground again."""
_READ_SIZE = 64 * 1024


class BackgroundReader:
    """Reads lines from the terminal in a thread during a turn, except while `paused`."""

    def __init__(self, fd: int, on_line: Callable[[str], None]) -> None:
        self._fd = fd
        self._on_line = on_line
        self._reading = threading.Lock()
        self._unpaused = threading.Event()
        self._closing = threading.Event()
        self._ended = threading.Event()
        self._unpaused.set()

    @contextmanager
    def paused(self) -> Generator[None]:
        """Leave the input to another reader, such as a question."""
        self._unpaused.clear()
        try:
            with self._reading:
                yield
        finally:
            self._unpaused.set()

    @contextmanager
    def open(self) -> Generator[None]:
        """Read while the context is open; later input stays in the terminal."""
        wake_reader, wake_writer = os.pipe()
        Worker("chat-input", lambda: self._listen(wake_reader)).start()
        try:
            yield
        finally:
            self._closing.set()
            os.write(wake_writer, b"\0")
            self._ended.wait()
            os.close(wake_writer)
            os.close(wake_reader)

    def _listen(self, wake_reader: int) -> None:
        try:
            while not self._closing.is_set():
                select([self._fd, wake_reader], [], [])
                self._unpaused.wait()
                if not self._is_foreground():
                    # Reading from the terminal in the background would stop the process.
                    self._closing.wait(FOREGROUND_POLL)
                elif text := self._read():
                    self._on_line(text)
        except OSError:
            # The terminal is gone; the thread that waits for the turn handles it.
            pass
        finally:
            self._ended.set()

    def _read(self) -> str:
        """The next line; empty if another reader took it."""
        with self._reading:
            if self._closing.is_set() or not select([self._fd], [], [], 0)[0]:
                return ""
            data = os.read(self._fd, _READ_SIZE)
        return data.decode("utf-8", "replace").strip()

    def _is_foreground(self) -> bool:
        with suppress(OSError):
            return os.tcgetpgrp(self._fd) == os.getpgrp()
        return False


ANSWER_POLL = 0.2
"""Seconds between checks for a timeout or an interrupt."""
_NO_COUNTDOWN = 24 * 3600
"""Longer limits are not mentioned."""
_CHOICE_KEYS = {choice.value[0]: choice for choice in ApprovalChoice}


def ask_at_terminal(
    question: Question,
    stdin: TextIO,
    out: TextIO,
    clock: Clock,
    *,
    attention: Attention,
    interrupted: Callable[[], bool],
) -> str | None:
    """The answer; None after a timeout or an interrupt.

    An approval is asked again if the answer is not one of the choices.
    """
    end = clock.monotonic() + question.time_left(clock.now())

    def over() -> bool:
        attention.check()
        return interrupted() or clock.monotonic() >= end

    # Discard what was typed before the question appeared.
    with suppress(termios.error, OSError):
        termios.tcflush(stdin.fileno(), termios.TCIFLUSH)
    kind = "approval needed" if question.kind is QuestionKind.APPROVAL else "question"
    attention.call(f"{kind}: {question.subject or question.text}")
    try:
        return _read_choice(question, stdin, out, lambda: end - clock.monotonic(), over)
    finally:
        attention.end()


def _read_choice(
    question: Question,
    stdin: TextIO,
    out: TextIO,
    seconds_left: Callable[[], float],
    over: Callable[[], bool],
) -> str | None:
    out.write(_answer_prompt(question, seconds_left()))
    out.flush()
    while (line := _read_answer(stdin.fileno(), over)) is not None:
        if question.kind is QuestionKind.CLARIFY:
            return line.strip() or None
        if chosen := _parse_choice(line, question.choices):
            return chosen
        out.write(f"{one_line(single_line(line), 40)!r} is not one of the choices.\n")
        out.write(_answer_prompt(question, seconds_left()))
        out.flush()
    out.write("\n")
    out.flush()
    return None


def terminal_attention(context: CliContext, style: Style) -> Attention:
    """Signals to the person at this terminal; none without escape codes."""

    def write(sequence: str) -> None:
        if style.can_rewrite:
            context.stdout.write(sequence)
            context.stdout.flush()

    return Attention(write, SystemClock(), notification_sequence(context.env))


def _answer_prompt(question: Question, seconds: float) -> str:
    choices = [single_line(one) for one in question.choices]
    if question.kind is QuestionKind.CLARIFY:
        return "".join(f"  {number}. {one}\n" for number, one in enumerate(choices, 1)) + "> "
    named = " / ".join(f"[{one[0]}]{one[1:]}" for one in choices)
    limit = f"; auto-denied in {max(1, round(seconds))} s" if seconds < _NO_COUNTDOWN else ""
    return f"{named} (Enter denies{limit}): "


def _parse_choice(line: str, choices: tuple[str, ...]) -> str:
    """The choice that was typed; empty if it is none of them. Enter alone means deny."""
    word = line.strip().strip(".!").lower()
    word = {"": "deny", "y": "once", "yes": "once", "n": "deny", "no": "deny"}.get(word, word)
    chosen = _CHOICE_KEYS.get(word, word)
    return chosen if chosen in choices else ""


def _read_answer(fd: int, over: Callable[[], bool]) -> str | None:
    while not over():
        if select([fd], [], [], ANSWER_POLL)[0]:
            return os.read(fd, _READ_SIZE).decode("utf-8", "replace")
    return None
