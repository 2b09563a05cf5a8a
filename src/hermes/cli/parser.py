"""The argument parser of every command; raises `UsageError` instead of exiting."""

import os
from argparse import PARSER, Action, ArgumentParser, HelpFormatter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn, Protocol, cast

from hermes.kit.text import did_you_mean
from hermes.schema.errors import UsageError

_WIDTHS = (40, 100)
_ASSUMED_WIDTH = 80
_UNRECOGNIZED = "unrecognized arguments: "


class Parser(ArgumentParser):
    def __init__(self, **options: Any) -> None:
        """The width of the help is explicit: argparse would import shutil to find it."""
        try:
            columns = os.get_terminal_size(1).columns
        except OSError:
            columns = _ASSUMED_WIDTH
        width = min(max(columns, _WIDTHS[0]), _WIDTHS[1]) - 2
        options.setdefault("formatter_class", partial(HelpFormatter, width=width))
        super().__init__(**options)

    def error(self, message: str) -> NoReturn:
        """Raise `UsageError` with a hint; the usage is added only if it fits on one line."""
        unrecognized = message.removeprefix(_UNRECOGNIZED)
        if unrecognized != message and unrecognized.startswith("-"):
            raise no_such_flag(unrecognized.split()[0], flags_of(self), self.prog)
        actions = self._action_list()
        if actions and message.endswith(": ACTION"):
            raise UsageError(f"`{self.prog}` needs an action:", hint=actions)
        usage = self.format_usage()
        hint = _help_hint(self.prog)
        if usage.count("\n") == 1:
            hint = f"{usage}  {hint}"
        raise UsageError(f"{message[:1].upper()}{message[1:]}.", hint=hint)

    def _check_value(self, action: Action, value: Any) -> None:
        """Suggest the closest choice for a misspelled value."""
        choices = [str(choice) for choice in action.choices or ()]
        near = did_you_mean(str(value), choices) if choices and value not in choices else ""
        if near:
            what = "/".join(action.option_strings) or str(action.metavar or action.dest).lower()
            raise UsageError(f"Unknown {what}: {str(value)!r}.", hint=near)
        if action.nargs == PARSER and value not in choices:
            hint = f"Run `{self.prog} --help` for the list of actions."
            raise UsageError(f"Unknown action: {str(value)!r}.", hint=hint)
        super()._check_value(action, value)

    def _action_list(self) -> str:
        """One line per action, as in the help; empty for a command without actions."""
        for action in self._actions:
            if action.nargs == PARSER:
                choices = cast("Sequence[Action]", getattr(action, "_choices_actions", ()))
                width = max((len(choice.dest) for choice in choices), default=0)
                rows = [f"  {choice.dest:<{width}}  {choice.help}" for choice in choices]
                return "\n".join([*rows, f"  {_help_hint(self.prog)}"]).strip()
        return ""


def flags_of(parser: ArgumentParser) -> Iterator[str]:
    """All flags of the parser and of its actions."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no public way
        yield from action.option_strings
        if action.nargs == PARSER:
            for subparser in cast("Mapping[str, ArgumentParser]", action.choices).values():
                yield from flags_of(subparser)


def no_such_flag(flag: str, known: Iterable[str], prog: str) -> UsageError:
    name = flag.partition("=")[0]
    # A typo is rarely in the first letter: --file is not a typo of --profile.
    first = name.lstrip("-")[:1]
    near = did_you_mean(name, (one for one in known if one.lstrip("-")[:1] == first))
    return UsageError(f"Unknown flag: {name}.", hint=near or _help_hint(prog))


def _help_hint(prog: str) -> str:
    return f"Run `{prog} --help` for usage."


class Actions(Protocol):
    """The actions of a command, as argparse returns them."""

    def add_parser(self, name: str, /, *, help: str, description: str) -> ArgumentParser: ...  # noqa: A002 - argparse's word


class _Arguments(Protocol):
    """A parser or a group of its arguments."""

    def add_argument(self, *names: str, action: str, help: str) -> Action: ...  # noqa: A002 - argparse's word


def add_actions(parser: ArgumentParser) -> Actions:
    return parser.add_subparsers(prog=parser.prog, dest="action", metavar="ACTION", required=True)


def add_action(verbs: Actions, name: str, summary: str) -> ArgumentParser:
    """Add an action; `summary` is its line in the list and the description in its own help."""
    return verbs.add_parser(name, help=summary, description=f"{summary[:1].upper()}{summary[1:]}.")


def add_switch(arguments: _Arguments, name: str, summary: str) -> None:
    """Add a flag without a value."""
    arguments.add_argument(name, action="store_true", help=summary)


def add_json_flag(arguments: _Arguments) -> None:
    add_switch(arguments, "--json", "print JSON")


def add_yes_flag(arguments: _Arguments) -> None:
    arguments.add_argument("-y", "--yes", action="store_true", help="do not ask for confirmation")
