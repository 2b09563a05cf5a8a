"""The questions of `hermes setup`, for whoever sits at the terminal."""

from collections.abc import Callable, Sequence
from getpass import getpass

from hermes.cli.context import CliContext
from hermes.cli.export.plain import flat
from hermes.cli.style import Style
from hermes.cli.typed import typed_line
from hermes.schema.errors import UsageError

SHOWN = 30


class Person:
    """`asks` is whether there is anybody who could answer."""

    def __init__(self, context: CliContext, *, asks: bool) -> None:
        self._stdin = context.stdin
        self._out = context.stderr
        self._style = Style(self._out, context.env.get("NO_COLOR"), context.env.get("TERM"))
        self.asks = asks and context.stdin.isatty()

    def says(self, text: str) -> None:
        self._out.write(self._style.wrapped(f"hermes: {flat(text)}") + "\n")
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
        for number, (name, about) in enumerate(rows[:SHOWN], 1):
            self._out.write(f"  {number:>2}. {flat(name):<14} {flat(about)}".rstrip() + "\n")
        if len(rows) > SHOWN:
            self._out.write(f"      … and {len(rows) - SHOWN:,} more; write its name\n")
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
            self._out.write(f"{what}{f' [{flat(usual)}]' if usual else ''}: ")
            self._out.flush()
            typed = typed_line(self._stdin)
            if not typed:
                raise _nothing()
            if said := typed.strip() or usual:
                return said

    def agrees(self, question: str, *, usual: bool = False) -> bool:
        """Enter alone is the `usual` answer; an end of what is typed is a no."""
        ways = "[Y/n]" if usual else "[y/N]"
        self._out.write(self._style.wrapped(f"{flat(question)} {ways}") + " ")
        self._out.flush()
        typed = typed_line(self._stdin)
        said = typed.strip().lower()
        return said in {"y", "yes"} or (usual and bool(typed) and not said)

    def key(self, whose: str) -> str:
        """Nothing at all is an end; what cannot be a key is asked for again."""
        while True:
            typed = getpass(f"Key for {whose} (it is not shown): ", stream=self._out).strip()
            try:
                return checked_key(typed)
            except UsageError as error:
                if not typed:
                    raise
                self.says(error.sentence)

    def piped_key(self) -> str:
        """The first line of what is piped in; typed at a terminal, it is not shown."""
        if self._stdin.isatty():
            return self.key("the provider")
        return checked_key(self._stdin.readline().strip())


def checked_key(key: str) -> str:
    """Raises `UsageError` for what cannot be a key."""
    if not key:
        raise UsageError("No key was given; nothing was changed.", hint="hermes setup")
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise UsageError(
            "The key holds a character that no key has.",
            hint="A line break or blank may have been copied along: copy it again.",
        )
    return key


def _nothing() -> UsageError:
    return UsageError("Nothing was chosen; nothing was changed.", hint="hermes setup")
