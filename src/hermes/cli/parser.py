"""The parser of every verb: what is wrong with a command line is an ordinary error of ours."""

import os
from argparse import ArgumentParser, HelpFormatter
from typing import Any, NoReturn, Protocol

from hermes.schema.errors import UsageError

_WIDTHS = (40, 100)
_ASSUMED_WIDTH = 80


class Parser(ArgumentParser):
    def __init__(self, **given: Any) -> None:
        given.setdefault("formatter_class", _formatter)
        super().__init__(**given)

    def error(self, message: str) -> NoReturn:
        """What is wrong, and where to read more; the usage only where it is a single line."""
        usage = self.format_usage()
        hint = f"`{self.prog} --help` shows what there is."
        if usage.count("\n") == 1:
            hint = f"{usage}  {hint}"
        raise UsageError(f"{message[:1].upper()}{message[1:]}.", hint=hint)


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
