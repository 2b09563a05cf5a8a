"""Protect git repositories: undo changes that would make the owner's git execute something."""

import os
import stat
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from msgspec import Struct

from hermes.sandbox.git_config import NO_OWNER_CONFIG, OwnerGitConfig, unsafe_settings
from hermes.sandbox.git_config_paths import (
    LINK_PREFIX,
    MAX_LISTED,
    ConfiguredPaths,
    entry_content,
    gitdir_target,
    is_within,
    read_head,
    unfinished_state,
    unscanned_paths,
)
from hermes.sandbox.git_scan import RepositoryScanner, common_folders

# On the path of every command: string paths are faster.
# ruff: noqa: PTH110, PTH114, PTH115, PTH120, PTH208

MAX_SCANNED_FOLDERS = 30_000
"""Folders scanned before a command, parents first."""
MAX_GUARDED_PATHS = 200
"""Paths in repositories made read-only one by one; beyond that, the folders around them."""
MAX_READ_ONLY_FOLDERS = 60
"""Folders in a writable folder that are read-only as a whole."""
ASIDE_SUFFIX = "set-aside"
_WORKTREE_COMMONDIR = b"../.."
_CONFIG_NAMES = ("config", "config.worktree")
_GUARDED_NAMES = ("commondir", *_CONFIG_NAMES, "hooks")
_REMOTES = ("branches", "remotes")
"""Old locations of remotes, which git still reads."""
_SHELL_FILE = ".envrc"
_WORKSPACE_NAMES = (_SHELL_FILE, ".husky")
_TARGET = b"\0target "
"""Marks a line that names where an entry leads outside the scanned folders."""
_MAX_SAVED_BYTES = 4 * 1024 * 1024
_MAX_SAVED_ENTRIES = 500


class SavedEntry(Struct, frozen=True):
    """The `content` of a file, the target of a link, or the entries of a folder."""

    content: "bytes | str | Mapping[str, SavedEntry]"
    mode: int = 0o644


def save_entry(path: str) -> SavedEntry | None:
    """None for what is missing, unreadable or too large to keep."""
    try:
        return _read_entry(path, [_MAX_SAVED_BYTES, _MAX_SAVED_ENTRIES])
    except OSError:
        return None


def restore_entry(saved: SavedEntry, name: str, folder: int) -> None:
    """Create `name` in an open folder; nothing of that name may exist. Raises `OSError`."""
    match saved.content:
        case bytes() as content:
            flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
            file = os.open(name, flags, 0o600, dir_fd=folder)
            with os.fdopen(file, "wb") as stream:
                stream.write(content)
                os.fchmod(stream.fileno(), saved.mode)
        case str() as target:
            os.symlink(target, name, dir_fd=folder)
        case entries:
            os.mkdir(name, 0o700, dir_fd=folder)
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            created = os.open(name, flags, dir_fd=folder)
            try:
                for entry, part in entries.items():
                    restore_entry(part, entry, created)
                os.fchmod(created, saved.mode)
            finally:
                os.close(created)


def _read_entry(path: str, left: list[int]) -> SavedEntry:
    """`left` are the remaining bytes and entries. Raises `OSError`."""
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


class GitGuard:
    """Records what git would execute below some folders before a command runs.

    `can_protect` says whether the sandbox can enforce `read_only`. `unread` are folders that could
    not be scanned, since there are more than `max_folders`; `crowded` are folders with too many
    repositories to protect one by one. Both are part of `read_only`.
    """

    def __init__(
        self,
        folders: Iterable[str],
        *,
        can_protect: bool,
        owner: OwnerGitConfig = NO_OWNER_CONFIG,
        scan: RepositoryScanner | None = None,
        max_folders: int = MAX_SCANNED_FOLDERS,
    ) -> None:
        self._tops = [*dict.fromkeys(os.path.realpath(folder) for folder in folders)]
        self._home = os.path.realpath(owner.home) if owner.home else ""
        self._scan = scan or RepositoryScanner()
        found = self._scan.find(self._tops, max_folders=max_folders, home=self._home)
        self._leads = ConfiguredPaths(self._tops, owner, found.gits)
        leads = self._lead_paths(found.gits)
        self.unread = common_folders(found.unread, self._tops, MAX_READ_ONLY_FOLDERS)
        self.crowded: list[str] = []
        self.read_only = [*self._guards(found.gits, leads), *self.unread] if can_protect else []
        self._before: dict[str, frozenset[bytes]] = {}
        for path, state in _executed_entries(found.gits, self._tops, leads):
            self._before[path] = self._before.get(path, frozenset()) | state
        self._saved = dict(_saved_entries(found.gits, leads, whole=not can_protect))
        self._mounted = {path: _identity(path) for path in self.read_only}

    def _lead_paths(self, gits: Sequence[str]) -> list[str]:
        """Paths that settings name, and files of the workspace that git or a shell executes."""
        own = (f"{top.rstrip('/')}/{name}" for top in self._tops for name in _WORKSPACE_NAMES)
        return [*dict.fromkeys((*self._leads.all_paths(gits), *own))]

    def _guards(self, gits: Sequence[str], leads: Sequence[str]) -> Iterator[str]:
        left = MAX_GUARDED_PATHS
        rest: list[str] = []
        for lead in leads:
            # Link targets are included as well.
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

    def undo_planted(self) -> list[str]:
        """Set aside what a command has planted, and return a sentence about each."""
        found = self._scan.find(self._tops, home=self._home)
        notes: list[str] = []
        for path, state in _executed_entries(found.gits, self._tops, self._lead_paths(found.gits)):
            new = state - self._before.get(path, frozenset())
            if self._is_read_only(path):
                # Only the owner can have changed it, but a link on the way may be the command's.
                new = {line for line in new if line.startswith(_TARGET)}
            if new:
                notes.append(self._undo(path))
        unread = (path for path in found.unread if not self._is_read_only(path))
        notes += (f"{path} cannot be read: check it before using git there" for path in unread)
        return notes

    def _is_read_only(self, path: str) -> bool:
        """Whether its mount is still in place: it is lost when the owner replaces the file."""
        around = [one for one in self.read_only if is_within(path, one)]
        return any(_identity(one) == self._mounted[one] for one in around)

    def _undo(self, path: str) -> str:
        folder, _, name = path.rpartition("/")
        aside = _rename_aside(folder, name)
        if not aside:
            return (
                f"git would execute {path}, and it could not be renamed: remove it before using "
                "git there"
            )
        program = "your shell" if name == _SHELL_FILE else "git"
        text = f"{path} was renamed to {aside}: {program} would execute it"
        saved = self._saved.get(path)
        if saved is None or saved == save_entry(f"{folder}/{aside}"):
            return text
        try:
            with open_folder(folder) as parent:
                restore_entry(saved, name, parent)
        except OSError:
            return f"{text}; the original could not be restored"
        return f"{text}; the original was restored"


def guarded_paths(git: str) -> Iterator[str]:
    """Return what must not change in one repository, after creating missing files."""
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
) -> Iterator[tuple[str, frozenset[bytes]]]:
    """Each file or folder that makes git execute something, with what it executes."""
    known = frozenset(gits)
    for git in gits:
        for path, state in _repository_entries(git, known, tops):
            if state:
                yield path, state
    for lead in leads:
        if state := _lead_state(lead):
            yield lead, state


def _repository_entries(
    git: str, known: frozenset[str], tops: Sequence[str]
) -> Iterator[tuple[str, frozenset[bytes]]]:
    """The same for one repository, including entries that execute nothing."""
    yield git, _external_gitdir(git, tops)
    if not _is_folder(git):
        return
    for name in ("commondir", *_CONFIG_NAMES):
        if (text := entry_content(f"{git}/{name}")) is not None:
            yield f"{git}/{name}", _executed(git, name, text, known, tops)
    for name in ("hooks", *_REMOTES):
        yield f"{git}/{name}", _folder_state(f"{git}/{name}")
    for path, text in unfinished_state(git):
        yield path, frozenset({text})


def _lead_state(path: str) -> frozenset[bytes]:
    if _is_folder(path):
        return _folder_state(path)
    text = entry_content(path)
    return frozenset({text}) if text else frozenset()


def _external_gitdir(git: str, tops: Sequence[str]) -> frozenset[bytes]:
    """The target of a `.git` link or file whose repository is outside the scanned folders."""
    inner, text = gitdir_target(git), entry_content(git) or b""
    if text.startswith(LINK_PREFIX):
        return frozenset({text, _TARGET + os.fsencode(os.path.realpath(git))})
    if not inner or any(is_within(inner, top) for top in tops):
        return frozenset()
    return frozenset({text, _TARGET + os.fsencode(inner)})


def _executed(
    git: str, name: str, text: bytes, known: frozenset[str], tops: Sequence[str]
) -> frozenset[bytes]:
    if text.startswith(LINK_PREFIX):
        return frozenset({text})
    if name == "commondir":
        above, _, folder = os.path.dirname(git).rpartition("/")
        own = text.strip() == _WORKTREE_COMMONDIR and folder == "worktrees" and above in known
        return frozenset() if own else frozenset({text})
    return unsafe_settings(text) | {_TARGET + path for path in unscanned_paths(git, text, tops)}


def _saved_entries(
    gits: Sequence[str], leads: Sequence[str], *, whole: bool
) -> Iterator[tuple[str, SavedEntry]]:
    """Return what can be restored; folders with a read-only mount are left out."""
    inside = (f"{git}/{name}" for git in gits if _is_folder(git) for name in _GUARDED_NAMES)
    outside = (git for git in gits if not _is_folder(git))
    for path in (*outside, *inside, *leads):
        if (whole or not _is_folder(path)) and (saved := save_entry(path)) is not None:
            yield path, saved
    writable = (f"{git}/{name}" for git in gits if _is_folder(git) for name in _REMOTES)
    for path in writable:
        if (saved := save_entry(path)) is not None:
            yield path, saved


def _folder_state(folder: str) -> frozenset[bytes]:
    """A folder's entries and their change times; empty if it only has samples."""
    with suppress(OSError):
        return frozenset({LINK_PREFIX + os.fsencode(os.readlink(folder))})
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
    return frozenset(map(os.fsencode, lines))


def _identity(path: str) -> tuple[int, ...]:
    """Return a value that changes when the path is replaced, or when a file changes."""
    try:
        status = os.lstat(path)
    except OSError:
        return ()
    changed = () if stat.S_ISDIR(status.st_mode) else (status.st_ctime_ns,)
    return (status.st_dev, status.st_ino, *changed)


def _create_missing(git: str) -> None:
    """Create the hooks folder and settings, so that a mount can prevent their creation."""
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
    """Return the new name; empty if it could not be renamed."""
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
    """Open the folder of exactly this path, whatever is put there later. Raises `OSError`."""
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
