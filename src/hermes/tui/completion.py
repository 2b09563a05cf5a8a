"""What can be meant by what is being typed: a slash command, or a reference after an @."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, structs

MAX_SUGGESTIONS = 50
_REFERENCE = re.compile(r"(?<![\w@/])@(?:(?:file|folder):\"[^\"]*|[^\s\"]*)$")
_PUNCTUATION = tuple(".,;:!?)]}'")


class Suggestion(Struct, frozen=True):
    """`text` takes the place of the last `replaces` characters before the cursor."""

    label: str
    text: str
    replaces: int
    about: str = ""


_KINDS = (
    Suggestion("@file:", "@file:", 0, "a file, or some of its lines: @file:notes.md:3-9"),
    Suggestion("@folder:", "@folder:", 0, "what is in a folder"),
    Suggestion("@diff", "@diff ", 0, "what git sees changed here"),
    Suggestion("@staged", "@staged ", 0, "what is staged for the next commit"),
    Suggestion("@git:", "@git:", 0, "the last commits: @git:3"),
    Suggestion("@url:", "@url:", 0, "a web page"),
)


def suggestions(before: str, commands: Mapping[str, str], folder: str) -> list[Suggestion]:
    """`before` is all that stands before the cursor."""
    if before.startswith("/") and not re.search(r"\s", before):
        return _commands(before[1:], commands)
    if found := _REFERENCE.search(before):
        return _references(found[0], Path(folder))
    return []


def _commands(typed: str, commands: Mapping[str, str]) -> list[Suggestion]:
    begin = [name for name in commands if name.startswith(typed)]
    within = [name for name in commands if typed in name and name not in begin]
    return [
        Suggestion("/" + name, f"/{name} ", len(typed) + 1, commands[name])
        for name in [*begin, *within][:MAX_SUGGESTIONS]
    ]


def _references(typed: str, folder: Path) -> list[Suggestion]:
    """`typed` begins with the @; what stands there already to the letter is not suggested."""
    kind, colon, what = typed[1:].partition(":")
    if colon:
        found = _paths(kind, what, folder) if kind in {"file", "folder"} else []
    else:
        found = [one for one in _KINDS if one.label.startswith(typed)]
        found += _paths("file", kind, folder)
    found = [structs.replace(one, replaces=len(typed)) for one in found[:MAX_SUGGESTIONS]]
    return [] if [one.text.rstrip() for one in found] == [typed] else found


def _paths(kind: str, what: str, folder: Path) -> list[Suggestion]:
    typed = what.removeprefix('"')
    parent, slash, start = typed.rpartition("/")
    place = parent + slash
    try:
        entries = list(os.scandir(folder / os.path.expanduser(place or ".")))  # noqa: PTH111 - "~nobody" stays as it is
    except (OSError, ValueError):
        return []
    fitting = [one for one in entries if _matches(one.name, start)]
    fitting.sort(key=lambda one: (not one.name.startswith(start), one.name.lower()))
    found: list[Suggestion] = []
    for one in fitting:
        if _is_folder(one):
            found.append(_reference(kind, f"{place}{one.name}/", ends=False))
        elif kind == "file":
            found.append(_reference(kind, place + one.name, ends=True))
    if place and not start:
        found.append(_reference("folder", place, ends=True, about="the folder itself"))
    return found


def _reference(kind: str, path: str, *, ends: bool, about: str = "") -> Suggestion:
    """As it is referred to; a mark at the end of a name would be taken for the sentence's own."""
    if re.search(r"\s", path) or path.endswith(_PUNCTUATION):
        name = f'@{kind}:"{path}'
        return Suggestion(name + '"', name + '" ' if ends else name, 0, about)
    return Suggestion(f"@{kind}:{path}", f"@{kind}:{path}" + " " * ends, 0, about)


def _matches(name: str, start: str) -> bool:
    if name.startswith(".") is not start.startswith("."):
        return False
    return start.lower() in name.lower() and name.isprintable() and '"' not in name


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False
