"""The parser of every verb: what is wrong with a command line is an ordinary error of ours."""

import os
from argparse import PARSER, Action, ArgumentParser, HelpFormatter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, Protocol, cast

from hermes.kit.text import did_you_mean
from hermes.schema.errors import UsageError

_WIDTHS = (40, 100)
_ASSUMED_WIDTH = 80
_UNRECOGNIZED = "unrecognized arguments: "


class Parser(ArgumentParser):
    def __init__(self, **given: Any) -> None:
        given.setdefault("formatter_class", _formatter)
        super().__init__(**given)

    def error(self, message: str) -> NoReturn:
        """What is wrong, and where to read more; the usage only where it is a single line."""
        given = message.removeprefix(_UNRECOGNIZED)
        if given != message and given.startswith("-"):
            raise no_such_flag(given.split()[0], flags_of(self), self.prog)
        actions = self._action_list()
        if actions and message.endswith(": ACTION"):
            raise UsageError(f"`{self.prog}` needs to know what to do:", hint=actions)
        usage = self.format_usage()
        hint = _help_hint(self.prog)
        if usage.count("\n") == 1:
            hint = f"{usage}  {hint}"
        raise UsageError(f"{message[:1].upper()}{message[1:]}.", hint=hint)

    def _check_value(self, action: Action, value: Any) -> None:
        """What is nearly one of the words to choose from is asked about."""
        words = [str(one) for one in action.choices or ()]
        near = did_you_mean(str(value), words) if words and value not in words else ""
        if near:
            what = "/".join(action.option_strings) or str(action.metavar or action.dest).lower()
            raise UsageError(f"There is no {what} {str(value)!r}.", hint=near)
        super()._check_value(action, value)

    def _action_list(self) -> str:
        """A line for each, as in the help; nothing for a verb without actions."""
        for action in self._actions:
            if action.nargs == PARSER:
                ones = cast("Sequence[Action]", getattr(action, "_choices_actions", ()))
                width = max((len(one.dest) for one in ones), default=0)
                rows = [f"  {one.dest:<{width}}  {one.help}" for one in ones]
                return "\n".join([*rows, f"  {_help_hint(self.prog)}"]).strip()
        return ""


def flags_of(parser: ArgumentParser) -> Iterator[str]:
    """Also those of its actions."""
    for action in parser._actions:  # noqa: SLF001 - there is no other way to them
        yield from action.option_strings
        if action.nargs == PARSER:
            for one in cast("Mapping[str, ArgumentParser]", action.choices).values():
                yield from flags_of(one)


def no_such_flag(flag: str, known: Iterable[str], prog: str) -> UsageError:
    name = flag.partition("=")[0]
    return UsageError(
        f"There is no flag {name}.", hint=did_you_mean(name, known) or _help_hint(prog)
    )


def _help_hint(prog: str) -> str:
    return f"`{prog} --help` shows what there is."


class _Actions(Protocol):
    def add_parser(self, name: str, /, *, help: str, description: str) -> ArgumentParser: ...  # noqa: A002 - argparse's word


def add_action(verbs: _Actions, name: str, what: str) -> ArgumentParser:
    """One of a verb's actions; what it does stands in the verb's list and in its own help."""
    return verbs.add_parser(name, help=what, description=f"{what[:1].upper()}{what[1:]}.")


def _formatter(prog: str) -> HelpFormatter:
    """Knows its width; to find out by itself, argparse would load every archive format first."""
    try:
        columns = os.get_terminal_size(1).columns
    except OSError:
        columns = _ASSUMED_WIDTH
    return HelpFormatter(prog, width=min(max(columns, _WIDTHS[0]), _WIDTHS[1]) - 2)
