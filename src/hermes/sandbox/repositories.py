"""Repositories in a folder that a command may change: what the owner's own git would execute.

What is there when a command begins is mounted read-only by a wall that can. What cannot be
mounted, because it is not there yet, is looked for when the command has ended, and set aside:
it keeps its content under another name, which git does not read.

Both looks are bounded in depth and number, and both follow no link. A folder that is changed
is held open and looked at first, so that nobody can put a link in its place meanwhile.
"""

# A command waits for all this, and paths as text are faster.
# ruff: noqa: PTH110, PTH115, PTH118, PTH120, PTH208

import os
import re
import stat
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress

FOLDERS = 400
"""Folders that are looked into, the upper ones first."""
DEPTH = 4
REPOSITORIES = 24
ASIDE = "set-aside"
_SMALL = 256 * 1024
_POINTS_HERE = ("gitdir", "commondir")
_LINK = b"\0link "
_OF_WORKTREES = b"../.."
_SKIPPED = frozenset({"node_modules", "__pycache__", "site-packages", "target", "venv"})
_SECTIONS = "alias|credential|filter|include|includeif|pager|protocol|trailer"
_KEYS = (
    "alternaterefscommand|askpass|attributesfile|clean|cmd|command|difffilter|driver|editor|"
    "external|fsmonitor|gitproxy|helper|hookspath|packobjectshook|pager|process|program|"
    "receivepack|smudge|sshcommand|templatedir|textconv|uploadpack|vcs"
)
_PROGRAMS = re.compile(
    rf"^\s*\[\s*(?:{_SECTIONS})\b|(?:^|\])\s*(?:{_KEYS})\s*(?:=|[#;]|$)|=\s*\"?!",
    re.IGNORECASE | re.MULTILINE,
)
"""Settings that name a program, or another place where settings are."""


def repositories(folders: Iterable[str]) -> list[str]:
    """The `.git` of each repository below, be it a folder or a file, and where a file leads."""
    tops = [*dict.fromkeys(folders)]
    found: dict[str, None] = {}
    for path in _walk(tops):
        found[path] = None
        inner = _led_to(path)
        if inner and any(_within(inner, top) for top in tops):
            found[inner] = None
        for part in _parts(inner or path):
            found[part] = None
        if len(found) >= REPOSITORIES:
            break
    return [*found][:REPOSITORIES]


def guards(git: str) -> Iterator[str]:
    """What must stay as it is in one repository; what git would look for there is made."""
    if not _is_folder(git):
        yield git
        return
    _complete(git)
    for name in ("config", "config.worktree", "hooks", *_POINTS_HERE):
        if os.path.lexists(f"{git}/{name}"):
            yield f"{git}/{name}"


class Armed:
    """What git would execute below some folders, before a command; `kept` is guarded by a mount."""

    def __init__(self, folders: Iterable[str], *, kept: bool) -> None:
        self._folders = [os.path.realpath(folder) for folder in folders]
        self._kept = kept
        self._known = repositories(self._folders)
        self._before = dict(_arms(self._known, self._folders))

    def since(self) -> list[str]:
        """Set aside what a command has planted, and say so, a sentence for each."""
        known = set(self._known)
        fresh = [path for path in repositories(self._folders) if path not in known]
        said: list[str] = []
        for path, mark in _arms([*self._known, *fresh], self._folders):
            git, _, name = path.rpartition("/")
            if self._before.get(path) == mark:
                continue
            if git not in known or name in {"commondir", ".git"}:
                if _set_aside(git, name):
                    said.append(f"{path} was renamed to {name}.{ASIDE}: git would execute it")
            elif not self._kept or self._before.get(path, b"").startswith(_LINK):
                said.append(f"{path} has changed: git executes what it names")
        return said


def _arms(gits: Iterable[str], tops: list[str]) -> Iterator[tuple[str, bytes]]:
    """Each file or folder that makes git execute something, with its content."""
    for git in gits:
        if not _is_folder(git):
            if away := _leads_away(git, tops):
                yield git, away
            continue
        for name in ("commondir", "config", "config.worktree"):
            text = _content(f"{git}/{name}")
            if text is not None and _is_armed(name, text):
                yield f"{git}/{name}", text
        if live := _live_hooks(f"{git}/hooks"):
            yield f"{git}/hooks", live


def _leads_away(git: str, tops: list[str]) -> bytes:
    """The content of what is not the repository itself, if that lies where nobody looks."""
    inner, content = _led_to(git), _content(git) or b""
    looked_at = not inner or any(_within(inner, top) for top in tops)
    return content if content.startswith(_LINK) or not looked_at else b""


def _is_armed(name: str, text: bytes) -> bool:
    if text.startswith(_LINK) or len(text) == _SMALL:
        return True
    if name == "commondir":
        return text.strip() != _OF_WORKTREES
    return _PROGRAMS.search(text.decode("utf-8", "replace")) is not None


def _content(path: str) -> bytes | None:
    """Of a file, or where a link leads; None for nothing."""
    try:
        return _LINK + os.fsencode(os.readlink(path))
    except OSError:
        return _text(path)


def _live_hooks(folder: str) -> bytes:
    with suppress(OSError):
        return _LINK + os.fsencode(os.readlink(folder))
    try:
        with os.scandir(folder) as entries:
            live = [
                f"{entry.name} {entry.stat(follow_symlinks=False).st_mtime_ns}"
                for entry in entries
                if not entry.name.endswith(".sample")
            ]
    except OSError:
        return b""
    return "\n".join(sorted(live)).encode("utf-8", "surrogateescape")


def _walk(tops: list[str]) -> Iterator[str]:
    waiting = deque((top, 0) for top in tops)
    left = FOLDERS
    while waiting and left:
        folder, depth = waiting.popleft()
        left -= 1
        names = _listed(folder)
        if ".git" in names:
            yield f"{folder}/.git"
        bare = "HEAD" in names and ("commondir" in names or {"objects", "refs"} <= names.keys())
        if bare:
            yield folder
        if depth < DEPTH:
            below = [name for name, is_folder in names.items() if is_folder and _worth(name)]
            skipped = ("objects", "refs") if bare else ()
            waiting.extend((f"{folder}/{name}", depth + 1) for name in below if name not in skipped)


def _worth(name: str) -> bool:
    return not name.startswith(".") and name not in _SKIPPED


def _listed(folder: str) -> Mapping[str, bool]:
    """The names in a folder, and which of them are folders."""
    try:
        with os.scandir(folder.rstrip("/") or "/") as entries:
            return {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
    except OSError:
        return {}


def _parts(git: str) -> Iterator[str]:
    """The repositories that a repository keeps for its submodules and other working folders."""
    for name in _listed(f"{git}/worktrees"):
        yield f"{git}/worktrees/{name}"
    waiting = deque([(f"{git}/modules", 0)])
    while waiting:
        folder, depth = waiting.popleft()
        names = _listed(folder)
        if "HEAD" in names:
            yield folder
        elif depth < DEPTH:
            waiting.extend((f"{folder}/{name}", depth + 1) for name in names if names[name])


def _led_to(path: str) -> str:
    """Where a `.git` that is a file leads; nothing for a folder."""
    text = _text(path)
    if text is None or not text.startswith(b"gitdir: "):
        return ""
    # To the letter as git reads it: a space more is the name of another folder.
    target = os.fsdecode(text[8:].split(b"\0", 1)[0].rstrip(b"\r\n"))
    return os.path.realpath(os.path.join(os.path.dirname(path), target))


def _complete(git: str) -> None:
    """A place for hooks and settings, so that a mount can keep others from making one."""
    if not os.path.exists(f"{git}/objects"):
        return
    with suppress(OSError), _held(git) as folder:
        with suppress(FileExistsError):
            os.mkdir("hooks", 0o755, dir_fd=folder)
        names = ["config"]
        if b"worktreeconfig" in (_text(f"{git}/config") or b"").lower():
            names.append("config.worktree")
        for name in names:
            with suppress(FileExistsError):
                flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW
                os.close(os.open(name, flags, 0o644, dir_fd=folder))


def _set_aside(git: str, name: str) -> bool:
    for number in range(100):
        aside = f"{name}.{ASIDE}" + (f".{number}" if number else "")
        try:
            with _held(git) as folder:
                if aside in os.listdir(folder):
                    continue
                os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            return False
        return True
    return False


@contextmanager
def _held(path: str) -> Generator[int]:
    """The folder of exactly this path, whatever is put there later. Raises `OSError`."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.readlink(f"/proc/self/fd/{folder}") != path:
            raise NotADirectoryError(path)
        yield folder
    finally:
        os.close(folder)


def _text(path: str) -> bytes | None:
    """A small ordinary file; None for everything else."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return None
        return os.read(file, _SMALL)
    except OSError:
        return None
    finally:
        os.close(file)


def _is_folder(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
