"""Create, clone, rename, delete and choose profiles."""

import os
import shutil
import stat
import tempfile
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path

from msgspec import Struct

from hermes.config.home import (
    DEFAULT_PROFILE,
    Home,
    active_profile_name,
    check_new_name,
    ensure_home,
    named_profiles,
    profile_home,
    resolve_home,
)
from hermes.kit.errors import ConfigError, UsageError
from hermes.kit.files import write_atomic

CLONED_FILES = (
    "config.yaml", ".env", "SOUL.md", "skills", "memories/MEMORY.md", "memories/USER.md",
)  # fmt: skip

NEVER_CLONED = (
    *("profiles", "active_profile", "kanban", "hermes-agent", "local-model"),
    *("sessions", "backups", "snapshots", "checkpoints", "processes.json"),
    *("webhook_subscriptions.json", "callback.key"),
    *("gateway_state.json", "gateway-starts.log", "gateway", ".clean_shutdown"),
    *(".drain_request.json", ".restart_*.json", ".gateway-*.json", ".update_*"),
)
"""Top-level names that are not cloned: other profiles, history, and state of running processes.

Subscriptions contain secrets of their callers; `callback.key` belongs to the history.
"""

NEVER_CLONED_ANYWHERE = ("*.db", "*.db-*", "*.db.*", "*.lock", "*.pid")
"""Databases are only copied through SQLite; locks and pids belong to a process."""


class ProfileInfo(Struct, frozen=True):
    name: str
    path: Path
    active: bool


def get_active_profile_name(env: Mapping[str, str], profile: str | None = None) -> str:
    """The profile in use, or `profile` if given."""
    return resolve_home(env, profile).profile


def list_profiles(root: Path) -> list[ProfileInfo]:
    """The default profile, then the others by name."""
    chosen = _active_or_default(root)
    return [ProfileInfo(name, path, name == chosen) for name, path in _all_profiles(root)]


def profiles_to_serve(multiplex: bool, home: Home) -> list[tuple[str, Path]]:
    """The profiles that a gateway serves: its own, or all of them with `multiplex`."""
    if not multiplex:
        return [(home.profile, home.path)]
    return _all_profiles(home.root)


def use_profile(root: Path, name: str) -> Home:
    """Make `name` the active profile."""
    home = profile_home(root, name)
    with _file_errors_named("chosen", name):
        if name == DEFAULT_PROFILE:
            home.active_profile.unlink(missing_ok=True)
        else:
            write_atomic(home.active_profile, f"{name}\n".encode())
    return home


def create_profile(
    root: Path, name: str, *, clone: Home | None = None, everything: bool = False
) -> Home:
    """Create a profile, empty or cloned, atomically.

    Credentials for access to the original are not cloned (`clone_credentials`).
    """
    check_new_name(name)
    path = root / "profiles" / name
    if os.path.lexists(path):
        raise UsageError(f"A profile named {name!r} already exists: {path}.")
    with _file_errors_named("created", name):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(dir=path.parent, prefix=".new-"))
        try:
            if clone is not None:
                from hermes.config.clone_credentials import replace_credentials  # noqa: PLC0415 - loads YAML

                _copy_all(clone, staging) if everything else _copy_chosen(clone, staging)
                _restrict_secrets(staging)
                replace_credentials(staging, clone.path)
            ensure_home(Home(root, staging, name))
            staging.rename(path)
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            raise
    return Home(root, path, name)


def copy_home(source: Home, home: Home) -> None:
    """Copy settings, model keys, memory and skills into a home that has no settings yet.

    Credentials for access to the original are not copied (`clone_credentials`).
    """
    from hermes.config.clone_credentials import replace_credentials  # noqa: PLC0415 - loads YAML

    try:
        home.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home.path, prefix=".new-") as folder:
            staging = Path(folder)
            _copy_chosen(source, staging)
            _restrict_secrets(staging)
            replace_credentials(staging, source.path)
            shutil.copytree(staging, home.path, symlinks=True, dirs_exist_ok=True)
    except (OSError, shutil.Error) as error:
        raise ConfigError(
            f"{source.path} could not be copied: {error}.",
            hint=f"Check permissions and free space in {home.path}.",
        ) from error


def delete_profile(root: Path, name: str) -> Path:
    """Delete a profile; if it was active, the default becomes active."""
    path = _named_profile_folder(root, name, "deleted")
    with _file_errors_named("deleted", name):
        if _active_or_default(root) == name:
            Home(root, root).active_profile.unlink(missing_ok=True)
        trash = Path(tempfile.mkdtemp(dir=path.parent, prefix=".deleted-"))
        path.rename(trash / name)
        for leftover in path.parent.glob(".deleted-*"):
            shutil.rmtree(leftover)
    return path


def rename_profile(root: Path, old: str, new: str) -> Home:
    """Rename a profile; it stays active if it was."""
    path = _named_profile_folder(root, old, "renamed")
    check_new_name(new)
    target = path.with_name(new)
    if os.path.lexists(target):
        raise UsageError(f"A profile named {new!r} already exists: {target}.")
    chosen = _active_or_default(root) == old
    with _file_errors_named("renamed", old):
        path.rename(target)
    return use_profile(root, new) if chosen else Home(root, target, new)


@contextmanager
def _file_errors_named(done: str, name: str) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"The profile {name!r} could not be {done}: {error}.",
            hint="Check permissions and free space in the Hermes home.",
        ) from error


def _all_profiles(root: Path) -> list[tuple[str, Path]]:
    named = [(name, root / "profiles" / name) for name in named_profiles(root)]
    return [(DEFAULT_PROFILE, root), *named]


def _active_or_default(root: Path) -> str:
    """The default if the active profile no longer exists, so that listing and repair work."""
    try:
        return active_profile_name(root)
    except ConfigError:
        return DEFAULT_PROFILE


def _named_profile_folder(root: Path, name: str, done: str) -> Path:
    if name == DEFAULT_PROFILE:
        raise UsageError(f"The default profile is the home itself and cannot be {done}.")
    path = profile_home(root, name, may_create=False).path
    if path.is_symlink():
        raise UsageError(
            f"{path} is a symbolic link and cannot be {done}.",
            hint="Change the link and its target by hand.",
        )
    return path


def _copy_chosen(source: Home, target: Path) -> None:
    for name in CLONED_FILES:
        origin, copy = source.path / name, target / name
        if origin.is_dir():
            shutil.copytree(origin, copy, symlinks=True, ignore=_never_cloned)
        elif origin.is_file():
            copy.parent.mkdir(mode=0o700, exist_ok=True)
            shutil.copy2(origin, copy)


def _copy_all(source: Home, target: Path) -> None:
    def left_behind(folder: str, names: list[str]) -> set[str]:
        patterns = NEVER_CLONED if Path(folder) == source.path else ()
        return _matching(names, patterns) | _never_cloned(folder, names)

    shutil.copytree(source.path, target, symlinks=True, ignore=left_behind, dirs_exist_ok=True)
    for name in (".env", "config.yaml"):
        if (target / name).is_symlink() and (source.path / name).is_file():
            # Changing the copy must not change the original.
            (target / name).unlink()
            shutil.copy2(source.path / name, target / name)
    target.chmod(0o700)


def _restrict_secrets(target: Path) -> None:
    for name in (".env", "auth.json"):
        path = target / name
        if path.is_file() and not path.is_symlink():
            path.chmod(0o600)


def _never_cloned(folder: str, names: list[str]) -> set[str]:
    return _matching(names, NEVER_CLONED_ANYWHERE) | {
        name for name in names if not _is_copyable(Path(folder, name))
    }


def _matching(names: Iterable[str], patterns: Iterable[str]) -> set[str]:
    return {name for name in names for pattern in patterns if fnmatch(name, pattern)}


def _is_copyable(path: Path) -> bool:
    """Whether it is a file, directory or link; sockets and pipes are not copied."""
    mode = path.lstat().st_mode
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)
