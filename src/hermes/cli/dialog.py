"""A line of whoever sits at the terminal, and may press Ctrl+C at any moment."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from getpass import getpass
from select import select
from typing import TextIO

from hermes.cli.context import CliContext
from hermes.cli.output import Style
from hermes.kit.terminal_text import single_line
from hermes.schema.errors import UsageError

POLL_INTERVAL = 0.2
"""Seconds after which a Ctrl+C is heard that came in the moment before the wait for a key."""


def read_line(stdin: TextIO) -> str:
    """The next line with its end; nothing when there is none."""
    if stdin.isatty():
        # A test's terminal is no file, and has all that will ever be typed.
        with suppress(OSError, ValueError):
            while not select([stdin], [], [], POLL_INTERVAL)[0]:
                continue
    return stdin.readline()


MAX_CHOICES = 30


class TerminalDialog:
    """`asks` is whether there is anybody who could answer."""

    def __init__(self, context: CliContext, *, asks: bool) -> None:
        self._stdin = context.stdin
        self._out = context.stderr
        self._style = Style(self._out, context.env.get("NO_COLOR"), context.env.get("TERM"))
        self.asks = asks and context.stdin.isatty()

    def says(self, text: str) -> None:
        self._out.write(self._style.wrapped(f"hermes: {single_line(text)}") + "\n")
        self._out.flush()

    def choice(
        self,
        question: str,
        rows: Sequence[tuple[str, str]],
        usual: str,
        wrong: Callable[[str], str] = lambda name: "",
    ) -> str:
        """One of the names, by its number or written out; any other name that is written out.

        `wrong` says what is wrong with such a name, which is then asked for again.
        """
        self._out.write(f"{question}\n")
        for number, (name, about) in enumerate(rows[:MAX_CHOICES], 1):
            self._out.write(
                f"  {number:>2}. {single_line(name):<14} {single_line(about)}".rstrip() + "\n"
            )
        if len(rows) > MAX_CHOICES:
            self._out.write(f"      … and {len(rows) - MAX_CHOICES:,} more; write its name\n")
        while True:
            said = self.line("Number or name", usual)
            if not said.isdecimal():
                trouble = wrong(said)
                if not trouble:
                    return said
            elif 1 <= int(said) <= len(rows):
                return rows[int(said) - 1][0]
            else:
                trouble = f"There is no number {said}."
            self.says(trouble)

    def line(self, what: str, usual: str) -> str:
        """What is typed, or the usual answer for Enter alone; asked until there is one."""
        while True:
            self._out.write(f"{what}{f' [{single_line(usual)}]' if usual else ''}: ")
            self._out.flush()
            typed = read_line(self._stdin)
            if not typed:
                raise _nothing_chosen()
            if said := typed.strip() or usual:
                return said

    def agrees(self, question: str, *, usual: bool = False) -> bool:
        """Enter alone is the `usual` answer; an end of what is typed is a no."""
        ways = "[Y/n]" if usual else "[y/N]"
        self._out.write(self._style.wrapped(f"{single_line(question)} {ways}") + " ")
        self._out.flush()
        typed = read_line(self._stdin)
        said = typed.strip().lower()
        return said in {"y", "yes"} or (usual and bool(typed) and not said)

    def key(self, whose: str) -> str:
        """Nothing at all is an end; what cannot be a key is asked for again."""
        while True:
            typed = getpass(f"Key for {whose} (it is not shown): ", stream=self._out).strip()
            try:
                return check_key(typed)
            except UsageError as error:
                if not typed:
                    raise
                self.says(error.sentence)

    def key_from_stdin(self) -> str:
        """The first line of what is piped in; typed at a terminal, it is not shown."""
        if self._stdin.isatty():
            return self.key("the provider")
        return check_key(self._stdin.readline().strip())


def check_key(key: str) -> str:
    """Raises `UsageError` for what cannot be a key."""
    if not key:
        raise UsageError("No key was given; nothing was changed.", hint="hermes setup")
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise UsageError(
            "The key holds a character that no key has.",
            hint="A line break or blank may have been copied along: copy it again.",
        )
    return key


def _nothing_chosen() -> UsageError:
    return UsageError("Nothing was chosen; nothing was changed.", hint="hermes setup")
