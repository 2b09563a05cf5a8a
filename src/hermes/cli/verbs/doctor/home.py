"""Check the basics: Python, the home, its permissions, the disk and the settings."""

import errno
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from hermes import __version__
from hermes.app.setting_problems import BACKEND, PROVIDER, is_server_or_hook
from hermes.cli.context import CliContext
from hermes.cli.verbs.config.lint import check_settings, group_unused
from hermes.cli.verbs.doctor.finding import CheckContext, Finding
from hermes.config.env import profile_env
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
_PRUNE_HINT = "Free some disk space, or delete old sessions: hermes sessions prune --older-than 90d"


def check_python(version: tuple[int, ...] = sys.version_info[:3]) -> Finding:
    shown = ".".join(map(str, version))
    if version[:2] < MIN_PYTHON:
        oldest = ".".join(map(str, MIN_PYTHON))
        return Finding.error(
            "python",
            f"Hermes needs Python {oldest} or newer, but this is Python {shown}.",
            f"Reinstall it: make PYTHON=python{oldest} run",
        )
    return Finding.ok("python", f"Hermes {__version__} on Python {shown}")


def check_home(home: Home) -> Iterator[Finding]:
    path = home.path
    try:
        _try_write(_existing_parent(path))
    except OSError as error:
        yield unwritable_finding(path, error)
        return
    if not path.exists():
        says = f"{path} does not exist yet."
        yield Finding.warning("home", says, "hermes setup", lambda: ensure_home(home))
        return
    yield from _permissions(home)
    yield from _soul(home)
    missing: list[str] = []
    for name in INITIAL_FOLDERS:
        if not (folder := path / name).exists():
            missing.append(name)
        elif not folder.is_dir():
            yield Finding.error("home", f"{folder} is not a folder.", f"mv {folder} {folder}.old")
    if missing:
        says = f"Missing folders in {path}: {', '.join(missing)}."
        yield Finding.warning("home", says, "hermes doctor --fix", lambda: ensure_home(home))


def unwritable_finding(path: Path, error: OSError) -> Finding:
    fix = f"sudo chown -R $USER {path}   (or: export HERMES_HOME=~/.hermes)"
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        fix = "Free some disk space; find the full disk: df -h"
    elif error.errno == errno.EROFS:
        fix = "Choose a writable home: export HERMES_HOME=DIRECTORY"
    return Finding.error("home", f"{path} is not writable: {error.strerror}.", fix)


def _try_write(folder: Path) -> None:
    """Write a temporary file: permissions alone do not show a full disk."""
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(b"\0" * 4096)
        file.flush()
        os.fsync(file.fileno())


def _existing_parent(path: Path) -> Path:
    return next(one for one in (path, *path.parents) if one.exists())


def _permissions(home: Home) -> Iterator[Finding]:
    """The home folder and the files that hold keys must be private."""
    found = False
    expected = [(home.path, 0o700), (home.dotenv, 0o600), (home.auth, 0o600)]
    for path, allowed in expected:
        mode = _mode(path)
        if mode is None or not mode & _OTHERS_MASK or (path != home.path and not path.is_file()):
            continue
        found = True
        yield Finding.warning(
            "home",
            f"Other users of this machine can access {path} ({mode:o}).",
            f"chmod {allowed:o} {path}",
            repair=partial(path.chmod, allowed),
        )
    if not found:
        yield Finding.ok("home", f"{home.path} is private")


def _soul(home: Home) -> Iterator[Finding]:
    """An unreadable SOUL.md blocks every turn; a missing one is fine."""
    try:
        read_regular_file(home.soul)
    except FileNotFoundError:
        return
    except OSError as error:
        says = f"{home.soul} cannot be read: {error.strerror}."
        yield Finding.error("soul", says, f"Rename it: mv {home.soul} {home.soul}.old")


def _mode(path: Path) -> int | None:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return None


def check_disk(home: Home, free: int | None = None) -> Finding:
    """Check the free space; `free` (bytes) replaces the measured value."""
    left = shutil.disk_usage(_existing_parent(home.path)).free if free is None else free
    shown = f"{left / 1024**3:.1f} GB" if left >= LOW_DISK else f"{left // 1024**2} MB"
    if left >= LOW_DISK:
        return Finding.ok("disk", f"{shown} free")
    finding = Finding.error if left < CRITICAL_DISK else Finding.warning
    return finding("disk", f"Only {shown} of disk space left for {home.path}.", _PRUNE_HINT)


def read_settings(
    context: CliContext, home: Home, clock: Clock
) -> tuple[CheckContext | None, Sequence[Finding]]:
    """The context for the other checks, or None if the settings are unreadable, and findings."""
    try:
        env = profile_env(home.dotenv, context.env)
    except ConfigError as error:
        fix = f"{error.hint.rstrip('.') or 'Fix it by hand'}: ${{EDITOR:-vi}} {home.dotenv}"
        return None, [Finding.error("settings", str(error), fix)]
    # The checks of the model, the sandbox, servers and hooks report these themselves.
    reported_later = (PROVIDER, BACKEND)
    problems = [
        problem
        for problem in check_settings(home, env)
        if problem.path not in reported_later and not is_server_or_hook(problem)
    ]
    findings = [_settings_finding(problem) for problem in group_unused(problems)]
    if not findings:
        state = f"{home.config} is valid" if home.config.exists() else "all defaults"
        findings = [Finding.ok("settings", state)]
    try:
        config = load_config(home, env).config
    except ConfigError:
        return None, findings
    return CheckContext(home=home, env=env, config=config, clock=clock), findings


def _settings_finding(problem: Problem) -> Finding:
    grade = Finding.error if problem.severity is Severity.ERROR else Finding.warning
    return grade("settings", str(problem), problem.hint or "hermes config edit")
