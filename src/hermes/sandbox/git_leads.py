"""Where git's settings lead: files they include, folders of hooks, programs named by a path."""

# A command waits for all this, and paths as text are faster.
# ruff: noqa: PTH113, PTH118, PTH119, PTH120

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from hermes.sandbox.git_config import (
    OwnerGit,
    Setting,
    absolute,
    hooks_folders,
    included,
    parse,
    programs,
    value_of,
)

SMALL = 256 * 1024
SYSTEM = ("/etc/gitconfig", "/usr/local/etc/gitconfig", "/opt/homebrew/etc/gitconfig")
_HUSKY = ".husky"
"""What is in its folder `_`, where git looks, only calls what lies beside that."""
_MOST_FILES = 100


class _Gathered(Struct):
    """Settings of some files, and the names of all files that they were looked for in."""

    settings: list[Setting]
    files: dict[str, None]


class Leads:
    """`gits` are the repositories that were there before a command: only they are believed."""

    def __init__(self, tops: Sequence[str], owner: OwnerGit, gits: Sequence[str]) -> None:
        self._tops = tops
        self._home = owner.home
        self._owner = _gathered(owner.configs, owner.home)
        around = [*_around(tops)]
        self._outer = around
        self._own = {git: _of_repository(git, owner.home) for git in (*gits, *around)}

    def of(self, gits: Iterable[str]) -> list[str]:
        """Whatever settings name in the writable folders, be it there or not."""
        found: dict[str, None] = dict.fromkeys(self._owner.files)
        nothing = _Gathered([], {})
        for git in (*gits, *self._outer):
            own = self._own.get(git, nothing)
            found |= own.files
            for base in bases(git, own.settings):
                for settings in (self._owner.settings, own.settings):
                    found |= dict.fromkeys(_named(settings, base, self._home))
        real = dict.fromkeys(_settled(found))
        return [path for path in real if any(within(path, top) for top in self._tops)]


def owner_git(env: Mapping[str, str], home: str) -> OwnerGit:
    """Every file in which the owner's git may look: an environment may differ from a login's."""
    named = [env.get(name, "") for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM")]
    xdg = env.get("XDG_CONFIG_HOME", "")
    folders = [f"{home}/.config", *([xdg] if xdg.startswith("/") else [])]
    files = (f"{home}/.gitconfig", *(f"{one}/git/config" for one in folders), *SYSTEM)
    chosen = (path for path in named if path.startswith("/"))
    return OwnerGit(tuple(dict.fromkeys((*files, *chosen))), home)


def is_executed(path: str, owner: OwnerGit) -> bool:
    """Whether the owner's git would execute, or take for settings, what is written there."""
    folder = os.path.dirname(path)
    gits = [f"{folder}/.git", *_around([folder])]
    present = [git for git in gits if os.path.lexists(git)]
    leads = Leads(["/"], owner, present).of(present)
    return any(within(path, lead) for lead in leads)


def bases(git: str, settings: Sequence[Setting]) -> list[str]:
    """The folders that relative paths in its settings are relative to."""
    folder = os.path.dirname(git) if os.path.basename(git) == ".git" else git
    inner = led_to(git) or git
    found = [folder, inner]
    if tree := value_of(settings, "core.worktree"):
        found.append(os.path.normpath(os.path.join(inner, tree)))
    return [*dict.fromkeys(found)]


def config_files(git: str) -> list[str]:
    """The settings of a repository, which may be kept in another one."""
    inner = led_to(git) or os.path.realpath(git)
    common = os.fsdecode((small_text(f"{inner}/commondir") or b"").rstrip(b"\r\n"))
    return [f"{os.path.join(inner, common).rstrip('/')}/config", f"{inner}/config.worktree"]


def led_to(path: str) -> str:
    """Where a `.git` that is a file leads; nothing for a folder."""
    text = small_text(path)
    if text is None or not text.startswith(b"gitdir: "):
        return ""
    # To the letter as git reads it: a space more is the name of another folder.
    target = os.fsdecode(text[8:].split(b"\0", 1)[0].rstrip(b"\r\n"))
    return os.path.realpath(os.path.join(os.path.dirname(path), target))


def small_text(path: str, *, marked: bool = False, follow: bool = False) -> bytes | None:
    """The beginning of an ordinary file, `marked` with its last change if there is more of it."""
    link = 0 if follow else os.O_NOFOLLOW
    try:
        file = os.open(path, os.O_RDONLY | link | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            return None
        text = os.read(file, SMALL)
        more = marked and len(text) == SMALL
        return text + b"\0%d %d" % (status.st_ino, status.st_ctime_ns) if more else text
    except OSError:
        return None
    finally:
        os.close(file)


def within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _gathered(files: Iterable[str], home: str) -> _Gathered:
    found = _Gathered([], {})
    waiting = [*files]
    while waiting and len(found.files) < _MOST_FILES:
        file = waiting.pop(0)
        if file in found.files:
            continue
        found.files[file] = None
        text = small_text(file, follow=True)
        settings = parse(text).settings if text else ()
        found.settings += settings
        waiting += included(settings, file, home)
    return found


def _of_repository(git: str, home: str) -> _Gathered:
    """Its own files of settings are not among `files`: they are looked at in the repository."""
    own = config_files(git)
    found = _gathered(own, home)
    return _Gathered(found.settings, {file: None for file in found.files if file not in own})


def _named(settings: Sequence[Setting], base: str, home: str) -> Iterator[str]:
    for value in hooks_folders(settings):
        path = absolute(value, base, home)
        above, husky, _ = f"{path}/".partition(f"/{_HUSKY}/")
        yield f"{above}/{_HUSKY}" if husky else path
    for word in programs(settings):
        path = absolute(word, base, home)
        if os.path.isfile(path):
            yield path


def _settled(paths: Iterable[str]) -> Iterator[str]:
    """With their folders as they really are, and themselves links if they are."""
    parts = [path.rpartition("/") for path in paths]
    folders = {folder: os.path.realpath(folder or "/") for folder in {part[0] for part in parts}}
    return (f"{folders[folder].rstrip('/')}/{name}" for folder, _, name in parts)


def _around(tops: Iterable[str]) -> Iterator[str]:
    """Repositories that the folders lie in."""
    for top in tops:
        folder = top
        while folder != (folder := os.path.dirname(folder)):
            git = f"{folder.rstrip('/')}/.git"
            if os.path.lexists(git):
                yield git
