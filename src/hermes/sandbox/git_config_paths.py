"""Find the files that git settings name: included files, hook folders and programs.

Link targets count too, whether the link is such a path itself, an entry of a hooks folder, or
part of a repository, and so does every further link on the way.
"""

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from msgspec import Struct

from hermes.sandbox.git_config import (
    STRATEGIES,
    OwnerGitConfig,
    Setting,
    hooks_folders,
    included_files,
    parse_config,
    program_paths,
    remotes,
    resolve_setting_path,
    setting_value,
)

# This runs for every command, so it uses string paths, which are faster.
# ruff: noqa: PTH113, PTH114, PTH115, PTH118, PTH119, PTH120


MAX_READ = 256 * 1024
LINK_PREFIX = b"\0link "
SYSTEM_CONFIGS = ("/etc/gitconfig", "/usr/local/etc/gitconfig", "/opt/homebrew/etc/gitconfig")
_HUSKY = ".husky"
"""Husky sets the hooks folder to `.husky/_`, whose files only call those in `.husky`."""
_MAX_FILES = 100
MAX_LISTED = 1_000
_MOST_LINKS = 40
_PARTS = ("commondir", "config", "config.worktree", "gitdir", "hooks")
_SUFFIXES = ("", "/.git", ".git", ".git/.git")
"""Git tries all of them to find a repository on this machine."""


class _CollectedSettings(Struct):
    """Settings of some files, and all files that were searched for them."""

    settings: list[Setting]
    files: dict[str, None]


class ConfiguredPaths:
    """`gits` are the repositories that existed before a command; only their settings count."""

    def __init__(self, tops: Sequence[str], owner: OwnerGitConfig, gits: Sequence[str]) -> None:
        self._tops = tops
        self._home = owner.home
        self._owner = _collect_settings(owner.configs, owner.home)
        enclosing = [*_enclosing_repositories(tops)]
        self._outer = enclosing
        self._own = {git: _repository_settings(git, owner.home) for git in (*gits, *enclosing)}
        self._linked = dict.fromkeys(_behind_links(self._paths_named(gits), self._own))

    def all_paths(self, gits: Iterable[str]) -> list[str]:
        """Every path in the writable folders that settings or links name, existing or not."""
        real = dict.fromkeys(_with_real_parents((*self._paths_named(gits), *self._linked)))
        return [path for path in real if any(is_within(path, top) for top in self._tops)]

    def _paths_named(self, gits: Iterable[str]) -> Iterable[str]:
        found: dict[str, None] = dict.fromkeys(self._owner.files)
        nothing = _CollectedSettings([], {})
        for git in (*gits, *self._outer):
            own = self._own.get(git, nothing)
            found |= own.files
            for base in base_folders(git, own.settings):
                for settings in (self._owner.settings, own.settings):
                    found |= dict.fromkeys(_paths_in_settings(settings, base, self._home))
        return found


def owner_git_config(env: Mapping[str, str], home: str) -> OwnerGitConfig:
    """Every settings file the owner's git may read, whatever this process's environment is."""
    named = [env.get(name, "") for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM")]
    xdg = env.get("XDG_CONFIG_HOME", "")
    folders = [f"{home}/.config", *([xdg] if xdg.startswith("/") else [])]
    files = (f"{home}/.gitconfig", *(f"{folder}/git/config" for folder in folders), *SYSTEM_CONFIGS)
    chosen = (path for path in named if path.startswith("/"))
    return OwnerGitConfig(tuple(dict.fromkeys((*files, *chosen))), home)


def is_executed_by_git(path: str, owner: OwnerGitConfig) -> bool:
    """Whether the owner's git would execute this file or read it as settings."""
    folder = os.path.dirname(path)
    gits = [f"{folder}/.git", *_enclosing_repositories([folder])]
    present = [git for git in gits if os.path.lexists(git)]
    paths = ConfiguredPaths(["/"], owner, present).all_paths(present)
    real = os.path.realpath(path)
    return path in paths or any(is_within(real, one) for one in paths)


def base_folders(git: str, settings: Sequence[Setting]) -> list[str]:
    """The folders that relative paths in its settings refer to."""
    folder = os.path.dirname(git) if os.path.basename(git) == ".git" else git
    inner = gitdir_target(git) or git
    found = [folder, inner]
    if tree := setting_value(settings, "core.worktree"):
        found.append(os.path.normpath(os.path.join(inner, tree)))
    return [*dict.fromkeys(found)]


def config_files(git: str) -> list[str]:
    """The settings files of a repository, which may belong to another one."""
    inner = gitdir_target(git) or os.path.realpath(git)
    common = os.fsdecode((read_head(f"{inner}/commondir", follow=True) or b"").rstrip(b"\r\n"))
    return [f"{os.path.join(inner, common).rstrip('/')}/config", f"{inner}/config.worktree"]


def unscanned_paths(git: str, text: bytes, tops: Sequence[str]) -> frozenset[bytes]:
    """Real paths, outside the scanned folders, of working trees and remotes that settings name."""
    settings = parse_config(text).settings
    paths = [os.path.join(git, value) for name, value in settings if name == "core.worktree"]
    for value in remotes(settings):
        if value.startswith("~"):
            paths.append("/")
            continue
        candidates = (os.path.join(base, value).rstrip("/") for base in base_folders(git, settings))
        paths += (f"{path}{suffix}" for path in candidates for suffix in _SUFFIXES)
    real = {os.path.realpath(path) for path in paths}
    return frozenset(
        os.fsencode(path) for path in real if not any(is_within(path, top) for top in tops)
    )


def gitdir_target(path: str) -> str:
    """The target of a `.git` file; empty for a folder."""
    text = read_head(path, follow=True)
    if text is None or not text.startswith(b"gitdir: "):
        return ""
    # Like git: a second space after the colon belongs to the name.
    target = os.fsdecode(text[8:].split(b"\0", 1)[0].rstrip(b"\r\n"))
    return os.path.realpath(os.path.join(os.path.dirname(path), target))


def read_head(path: str, *, marked: bool = False, follow: bool = False) -> bytes | None:
    """The beginning of a regular file; `marked` adds the last change if there is more."""
    link = 0 if follow else os.O_NOFOLLOW
    try:
        file = os.open(path, os.O_RDONLY | link | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            return None
        text = os.read(file, MAX_READ)
        more = marked and len(text) == MAX_READ
        return text + b"\0%d %d" % (status.st_ino, status.st_ctime_ns) if more else text
    except OSError:
        return None
    finally:
        os.close(file)


def entry_content(path: str) -> bytes | None:
    """A file's content or a link's target; None if missing. Large files include the change time."""
    try:
        return LINK_PREFIX + os.fsencode(os.readlink(path))
    except OSError:
        return read_head(path, marked=True)


def is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _collect_settings(files: Iterable[str], home: str) -> _CollectedSettings:
    found = _CollectedSettings([], {})
    waiting = [*files]
    while waiting and len(found.files) < _MAX_FILES:
        file = waiting.pop(0)
        if file in found.files:
            continue
        found.files[file] = None
        text = read_head(file, follow=True)
        settings = parse_config(text).settings if text else ()
        found.settings += settings
        waiting += included_files(settings, file, home)
    return found


def _repository_settings(git: str, home: str) -> _CollectedSettings:
    """Without its own settings files, which are checked in the repository."""
    own = config_files(git)
    found = _collect_settings(own, home)
    return _CollectedSettings(
        found.settings, {file: None for file in found.files if file not in own}
    )


def _paths_in_settings(settings: Sequence[Setting], base: str, home: str) -> Iterator[str]:
    for value in hooks_folders(settings):
        path = resolve_setting_path(value, base, home)
        above, husky, _ = f"{path}/".partition(f"/{_HUSKY}/")
        yield f"{above}/{_HUSKY}" if husky else path
    for word in program_paths(settings):
        path = resolve_setting_path(word, base, home)
        if os.path.isfile(path):
            yield path


def _with_real_parents(paths: Iterable[str]) -> Iterator[str]:
    """Resolve the parent folders, and add the links on the way to existing paths."""
    parts = [path.rpartition("/") for path in paths]
    folders = {folder: os.path.realpath(folder or "/") for folder in {part[0] for part in parts}}
    for folder, _, name in parts:
        path = f"{folders[folder].rstrip('/')}/{name}"
        yield path
        if folders[folder] != folder and os.path.lexists(path):
            yield from _resolve_links(f"{folder}/{name}")[:-1]


def _behind_links(named: Iterable[str], gits: Iterable[str]) -> Iterator[str]:
    """The targets of links that are named, are in named folders, or are part of a repository."""
    starts = {*named}
    for git in gits:
        if os.path.islink(git):
            yield from _resolve_links(git)[:-1]
        common, inner = (os.path.dirname(file) for file in config_files(git))
        starts |= {f"{folder}/{part}" for folder in (common, inner) for part in _PARTS}
    waiting = [link for start in starts for link in _links(start)]
    seen: set[str] = set()
    while waiting and len(seen) < MAX_LISTED:
        if (link := waiting.pop()) in seen:
            continue
        seen.add(link)
        steps = _resolve_links(link)
        yield from steps
        waiting += _links(steps[-1])


def _links(path: str) -> list[str]:
    """The path if it is a link, or the links below it if it is a folder."""
    if os.path.islink(path):
        return [path]
    found: list[str] = []
    waiting, seen = [path], 0
    while waiting and seen < MAX_LISTED:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                seen += 1
                if entry.is_symlink():
                    found.append(entry.path)
                elif entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
    return found


def _resolve_links(path: str) -> list[str]:
    """The links on the way to an absolute path, and finally its real path."""
    found: list[str] = []
    resolved, waiting = "", path.split("/")[::-1]
    while waiting:
        part = waiting.pop()
        if part in {"", "."}:
            continue
        if part == "..":
            resolved = resolved.rpartition("/")[0]
            continue
        try:
            target = os.readlink(f"{resolved}/{part}")
        except OSError:
            resolved = f"{resolved}/{part}"
            continue
        found.append(f"{resolved}/{part}")
        if len(found) > _MOST_LINKS:
            break
        resolved = "" if target.startswith("/") else resolved
        waiting += target.split("/")[::-1]
    return [*found, resolved or "/"]


def _enclosing_repositories(tops: Iterable[str]) -> Iterator[str]:
    """Repositories that contain the folders."""
    for top in tops:
        folder = top
        while folder != (folder := os.path.dirname(folder)):
            git = f"{folder.rstrip('/')}/.git"
            if os.path.lexists(git):
                yield git


_FOLDERS = ("rebase-merge", "rebase-apply", "sequencer")
_EXEC_LINE = re.compile(rb"^[ \t]*(?:exec|x)[ \t]", re.MULTILINE)
_OPTIONS_OF_APPLY = re.compile(
    rb"(?:\s*'(?:-[Cp]\d+|--(?:whitespace|directory|exclude|include)=[^'\\]*"
    rb"|--ignore-(?:space-change|whitespace)|--reject)')*\s*"
)


def unfinished_state(git: str) -> Iterator[tuple[str, bytes]]:
    """Each state file that makes git execute something, or might, with its content."""
    for folder in _FOLDERS:
        text = entry_content(f"{git}/{folder}")
        if text is not None:
            yield f"{git}/{folder}", text
            continue
        for name, is_safe in _CHECKS.items():
            text = entry_content(f"{git}/{folder}/{name}")
            if text is None:
                continue
            if text.startswith(LINK_PREFIX) or len(text) >= MAX_READ or not is_safe(text):
                yield f"{git}/{folder}/{name}", text


def _is_plain_todo(text: bytes) -> bool:
    return _EXEC_LINE.search(text) is None


def _is_own_strategy(text: bytes) -> bool:
    return not (name := text.decode("latin-1").strip()) or name in STRATEGIES


def _has_own_strategy(text: bytes) -> bool:
    parsed = parse_config(text)
    named = (value for name, value in parsed.settings if name == "options.strategy")
    return parsed.complete and STRATEGIES.issuperset(named)


def _are_plain_options(text: bytes) -> bool:
    """Whether there are only harmless options; others make `git apply` write to any file."""
    return _OPTIONS_OF_APPLY.fullmatch(text) is not None


_CHECKS = {
    "git-rebase-todo": _is_plain_todo,
    "todo": _is_plain_todo,
    "strategy": _is_own_strategy,
    "opts": _has_own_strategy,
    "apply-opt": _are_plain_options,
}
