"""What must be right before anything can work: Python, the home, its rights, the disk."""

import errno
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from hermes import __version__
from hermes.cli.context import CliContext
from hermes.cli.verbs.config.lint import BACKEND, PROVIDER, check_settings, group_unused
from hermes.cli.verbs.doctor.finding import (
    CheckContext,
    Finding,
    error_finding,
    ok_finding,
    warning_finding,
)
from hermes.config.dotenv import profile_env
from hermes.config.env import Env
from hermes.config.home import INITIAL_FOLDERS, Home, ensure_home
from hermes.config.loader import load_config
from hermes.config.problems import Problem, Severity
from hermes.kit.clock import Clock
from hermes.kit.files import read_regular_file
from hermes.schema.errors import ConfigError

MIN_PYTHON = (3, 11)
LOW_DISK = 1024**3
CRITICAL_DISK = 100 * 1024**2
_OTHERS_MASK = 0o077
_FREE_SPACE_HINT = "Free some space; this shows which disk is full: df -h"
_OTHER_HOME_HINT = "export HERMES_HOME=DIRECTORY"
_PRUNE_HINT = "Free some space; this drops old sessions: hermes sessions prune --older-than 90d"


def check_python(version: tuple[int, ...] = sys.version_info[:3]) -> Finding:
    shown = ".".join(map(str, version))
    if version[:2] < MIN_PYTHON:
        oldest = ".".join(map(str, MIN_PYTHON))
        return error_finding(
            "python",
            f"This is Python {shown}, and Hermes needs {oldest} or newer.",
            f"Install it anew: make PYTHON=python{oldest} run",
        )
    return ok_finding("python", f"Hermes {__version__} on Python {shown}")


def check_home(home: Home) -> Iterator[Finding]:
    path = home.path
    try:
        _try_write(_existing_parent(path))
    except OSError as error:
        yield unwritable_finding(path, error)
        return
    if not path.exists():
        yield warning_finding(
            "home", f"{path} is not there yet.", "hermes setup", mend=lambda: ensure_home(home)
        )
        return
    yield from _permissions(home)
    yield from _soul(home)
    for name in INITIAL_FOLDERS:
        if (one := path / name).exists() and not one.is_dir():
            yield error_finding("home", f"{one} is not a folder.", f"mv {one} {one}.old")
    missing = [name for name in INITIAL_FOLDERS if not (path / name).exists()]
    if missing:
        names = ", ".join(missing)
        yield warning_finding(
            "home",
            f"Folders are missing in {path}: {names}.",
            "hermes doctor --fix",
            mend=lambda: ensure_home(home),
        )


def unwritable_finding(path: Path, error: OSError) -> Finding:
    says = f"{path} cannot be written: {error.strerror}."
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return error_finding("home", says, _FREE_SPACE_HINT)
    if error.errno == errno.EROFS:
        return error_finding("home", says, f"Choose a home that can be written: {_OTHER_HOME_HINT}")
    return error_finding(
        "home", says, f"sudo chown -R $USER {path}   (or: export HERMES_HOME=~/.hermes)"
    )


def _try_write(folder: Path) -> None:
    """A file without a name, gone at once: rights alone do not tell of a full disk."""
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(b"\0" * 4096)
        file.flush()
        os.fsync(file.fileno())


def _existing_parent(path: Path) -> Path:
    return next(one for one in (path, *path.parents) if one.exists())


def _permissions(home: Home) -> Iterator[Finding]:
    """The folder, and the files in it that hold keys."""
    found = False
    places = [(home.path, 0o700), (home.dotenv, 0o600), (home.auth, 0o600)]
    for path, right in places:
        mode = _mode(path)
        if mode is None or not mode & _OTHERS_MASK or (path != home.path and not path.is_file()):
            continue
        found = True
        yield warning_finding(
            "home",
            f"Other people on this machine may look into {path} ({mode:o}).",
            f"chmod {right:o} {path}",
            mend=_chmod_fix(path, right),
        )
    if not found:
        yield ok_finding("home", f"{home.path} is yours alone")


def _soul(home: Home) -> Iterator[Finding]:
    """Without it no turn begins; one that is not there is no harm."""
    try:
        read_regular_file(home.soul)
    except FileNotFoundError:
        return
    except OSError as error:
        says = f"{home.soul} cannot be read: {error.strerror}."
        yield error_finding("soul", says, f"Take it away: mv {home.soul} {home.soul}.old")


def _chmod_fix(path: Path, right: int) -> Callable[[], None]:
    return lambda: path.chmod(right)


def _mode(path: Path) -> int | None:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return None


def check_disk(home: Home, free: int | None = None) -> Finding:
    """`free` is the number of bytes, where it is known."""
    left = shutil.disk_usage(_existing_parent(home.path)).free if free is None else free
    shown = f"{left / 1024**3:.1f} GB" if left >= LOW_DISK else f"{left // 1024**2} MB"
    if left < CRITICAL_DISK:
        return error_finding("disk", f"Only {shown} are free where {home.path} is.", _PRUNE_HINT)
    if left < LOW_DISK:
        return warning_finding("disk", f"Only {shown} are free where {home.path} is.", _PRUNE_HINT)
    return ok_finding("disk", f"{shown} free")


_EDIT = "hermes config edit"


def read_settings(
    context: CliContext, home: Home, clock: Clock
) -> tuple[CheckContext | None, Sequence[Finding]]:
    """What all other checks need; None when it cannot be had."""
    try:
        env = profile_env(home.dotenv, context.env)
    except ConfigError as error:
        advice = error.hint.rstrip(".") or "Correct it by hand"
        return None, [
            error_finding("settings", str(error), f"{advice}: ${{EDITOR:-vi}} {home.dotenv}")
        ]
    # Of a provider or a sandbox that there is not, their own checks tell.
    told_later = (PROVIDER, BACKEND)
    problems = [one for one in check_settings(home, env) if one.path not in told_later]
    findings = [_settings_finding(one) for one in group_unused(problems)]
    patient = _check_context(home, env, clock)
    if not findings:
        there = f"{home.config} is fine" if home.config.exists() else "all have their defaults"
        findings = [ok_finding("settings", there)]
    return patient, findings


def _check_context(home: Home, env: Env, clock: Clock) -> CheckContext | None:
    try:
        return CheckContext(home=home, env=env, config=load_config(home, env).config, clock=clock)
    except ConfigError:
        return None


def _settings_finding(problem: Problem) -> Finding:
    grade = error_finding if problem.severity is Severity.ERROR else warning_finding
    return grade("settings", str(problem), problem.hint or _EDIT)
