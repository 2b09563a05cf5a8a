"""A small file, link or folder kept in memory, to be put back if a command replaces it."""

import os
import stat
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from msgspec import Struct

from hermes.sandbox.git_config import NO_OWNER_CONFIG, OwnerGitConfig, is_safe_config
from hermes.sandbox.git_config_paths import (
    LINK_PREFIX,
    MAX_LISTED,
    ConfiguredPaths,
    entry_content,
    gitdir_target,
    is_within,
    leads_out,
    read_head,
)
from hermes.sandbox.git_scan import RepositoryScanner, common_folders
from hermes.sandbox.git_unfinished import partial_file

# Paths as text are faster, and what is put back is named relative to an open folder.
# ruff: noqa: PTH115, PTH208


_MAX_SAVED_BYTES = 4 * 1024 * 1024
_MAX_SAVED_ENTRIES = 500


class SavedEntry(Struct, frozen=True):
    """`content` of a file, the target of a link, or what is in a folder."""

    content: "bytes | str | Mapping[str, SavedEntry]"
    mode: int = 0o644


def save_entry(path: str) -> SavedEntry | None:
    """None for what is not there, cannot be read, or is too large to be kept."""
    try:
        return _read_entry(path, [_MAX_SAVED_BYTES, _MAX_SAVED_ENTRIES])
    except OSError:
        return None


def restore_entry(saved: SavedEntry, name: str, folder: int) -> None:
    """As `name` in an open folder, where nothing of that name may be. Raises `OSError`."""
    match saved.content:
        case bytes() as content:
            flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
            file = os.open(name, flags, 0o600, dir_fd=folder)
            with os.fdopen(file, "wb") as stream:
                stream.write(content)
                os.fchmod(stream.fileno(), saved.mode)
        case str() as target:
            os.symlink(target, name, dir_fd=folder)
        case inside:
            os.mkdir(name, 0o700, dir_fd=folder)
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            made = os.open(name, flags, dir_fd=folder)
            try:
                for one, part in inside.items():
                    restore_entry(part, one, made)
                os.fchmod(made, saved.mode)
            finally:
                os.close(made)


def _read_entry(path: str, left: list[int]) -> SavedEntry:
    """`left` are bytes and entries. Raises `OSError`."""
    left[1] -= 1
    if left[1] < 0:
        raise OSError(path)
    with suppress(OSError):
        return SavedEntry(os.readlink(path))
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(file).st_mode & 0o777
    try:
        names = [name for name in os.listdir(file) if not name.endswith(".sample")]
        return SavedEntry({name: _read_entry(f"{path}/{name}", left) for name in names}, mode)
    except NotADirectoryError:
        content = os.read(file, left[0] + 1)
        left[0] -= len(content)
        if left[0] < 0:
            raise OSError(path) from None
        return SavedEntry(content, mode)
    finally:
        os.close(file)


# A command waits for all this, and paths as text are faster.
# ruff: noqa: PTH110, PTH114, PTH115, PTH120, PTH208


MAX_SCANNED_FOLDERS = 30_000
"""Folders that are looked into before a command, the upper ones first."""
MAX_GUARDED_PATHS = 200
"""Paths in repositories that are read-only one by one; beyond that, the folders around them."""
MAX_READ_ONLY_FOLDERS = 60
"""Folders in a writable folder that are read-only as a whole."""
ASIDE_SUFFIX = "set-aside"
_WORKTREE_COMMONDIR = b"../.."
_CONFIG_NAMES = ("config", "config.worktree")
_GUARDED_NAMES = ("commondir", *_CONFIG_NAMES, "hooks")
_REMOTES = ("branches", "remotes")
"""Old places for remotes, which git still reads."""


class GitGuard:
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
        owner: OwnerGitConfig = NO_OWNER_CONFIG,
        scan: RepositoryScanner | None = None,
        most: int = MAX_SCANNED_FOLDERS,
    ) -> None:
        self._tops = [*dict.fromkeys(os.path.realpath(folder) for folder in folders)]
        self._home = os.path.realpath(owner.home) if owner.home else ""
        self._scan = scan or RepositoryScanner()
        found = self._scan.find(self._tops, most=most, home=self._home)
        self._leads = ConfiguredPaths(self._tops, owner, found.gits)
        leads = [*self._leads.of(found.gits)]
        self.unread = common_folders(found.unread, self._tops, MAX_READ_ONLY_FOLDERS)
        self.crowded: list[str] = []
        self.read_only = [*self._guards(found.gits, leads), *self.unread] if kept else []
        self._before = dict(_executed_entries(found.gits, self._tops, leads))
        self._saved = dict(_saved_entries(found.gits, leads, whole=not kept))

    def _guards(self, gits: Sequence[str], leads: Sequence[str]) -> Iterator[str]:
        left = MAX_GUARDED_PATHS
        rest: list[str] = []
        for lead in leads:
            # What a link leads to is among them, too.
            if os.path.exists(lead) and not os.path.islink(lead):
                yield lead
                left -= 1
        for git in gits:
            own = [*guarded_paths(git)] if left > 0 else []
            left -= len(own)
            yield from own
            if left <= 0:
                rest.append(git.removesuffix("/.git"))
        self.crowded = common_folders(rest, self._tops, MAX_READ_ONLY_FOLDERS)
        yield from self.crowded

    def since(self) -> list[str]:
        """Set aside what a command has planted, and say so, a sentence for each."""
        found = self._scan.find(self._tops, home=self._home)
        said: list[str] = []
        for path, mark in _executed_entries(found.gits, self._tops, self._leads.of(found.gits)):
            if self._before.get(path) == mark or self._is_read_only(path):
                continue
            said.append(self._undo(path))
        unread = (path for path in found.unread if not self._is_read_only(path))
        said += (f"{path} cannot be read: look at it before you use git there" for path in unread)
        return said

    def _is_read_only(self, path: str) -> bool:
        return any(is_within(path, one) for one in self.read_only)

    def _undo(self, path: str) -> str:
        folder, _, name = path.rpartition("/")
        aside = _rename_aside(folder, name)
        if not aside:
            return (
                f"{path} would be executed by git, and could not be renamed: do not use git there, "
                "remove it first"
            )
        text = f"{path} was renamed to {aside}: git would execute it"
        if (saved := self._saved.get(path)) is None:
            return text
        try:
            with open_folder(folder) as place:
                restore_entry(saved, name, place)
        except OSError:
            return f"{text}; what was there before could not be put back"
        return f"{text}; what was there before was put back"


def guarded_paths(git: str) -> Iterator[str]:
    """What must stay as it is in one repository; what git would look for there is made."""
    if not _is_folder(git):
        if not os.path.islink(git):
            yield git
        return
    _create_missing(git)
    for name in (*_GUARDED_NAMES, "gitdir"):
        path = f"{git}/{name}"
        if os.path.exists(path) and not os.path.islink(path):
            yield path


def _executed_entries(
    gits: Sequence[str], tops: Sequence[str], leads: Iterable[str]
) -> Iterator[tuple[str, bytes]]:
    """Each file or folder that makes git execute something, with its content."""
    known = frozenset(gits)
    for git in gits:
        if not _is_folder(git):
            if away := _external_gitdir(git, tops):
                yield git, away
            continue
        for name in ("commondir", *_CONFIG_NAMES):
            text = entry_content(f"{git}/{name}")
            if text is not None and _is_executed(git, name, text, known, tops):
                yield f"{git}/{name}", text
        for name in ("hooks", *_REMOTES):
            if live := _folder_state(f"{git}/{name}"):
                yield f"{git}/{name}", live
        yield from partial_file(git)
    for lead in leads:
        mark = _folder_state(lead) if _is_folder(lead) else entry_content(lead)
        if mark:
            yield lead, mark


def _external_gitdir(git: str, tops: Sequence[str]) -> bytes:
    """The content of what is not the repository itself, if that lies where nobody looks."""
    inner, text = gitdir_target(git), entry_content(git) or b""
    looked_at = not inner or any(is_within(inner, top) for top in tops)
    return text if text.startswith(LINK_PREFIX) or not looked_at else b""


def _is_executed(
    git: str, name: str, text: bytes, known: frozenset[str], tops: Sequence[str]
) -> bool:
    if text.startswith(LINK_PREFIX):
        return True
    if name == "commondir":
        above, _, folder = os.path.dirname(git).rpartition("/")
        own = text.strip() == _WORKTREE_COMMONDIR and folder == "worktrees" and above in known
        return not own
    return not is_safe_config(text) or leads_out(git, text, tops)


def _saved_entries(
    gits: Sequence[str], leads: Sequence[str], *, whole: bool
) -> Iterator[tuple[str, SavedEntry]]:
    """What can be put back: with read-only mounts, what has none (links, old remotes)."""
    inside = (f"{git}/{name}" for git in gits if _is_folder(git) for name in _GUARDED_NAMES)
    outside = (git for git in gits if not _is_folder(git))
    for path in (*outside, *inside, *leads):
        if (whole or os.path.islink(path)) and (saved := save_entry(path)) is not None:
            yield path, saved
    writable = (f"{git}/{name}" for git in gits if _is_folder(git) for name in _REMOTES)
    for path in writable:
        if (saved := save_entry(path)) is not None:
            yield path, saved


def _folder_state(folder: str) -> bytes:
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


def _create_missing(git: str) -> None:
    """A place for hooks and settings, so that a mount can keep others from making one."""
    if not os.path.exists(f"{git}/objects"):
        return
    with suppress(OSError), open_folder(git) as folder:
        with suppress(FileExistsError):
            os.mkdir("hooks", 0o755, dir_fd=folder)
        names = ["config"]
        if b"worktreeconfig" in (read_head(f"{git}/config") or b"").lower():
            names.append("config.worktree")
        for name in names:
            with suppress(FileExistsError):
                flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW
                os.close(os.open(name, flags, 0o644, dir_fd=folder))


def _rename_aside(git: str, name: str) -> str:
    """Its new name; empty if it could not be renamed."""
    for number in range(100):
        aside = f"{name}.{ASIDE_SUFFIX}" + (f".{number}" if number else "")
        try:
            with open_folder(git) as folder:
                if aside in os.listdir(folder):
                    continue
                os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            return ""
        return aside
    return ""


@contextmanager
def open_folder(path: str) -> Generator[int]:
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
