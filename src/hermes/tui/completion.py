"""What can be meant by what is being typed: a slash command, or a file after an @."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

MOST = 50
_FILE = re.compile(r"(?:^|(?<=\s))@(\S*)$")


class Suggestion(Struct, frozen=True):
    """`text` takes the place of the last `replaces` characters before the cursor."""

    label: str
    text: str
    replaces: int
    about: str = ""


def suggestions(before: str, commands: Mapping[str, str], folder: str) -> list[Suggestion]:
    """`before` is all that stands before the cursor."""
    if before.startswith("/") and not re.search(r"\s", before):
        return _commands(before[1:], commands)
    if found := _FILE.search(before):
        return _files(found[1], Path(folder))
    return []


def _commands(typed: str, commands: Mapping[str, str]) -> list[Suggestion]:
    begin = [name for name in commands if name.startswith(typed)]
    within = [name for name in commands if typed in name and name not in begin]
    return [
        Suggestion("/" + name, f"/{name} ", len(typed) + 1, commands[name])
        for name in [*begin, *within][:MOST]
    ]


def _files(typed: str, folder: Path) -> list[Suggestion]:
    parent, _, start = typed.rpartition("/")
    place = parent + "/" if "/" in typed else ""
    try:
        entries = list(os.scandir(folder / os.path.expanduser(place or ".")))  # noqa: PTH111
    except (OSError, ValueError):
        return []
    fitting = [one for one in entries if _fits(one.name, start)]
    fitting.sort(key=lambda one: (not one.name.startswith(start), one.name.lower()))
    return [_file(place, one, len(typed) + 1) for one in fitting[:MOST]]


def _fits(name: str, start: str) -> bool:
    if name.startswith(".") is not start.startswith("."):
        return False
    return start.lower() in name.lower() and name.isprintable() and " " not in name


def _file(place: str, entry: "os.DirEntry[str]", replaces: int) -> Suggestion:
    path = f"@{place}{entry.name}"
    try:
        folder = entry.is_dir()
    except OSError:
        folder = False
    if folder:
        return Suggestion(path + "/", path + "/", replaces)
    return Suggestion(path, path + " ", replaces)
