"""Refuse YAML that would cost more than it says: nested too deep, or unfolding without end."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import yaml

from hermes.config.problems import Problem, Severity, as_error
from hermes.kit.errors import ConfigError

DEEPEST = 50
MOST_VALUES = 100_000
"""Counted with every alias (*name) written out; a long text counts for several."""
_LONG = 64


class _Open:
    """A list or mapping that has begun: its anchor, and how many values are in it so far."""

    def __init__(self, anchor: str | None) -> None:
        self.anchor = anchor
        self.values = 1


def check_limits(events: Iterable[yaml.Event], file: Path) -> None:
    """Raises `ConfigError`. The events come one by one, so nothing large is ever built."""
    named: dict[str, int] = {}
    around = [_Open(None)]
    for event in events:
        values = 0
        if isinstance(event, yaml.AliasEvent):
            values = _behind(event, named, around, file)
        elif isinstance(event, yaml.ScalarEvent):
            values = 1 + len(event.value) // _LONG
            _name(event.anchor, values, named)
        elif isinstance(event, yaml.CollectionStartEvent):
            around.append(_Open(event.anchor))
        elif isinstance(event, yaml.CollectionEndEvent):
            done = around.pop()
            values = done.values
            _name(done.anchor, values, named)
        around[-1].values += values
        if len(around) > DEEPEST + 1:
            raise _refused(event, file, f"this is nested more than {DEEPEST} levels deep")
        if around[-1].values > MOST_VALUES:
            what = f"this has more than {MOST_VALUES:,} values, every *alias written out"
            raise _refused(event, file, what)


def _name(anchor: str | None, values: int, named: dict[str, int]) -> None:
    if anchor:
        named[anchor] = values


def _behind(
    alias: yaml.AliasEvent, named: dict[str, int], around: Sequence[_Open], file: Path
) -> int:
    """How many values the alias stands for; the parser itself tells of one that is unknown."""
    if any(place.anchor == alias.anchor for place in around):
        what = f"this is nested without end: *{alias.anchor} stands inside of &{alias.anchor}"
        raise _refused(alias, file, what)
    return named.get(alias.anchor or "", 1)


def _refused(event: yaml.Event, file: Path, what: str) -> ConfigError:
    mark = event.start_mark
    problem = Problem(
        severity=Severity.ERROR,
        file=file,
        line=mark.line + 1 if mark else 0,
        column=mark.column + 1 if mark else 0,
        message=what,
        hint="Write it shorter and flatter.",
    )
    return as_error([problem])
