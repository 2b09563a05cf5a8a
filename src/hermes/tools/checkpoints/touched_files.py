"""Find the files that a tool call may change, as far as its arguments tell."""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec import Raw, Struct

MAX_FILES = 400
"""Files of a folder that is saved as a whole."""
MAX_BYTES = 16 << 20
"""Bytes of such a folder."""
MAX_WORDS = 400
"""Maximum words of a command or program to look up as file names."""
SKIPPED_FOLDERS = frozenset({
    ".git", "node_modules", ".venv", "venv", "__pycache__", ".tox", ".mypy_cache", ".pytest_cache",
    ".ruff_cache", ".gradle", ".next", ".nuxt", ".cache", "target",
})  # fmt: skip
_WORD = re.compile(r"""[^\s'"`;|&<>(){}=,]+""")
_PATCHED = re.compile(r"^\*\*\* (?:Add File|Update File|Delete File|Move to): (.+)$", re.MULTILINE)
_WILD = re.compile(r"[*?\[]")
_WHOLE_FOLDER = re.compile(r"\bgit\s+(?:checkout|reset|clean|restore|stash|switch)\b")
"""Commands that change files they do not name."""


_ELSEWHERE = re.compile(
    r"""(?:^|[\s'"=(])(?:/(?!dev/null\b|usr/bin/|bin/)|~|\.\./)|\.\.(?:\s|$)|\b(?:cd|pushd)\b"""
)


class TouchedFiles(Struct, frozen=True):
    """The named files and folders.

    `open_ended`: a command or program may change any other. `elsewhere`: also outside the
    workspace.
    """

    paths: tuple[Path, ...]
    open_ended: bool = False
    elsewhere: bool = False


def touched_files(workspace: Path, args: Raw, home: Path) -> TouchedFiles:
    """Return what a call with these arguments may change."""
    arguments = dict(_texts(args))
    folder = workspace / arguments.get("workdir", "")
    named = [arguments["path"]] if arguments.get("path") else []
    named += _PATCHED.findall(arguments.get("patch", ""))
    program = arguments.get("command") or arguments.get("code") or ""
    paths = [_absolute(folder, name.strip(), home) for name in named]
    paths += _named_in(program, folder, home)
    if _WHOLE_FOLDER.search(program):
        paths.append(folder)
    return TouchedFiles(
        tuple(dict.fromkeys(paths)),
        open_ended=bool(program),
        elsewhere=bool(_ELSEWHERE.search(program) or arguments.get("workdir")),
    )


def files_below(folder: Path, limit: int = MAX_FILES) -> list[Path] | None:
    """All files of a folder without those of caches and repositories; None if there are more."""
    found: list[Path] = []
    pending = [folder]
    size = 0
    while pending:
        for entry in _entries(pending.pop()):
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in SKIPPED_FOLDERS:
                    pending.append(Path(entry.path))
            elif entry.is_symlink() or entry.is_file(follow_symlinks=False):
                found.append(Path(entry.path))
                size += entry.stat(follow_symlinks=False).st_size
            if len(found) + len(pending) > limit or size > MAX_BYTES:
                return None
    return found


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        return list(os.scandir(folder))
    except OSError:
        return []


def _texts(args: Raw) -> Iterator[tuple[str, str]]:
    try:
        arguments = msgspec.json.decode(args, type=dict[str, object])
    except msgspec.DecodeError:
        return
    for key, value in arguments.items():
        if isinstance(value, str) and "\0" not in value:
            yield key, value


def _named_in(program: str, folder: Path, home: Path) -> Iterable[Path]:
    """Words of a command or a program that are existing files, or patterns of such."""
    for word in list(dict.fromkeys(_WORD.findall(program)))[:MAX_WORDS]:
        path = _absolute(folder, word, home)
        if os.path.lexists(path):
            yield path
        elif _WILD.search(word):
            yield from _matching(folder, word)


def _matching(folder: Path, pattern: str) -> Iterator[Path]:
    try:
        for number, path in enumerate(folder.glob(pattern)):
            if number >= MAX_FILES:
                return
            yield path
    except (ValueError, NotImplementedError, OSError):
        return


def _absolute(folder: Path, name: str, home: Path) -> Path:
    path = Path(home, name[2:]) if name.startswith("~/") else Path(folder, name)
    return Path(os.path.normpath(path))
