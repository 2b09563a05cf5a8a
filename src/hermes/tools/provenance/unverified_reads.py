"""Decide whether a command or program could have read a file that others wrote.

Its words are not enough: `grep -r`, patterns, scripts and `make` read files that no word names. A
command known to read only its operands is judged by those; any other by everything in the
workspace, in its folder and in what it names. If that cannot be decided within limits, the answer
is yes.
"""

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from hermes.approvals.saved_approvals import simple_commands
from hermes.approvals.shell_hints import is_read_only_command
from hermes.schema.scope import Scope
from hermes.tools.files.safe_open import resolve_or_same
from hermes.tools.provenance.command_paths import (
    command_folders,
    command_words,
    word_paths,
)
from hermes.tools.provenance.file_provenance import FileProvenance, is_unverified_folder, own_users

MAX_ENTRIES = 20_000
"""Directory entries scanned for one command; a larger tree may contain anything."""
MAX_PATHS = 500
"""Paths that the words of one command may refer to."""
MAX_SCRIPT = 64 * 1024
_SYSTEM = tuple(map(Path, ("/bin", "/dev", "/lib", "/lib64", "/sbin", "/usr")))
_MAKEFILES = ("Makefile", "makefile", "GNUmakefile")
_RECURSIVE = re.compile(r"-[A-Za-z0-9]*R[A-Za-z0-9]*")
_RECURSIVE_COMMANDS = frozenset({"du", "find", "tree"})
_PRINTS_NO_FILE = frozenset(
    (
        "basename", "cd", "date", "df", "dirname", "echo", "false", "free", "id", "pwd", "seq",
        "sleep", "true", "uname", "uptime", "which", "whoami",
    )
)  # fmt: skip
_GIT_HISTORY = frozenset(
    ["archive", "blame", "cat-file", "grep", "log", "show", "stash", "whatchanged"]
)
"""Git commands that show more than the current files of the workspace."""


def may_read_unverified(
    origins: FileProvenance, scope: Scope, command: str, folder: Path, *, program: bool
) -> bool:
    """Whether the output of a shell command or a Python program may contain what others wrote."""
    folder, scan = resolve_or_same(folder), _DiskScan(origins, scope)
    commands = None if program else simple_commands(command)
    if commands is not None and all(is_read_only_command(argv) for argv in commands):
        return scan.reads_operands(commands, folder)
    return scan.reads_anything(command_words(command), command_folders(command, folder))


class _DiskScan:
    """Scans the disk within a budget."""

    def __init__(self, origins: FileProvenance, scope: Scope) -> None:
        self._origins = origins
        self._scope = scope
        self._workspace = resolve_or_same(Path(scope.workspace))
        try:
            self._users = own_users(self._workspace)
        except OSError:
            self._users = frozenset[int]()
        self._times = origins.times()
        self._left = MAX_ENTRIES
        self._clean: set[Path] = set()

    def reads_operands(self, commands: Sequence[Sequence[str]], folder: Path) -> bool:
        for name, *args in commands:
            if name == "cd":
                if not args:
                    return True
                folder = resolve_or_same(folder / args[0])
            elif name == "git":
                if args[0] == "log" and self._origins.has_fetched_commits(folder):
                    return True
            elif name not in _PRINTS_NO_FILE and self._reads_arguments(name, args, folder):
                return True
        return False

    def _reads_arguments(self, name: str, args: Sequence[str], folder: Path) -> bool:
        deep = name in _RECURSIVE_COMMANDS or any(map(_RECURSIVE.fullmatch, args))
        operands = [operand for operand in args if not operand.startswith("-")]
        found = [path for operand in operands for path in word_paths(operand, [folder])]
        if not found and (name == "ls" or deep):
            found = [folder]
        return any(
            self._contains_unverified(path, deep=deep)
            if path.is_dir()
            else self._is_unverified(path)
            for path in found
        )

    def reads_anything(self, words: Sequence[str], bases: Sequence[Path]) -> bool:
        """Judge a command that may read anything around it."""
        git = any(word == "git" or word.endswith("/git") for word in words)
        if git and not _GIT_HISTORY.isdisjoint(words):
            return True
        named = self._named(words, bases)
        if named is None or any(not path.is_dir() and self._is_unverified(path) for path in named):
            return True
        if any(map(_names_unverified_folder, named)):
            return True
        trees = dict.fromkeys([*bases, *filter(Path.is_dir, named), self._workspace])
        return any(self._contains_unverified(tree, deep=True) for tree in trees)

    def _named(self, words: Sequence[str], bases: Sequence[Path]) -> list[Path] | None:
        """Return existing paths its words refer to, except programs; None if there are too many."""
        found: dict[Path, None] = {}
        for word in words:
            if word.startswith("~") or is_unverified_folder(word.split("/")):
                return None
            for path in word_paths(word, bases):
                if not self._is_program(path):
                    found[path] = None
                if len(found) > MAX_PATHS:
                    return None
        if "make" in words:
            found |= dict.fromkeys(base / name for base in bases for name in _MAKEFILES)
        return [path for path in found if path.parts[1:]]

    def _is_program(self, path: Path) -> bool:
        """Whether it is more likely executed than read."""
        if _is_system(path):
            return True
        inside = path.is_relative_to(self._workspace)
        return not inside and path.is_file() and os.access(path, os.X_OK)

    def _is_unverified(self, path: Path) -> bool:
        if _is_system(path):
            return is_unverified_folder(path.parts)
        return os.path.lexists(path) and self._origins.is_unverified(self._scope, path)

    def _contains_unverified(self, folder: Path, *, deep: bool) -> bool:
        """Whether a folder, with `deep` including subfolders, contains anything not the owner's."""
        if folder in self._clean:
            return False
        if _is_system(folder):
            return is_unverified_folder(folder.parts)
        if not folder.is_dir() or self._origins.is_unverified_location(self._scope, folder):
            return True
        pending = [str(folder)]
        while pending:
            below = self._below(pending.pop(), deep=deep)
            if below is None:
                return True
            pending += below
        if deep:
            self._clean.add(folder)
        return False

    def _below(self, folder: str, *, deep: bool) -> list[str] | None:
        """Return the subfolders to scan; None if something in the folder is not the owner's."""
        found: list[str] = []
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    self._left -= 1
                    if self._left < 0 or self._is_unverified_entry(entry, deep=deep):
                        return None
                    if deep and entry.is_dir(follow_symlinks=False) and entry.name != ".git":
                        found.append(entry.path)
        except FileNotFoundError:
            return found
        except OSError:
            return None
        return found

    def _is_unverified_entry(self, entry: os.DirEntry[str], *, deep: bool) -> bool:
        if entry.is_symlink():
            return deep and self._is_unverified_link(Path(entry.path))
        if entry.is_dir(follow_symlinks=False):
            return deep and is_unverified_folder([entry.name]) and _has_entries(entry.path)
        return self._origins.is_unverified_entry(entry, self._users, self._times)

    def _is_unverified_link(self, link: Path) -> bool:
        target = resolve_or_same(link)
        if not target.exists():
            return False
        if target.is_dir() and not _is_system(target):
            return self._origins.is_unverified_location(self._scope, target)
        return self._is_unverified(target)


def _names_unverified_folder(script: Path) -> bool:
    """Whether a file the command names, perhaps a script, names such a folder."""
    with suppress(OSError):
        if script.is_file() and script.stat().st_size <= MAX_SCRIPT:
            text = script.read_bytes().decode("utf-8", "replace")
            words = [] if "\0" in text else command_words(text)
            return any(is_unverified_folder(word.split("/")) for word in words)
    return False


def _is_system(path: Path) -> bool:
    return any(path.is_relative_to(folder) for folder in _SYSTEM)


def _has_entries(folder: str) -> bool:
    try:
        with os.scandir(folder) as entries:
            return next(entries, None) is not None
    except OSError:
        return True
