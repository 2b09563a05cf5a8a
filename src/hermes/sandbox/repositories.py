"""What the owner's own git would execute in folders that a command may change.

Before a command: every repository there is found. What decides in it what git executes (settings
and files they include, hooks wherever they are kept, programs that settings name by a path) is
made read-only by a sandbox that can; where not everything could be looked into, the rest is
read-only as a whole. After the command: everything is looked at again. What is new or changed
and would be executed is set aside, which means it keeps its content under a name that git does
not read, and what was there before is put back.

No link is followed to find a repository. A folder that is changed is held open and looked at
first, so that nobody can put a link in its place meanwhile.
"""

# A command waits for all this, and paths as text are faster.
# ruff: noqa: PTH110, PTH114, PTH115, PTH120, PTH208

import os
import stat
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

from hermes.sandbox.folder_scan import FolderScan, summits
from hermes.sandbox.git_config import NO_SETTINGS, OwnerGit, is_harmless
from hermes.sandbox.git_leads import (
    LINK_PREFIX,
    MAX_LISTED,
    Leads,
    entry_content,
    leads_out,
    led_to,
    small_text,
    within,
)
from hermes.sandbox.git_unfinished import unfinished
from hermes.sandbox.saved import Saved, put_back, save

FOLDERS = 30_000
"""Folders that are looked into before a command, the upper ones first."""
MOST_GUARDS = 200
"""Paths in repositories that are read-only one by one; beyond that, the folders around them."""
MOST_CLOSED = 60
"""Folders in a writable folder that are read-only as a whole."""
ASIDE = "set-aside"
_OF_WORKTREES = b"../.."
_SETTINGS = ("config", "config.worktree")
_DECIDING = ("commondir", *_SETTINGS, "hooks")
_REMOTES = ("branches", "remotes")
"""Old places for remotes, which git still reads."""


class Armed:
    """What git would execute below some folders, before a command.

    `kept` says whether the sandbox can make `read_only` so. `unread` are folders that could not
    be looked into, since there are more than `most`; they are among `read_only`.
    So are `crowded`, folders of repositories that are too many to be guarded one by one.
    """

    def __init__(
        self,
        folders: Iterable[str],
        *,
        kept: bool,
        owner: OwnerGit = NO_SETTINGS,
        scan: FolderScan | None = None,
        most: int = FOLDERS,
    ) -> None:
        self._tops = [*dict.fromkeys(os.path.realpath(folder) for folder in folders)]
        self._home = os.path.realpath(owner.home) if owner.home else ""
        self._scan = scan or FolderScan()
        found = self._scan.find(self._tops, most=most, home=self._home)
        self._leads = Leads(self._tops, owner, found.gits)
        leads = [*self._leads.of(found.gits)]
        self.unread = summits(found.unread, self._tops, MOST_CLOSED)
        self.crowded: list[str] = []
        self.read_only = [*self._guards(found.gits, leads), *self.unread] if kept else []
        self._before = dict(_arms(found.gits, self._tops, leads))
        self._saved = dict(_saved(found.gits, leads, whole=not kept))

    def _guards(self, gits: Sequence[str], leads: Sequence[str]) -> Iterator[str]:
        left = MOST_GUARDS
        rest: list[str] = []
        for lead in leads:
            # What a link leads to is among them, too.
            if os.path.exists(lead) and not os.path.islink(lead):
                yield lead
                left -= 1
        for git in gits:
            own = [*guards(git)] if left > 0 else []
            left -= len(own)
            yield from own
            if left <= 0:
                rest.append(git.removesuffix("/.git"))
        self.crowded = summits(rest, self._tops, MOST_CLOSED)
        yield from self.crowded

    def since(self) -> list[str]:
        """Set aside what a command has planted, and say so, a sentence for each."""
        found = self._scan.find(self._tops, home=self._home)
        said: list[str] = []
        for path, mark in _arms(found.gits, self._tops, self._leads.of(found.gits)):
            if self._before.get(path) == mark or self._is_kept(path):
                continue
            said.append(self._undo(path))
        unread = (path for path in found.unread if not self._is_kept(path))
        said += (f"{path} cannot be read: look at it before you use git there" for path in unread)
        return said

    def _is_kept(self, path: str) -> bool:
        return any(within(path, one) for one in self.read_only)

    def _undo(self, path: str) -> str:
        folder, _, name = path.rpartition("/")
        aside = _set_aside(folder, name)
        if not aside:
            return (
                f"{path} would be executed by git, and could not be renamed: do not use git there, "
                "remove it first"
            )
        text = f"{path} was renamed to {aside}: git would execute it"
        if (saved := self._saved.get(path)) is None:
            return text
        try:
            with held(folder) as place:
                put_back(saved, name, place)
        except OSError:
            return f"{text}; what was there before could not be put back"
        return f"{text}; what was there before was put back"


def guards(git: str) -> Iterator[str]:
    """What must stay as it is in one repository; what git would look for there is made."""
    if not _is_folder(git):
        if not os.path.islink(git):
            yield git
        return
    _complete(git)
    for name in (*_DECIDING, "gitdir"):
        path = f"{git}/{name}"
        if os.path.exists(path) and not os.path.islink(path):
            yield path


def _arms(
    gits: Sequence[str], tops: Sequence[str], leads: Iterable[str]
) -> Iterator[tuple[str, bytes]]:
    """Each file or folder that makes git execute something, with its content."""
    known = frozenset(gits)
    for git in gits:
        if not _is_folder(git):
            if away := _leads_away(git, tops):
                yield git, away
            continue
        for name in ("commondir", *_SETTINGS):
            text = entry_content(f"{git}/{name}")
            if text is not None and _is_armed(git, name, text, known, tops):
                yield f"{git}/{name}", text
        for name in ("hooks", *_REMOTES):
            if live := _listing(f"{git}/{name}"):
                yield f"{git}/{name}", live
        yield from unfinished(git)
    for lead in leads:
        mark = _listing(lead) if _is_folder(lead) else entry_content(lead)
        if mark:
            yield lead, mark


def _leads_away(git: str, tops: Sequence[str]) -> bytes:
    """The content of what is not the repository itself, if that lies where nobody looks."""
    inner, text = led_to(git), entry_content(git) or b""
    looked_at = not inner or any(within(inner, top) for top in tops)
    return text if text.startswith(LINK_PREFIX) or not looked_at else b""


def _is_armed(git: str, name: str, text: bytes, known: frozenset[str], tops: Sequence[str]) -> bool:
    if text.startswith(LINK_PREFIX):
        return True
    if name == "commondir":
        above, _, folder = os.path.dirname(git).rpartition("/")
        own = text.strip() == _OF_WORKTREES and folder == "worktrees" and above in known
        return not own
    return not is_harmless(text) or leads_out(git, text, tops)


def _saved(
    gits: Sequence[str], leads: Sequence[str], *, whole: bool
) -> Iterator[tuple[str, Saved]]:
    """What can be put back: with read-only mounts, what has none (links, old remotes)."""
    inside = (f"{git}/{name}" for git in gits if _is_folder(git) for name in _DECIDING)
    outside = (git for git in gits if not _is_folder(git))
    for path in (*outside, *inside, *leads):
        if (whole or os.path.islink(path)) and (saved := save(path)) is not None:
            yield path, saved
    writable = (f"{git}/{name}" for git in gits if _is_folder(git) for name in _REMOTES)
    for path in writable:
        if (saved := save(path)) is not None:
            yield path, saved


def _listing(folder: str) -> bytes:
    """What is in a folder, and when it changed; nothing for one with samples alone."""
    with suppress(OSError):
        return LINK_PREFIX + os.fsencode(os.readlink(folder))
    lines: list[str] = []
    waiting = [folder]
    while waiting and len(lines) < MAX_LISTED:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if not entry.name.endswith(".sample"):
                    status = entry.stat(follow_symlinks=False)
                    lines.append(f"{entry.path} {status.st_ino} {status.st_ctime_ns}")
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
    return "\n".join(sorted(lines)).encode("utf-8", "surrogateescape")


def _complete(git: str) -> None:
    """A place for hooks and settings, so that a mount can keep others from making one."""
    if not os.path.exists(f"{git}/objects"):
        return
    with suppress(OSError), held(git) as folder:
        with suppress(FileExistsError):
            os.mkdir("hooks", 0o755, dir_fd=folder)
        names = ["config"]
        if b"worktreeconfig" in (small_text(f"{git}/config") or b"").lower():
            names.append("config.worktree")
        for name in names:
            with suppress(FileExistsError):
                flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW
                os.close(os.open(name, flags, 0o644, dir_fd=folder))


def _set_aside(git: str, name: str) -> str:
    """Its new name; empty if it could not be renamed."""
    for number in range(100):
        aside = f"{name}.{ASIDE}" + (f".{number}" if number else "")
        try:
            with held(git) as folder:
                if aside in os.listdir(folder):
                    continue
                os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            return ""
        return aside
    return ""


@contextmanager
def held(path: str) -> Generator[int]:
    """The folder of exactly this path, whatever is put there later. Raises `OSError`."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.readlink(f"/proc/self/fd/{folder}") != path:
            raise NotADirectoryError(path)
        yield folder
    finally:
        os.close(folder)


def _is_folder(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False
