"""What must be right before anything can work: Python, the home, its rights, the disk."""

import errno
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from hermes import __version__
from hermes.cli.checkup.finding import Finding, odd, well, wrong
from hermes.config.home import FIRST_FOLDERS, Home, ensure_home
from hermes.kit.files import read_ordinary

OLDEST = (3, 11)
LITTLE = 1024**3
TOO_LITTLE = 100 * 1024**2
_PRIVATE = 0o077
_FREE = "Free some space; this shows which disk is full: df -h"
_ELSEWHERE = "export HERMES_HOME=DIRECTORY"
_TIDY = "Free some space; this drops old sessions: hermes sessions prune --older-than 90d"


def check_python(version: tuple[int, ...] = sys.version_info[:3]) -> Finding:
    shown = ".".join(map(str, version))
    if version[:2] < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        return wrong(
            "python",
            f"This is Python {shown}, and Hermes needs {oldest} or newer.",
            f"Install it anew: make PYTHON=python{oldest} run",
        )
    return well("python", f"Hermes {__version__} on Python {shown}")


def check_home(home: Home) -> Iterator[Finding]:
    path = home.path
    try:
        _write_something(_nearest(path))
    except OSError as error:
        yield unwritable(path, error)
        return
    if not path.exists():
        yield odd(
            "home", f"{path} is not there yet.", "hermes setup", mend=lambda: ensure_home(home)
        )
        return
    yield from _open_to_others(home)
    yield from _soul(home)
    for name in FIRST_FOLDERS:
        if (one := path / name).exists() and not one.is_dir():
            yield wrong("home", f"{one} is not a folder.", f"mv {one} {one}.old")
    missing = [name for name in FIRST_FOLDERS if not (path / name).exists()]
    if missing:
        names = ", ".join(missing)
        yield odd(
            "home",
            f"Folders are missing in {path}: {names}.",
            "hermes doctor --fix",
            mend=lambda: ensure_home(home),
        )


def unwritable(path: Path, error: OSError) -> Finding:
    says = f"{path} cannot be written: {error.strerror}."
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return wrong("home", says, _FREE)
    if error.errno == errno.EROFS:
        return wrong("home", says, f"Choose a home that can be written: {_ELSEWHERE}")
    return wrong("home", says, f"sudo chown -R $USER {path}   (or: export HERMES_HOME=~/.hermes)")


def _write_something(folder: Path) -> None:
    """A file without a name, gone at once: rights alone do not tell of a full disk."""
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(b"\0" * 4096)
        file.flush()
        os.fsync(file.fileno())


def _nearest(path: Path) -> Path:
    return next(one for one in (path, *path.parents) if one.exists())


def _open_to_others(home: Home) -> Iterator[Finding]:
    """The folder, and the files in it that hold keys."""
    found = False
    places = [(home.path, 0o700), (home.dotenv, 0o600), (home.auth, 0o600)]
    for path, right in places:
        mode = _mode(path)
        if mode is None or not mode & _PRIVATE or (path != home.path and not path.is_file()):
            continue
        found = True
        yield odd(
            "home",
            f"Other people on this machine may look into {path} ({mode:o}).",
            f"chmod {right:o} {path}",
            mend=_closing(path, right),
        )
    if not found:
        yield well("home", f"{home.path} is yours alone")


def _soul(home: Home) -> Iterator[Finding]:
    """Without it no turn begins; one that is not there is no harm."""
    try:
        read_ordinary(home.soul)
    except FileNotFoundError:
        return
    except OSError as error:
        says = f"{home.soul} cannot be read: {error.strerror}."
        yield wrong("soul", says, f"Take it away: mv {home.soul} {home.soul}.old")


def _closing(path: Path, right: int) -> Callable[[], None]:
    return lambda: path.chmod(right)


def _mode(path: Path) -> int | None:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return None


def check_disk(home: Home, free: int | None = None) -> Finding:
    """`free` is the number of bytes, where it is known."""
    left = shutil.disk_usage(_nearest(home.path)).free if free is None else free
    shown = f"{left / 1024**3:.1f} GB" if left >= LITTLE else f"{left // 1024**2} MB"
    if left < TOO_LITTLE:
        return wrong("disk", f"Only {shown} are free where {home.path} is.", _TIDY)
    if left < LITTLE:
        return odd("disk", f"Only {shown} are free where {home.path} is.", _TIDY)
    return well("disk", f"{shown} free")
