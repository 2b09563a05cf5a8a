"""Ask questions at the terminal: choices, lines, confirmations and keys."""

import asyncio
import signal
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from getpass import getpass
from select import select
from threading import current_thread, main_thread
from typing import TextIO

from hermes.cli.context import CliContext
from hermes.cli.output import Style
from hermes.kit.terminal_text import single_line
from hermes.schema.errors import UsageError

POLL_INTERVAL = 0.2
"""Seconds between checks for a Ctrl+C that arrived just before the wait for input."""


def ask(stdin: TextIO, out: TextIO, prompt: str) -> str:
    """Return the line typed after the prompt with its line break; empty at the end of input."""
    # Done before the prompt is shown, so that an immediate Ctrl+C counts.
    with _interruptible():
        out.write(prompt)
        out.flush()
        if not stdin.isatty():
            return stdin.readline()
        # A fake terminal in a test has no file descriptor and never blocks.
        with suppress(OSError, ValueError):
            while not select([stdin], [], [], POLL_INTERVAL)[0]:
                continue
        return stdin.readline()


@contextmanager
def _interruptible() -> Generator[None]:
    """Let Ctrl+C end the wait at once, also in an event loop, which would only cancel its task."""
    if not _is_in_loop():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _is_in_loop() -> bool:
    """Whether this is the main thread, which receives signals, and an event loop runs in it."""
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        return current_thread() is main_thread()
    return False


BACK = "<"
"""The answer that returns to the previous question."""
MAX_CHOICES = 30
_ROW_INDENT = " " * 21
"""Column at which descriptions begin at the latest."""


class TerminalDialog:
    """Questions and answers at a terminal; `interactive` is False when stdin is not one."""

    def __init__(self, context: CliContext, *, interactive: bool) -> None:
        self._stdin = context.stdin
        self._out = context.stderr
        self._style = Style(self._out, context.env)
        self.interactive = interactive and context.stdin.isatty()

    def print(self, text: str) -> None:
        """Print a line; when not interactive, prefix it with the program's name."""
        prefix = "" if self.interactive else "hermes: "
        self._out.write(self._style.wrap_text(f"{prefix}{single_line(text)}") + "\n")
        self._out.flush()

    def choose(
        self,
        question: str,
        rows: Sequence[tuple[str, str]],
        default: str,
        problem_with: Callable[[str], str] = lambda name: "",
    ) -> str:
        """Ask for one of the rows, by number or name; other names are accepted as well.

        `problem_with` returns why a name is not acceptable; the question is then repeated.
        """
        self.show_rows(question, rows)
        while True:
            answer = self.ask_line("Number or name", default)
            if answer.isdecimal() and 1 <= int(answer) <= len(rows):
                return rows[int(answer) - 1][0]
            listed = f"{answer} is not in the list."
            problem = listed if answer.isdecimal() else problem_with(answer)
            if not problem:
                return answer
            self.print(problem)

    def show_rows(self, question: str, rows: Sequence[tuple[str, str]]) -> None:
        """Print a numbered list; a long one is cut."""
        self._out.write(f"{question}\n")
        for number, (name, about) in enumerate(rows[:MAX_CHOICES], 1):
            row = f"  {number:>2}. {single_line(name):<14} {single_line(about)}".rstrip()
            self._out.write(self._style.wrap_text(row, indent=_ROW_INDENT) + "\n")
        if len(rows) > MAX_CHOICES:
            self._out.write(f"      … and {len(rows) - MAX_CHOICES:,} more; type the name\n")

    def ask_line(self, label: str, default: str) -> str:
        """Ask for a line until it is not empty; Enter alone gives the default, if any."""
        while True:
            prompt = f"{label}{f' [{single_line(default)}]' if default else ''}: "
            typed = ask(self._stdin, self._out, prompt)
            if not typed:
                raise UsageError(
                    "Nothing chosen; nothing was changed.", hint="Try again: hermes setup"
                )
            if answer := typed.strip() or default:
                return answer

    def confirm(self, question: str, *, default: bool = False) -> bool:
        """Ask until the answer is yes or no; Enter alone is the default, the end of input no."""
        options = "[Y/n]" if default else "[y/N]"
        prompt = self._style.wrap_text(f"{single_line(question)} {options}") + " "
        while typed := ask(self._stdin, self._out, prompt):
            answer = typed.strip().lower()
            if answer in {"", "y", "yes", "n", "no"}:
                return answer in {"y", "yes"} or (default and not answer)
            self.print("Type y or n.")
        return False

    def ask_key(self, provider: str, what: str = "Key", *, optional: bool = False) -> str:
        """Ask for a key without echo; repeat the question when the input cannot be a key."""
        hint = "input is hidden; Enter if there is none" if optional else "input is hidden"
        while True:
            typed = getpass(f"{what} for {provider} ({hint}): ", stream=self._out).strip()
            if optional and not typed:
                return ""
            try:
                return check_key(typed)
            except UsageError as error:
                if not typed:
                    raise
                self.print(error.sentence)

    def ask_secret(self, label: str, known: str, *, optional: bool = False) -> str:
        """Ask for a secret without echo; Enter keeps the known one, or none if it is optional.

        The question is repeated if the input cannot be a secret.
        """
        none = "; Enter if there is none" if optional else ""
        if known:
            none = f"; Enter keeps the last one{', - for none' if optional else ''}"
        while True:
            try:
                typed = getpass(f"{label} (input is hidden{none}): ", stream=self._out).strip()
            except EOFError as error:
                raise UsageError("Nothing was entered; nothing was changed.") from error
            if not typed and optional:
                return known
            try:
                if typed or known:
                    return check_key(typed or known)
            except UsageError as error:
                self.print(error.sentence)

    def key_from_stdin(self, *, optional: bool = False) -> str:
        """Read the key from a pipe, or ask for it at a terminal."""
        if self._stdin.isatty():
            return self.ask_key("the provider", optional=optional)
        key = self._stdin.readline().strip()
        return key if optional and not key else check_key(key)


def check_key(key: str) -> str:
    """Return the key; raise `UsageError` if it cannot be one."""
    if not key:
        raise UsageError("No key given; nothing was changed.", hint="Try again: hermes setup")
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise UsageError(
            "The key contains a space or another invalid character.",
            hint="Copy it again, without spaces or line breaks.",
        )
    return key
