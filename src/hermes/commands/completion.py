"""Suggest slash commands and @ references for the typed text."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, structs

MAX_SUGGESTIONS = 50
_REFERENCE = re.compile(r"(?<![\w@/])@(?:(?:file|folder):\"[^\"]*|[^\s\"]*)$")
_PUNCTUATION = tuple(".,;:!?)]}'")


class Suggestion(Struct, frozen=True):
    """`text` replaces the last `replaces` characters before the cursor."""

    label: str
    text: str
    replaces: int
    about: str = ""


_KINDS = (
    Suggestion("@file:", "@file:", 0, "a file, or lines of it: @file:notes.md:3-9"),
    Suggestion("@folder:", "@folder:", 0, "the contents of a folder"),
    Suggestion("@diff", "@diff ", 0, "unstaged changes"),
    Suggestion("@staged", "@staged ", 0, "staged changes"),
    Suggestion("@git:", "@git:", 0, "the last commits: @git:3"),
    Suggestion("@url:", "@url:", 0, "a web page"),
)


def suggestions(before: str, commands: Mapping[str, str], folder: str) -> list[Suggestion]:
    """`before` is the text before the cursor."""
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
    """`typed` begins with @; a suggestion equal to it is dropped."""
    kind, colon, target = typed[1:].partition(":")
    if colon:
        found = _paths(kind, target, folder) if kind in {"file", "folder"} else []
    else:
        found = [suggestion for suggestion in _KINDS if suggestion.label.startswith(typed)]
        found += _paths("file", kind, folder)
    found = [
        structs.replace(suggestion, replaces=len(typed)) for suggestion in found[:MAX_SUGGESTIONS]
    ]
    return [] if [suggestion.text.rstrip() for suggestion in found] == [typed] else found


def _paths(kind: str, target: str, folder: Path) -> list[Suggestion]:
    typed = target.removeprefix('"')
    parent, slash, start = typed.rpartition("/")
    prefix = parent + slash
    try:
        entries = list(os.scandir(folder / os.path.expanduser(prefix or ".")))  # noqa: PTH111 - "~nobody" stays as it is
    except (OSError, ValueError):
        return []
    matching = [entry for entry in entries if _matches(entry.name, start)]
    matching.sort(key=lambda entry: (not entry.name.startswith(start), entry.name.lower()))
    found: list[Suggestion] = []
    for entry in matching:
        if _is_folder(entry):
            found.append(_reference(kind, f"{prefix}{entry.name}/", ends=False))
        elif kind == "file":
            found.append(_reference(kind, prefix + entry.name, ends=True))
    if prefix and not start:
        found.append(_reference("folder", prefix, ends=True, about="the folder itself"))
    return found


def _reference(kind: str, path: str, *, ends: bool, about: str = "") -> Suggestion:
    """Quote names with spaces or trailing punctuation, which would count as the sentence's."""
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
