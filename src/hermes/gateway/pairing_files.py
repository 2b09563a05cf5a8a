"""Read and write the pairing files, JSON tables shared by the gateway and the CLI.

Unknown entries are preserved, and unreadable files are never overwritten.
"""

import fcntl
import os
import re
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeAlias, cast

import msgspec

from hermes.kit.errors import ConfigError, UsageError
from hermes.kit.files import file_error, write_atomic

Table: TypeAlias = dict[str, object]

_PLATFORM = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_LIMITS = "_rate_limits.json"
_BOM = b"\xef\xbb\xbf"


@contextmanager
def changing_folder(folder: Path) -> Generator[None]:
    """Lock the folder, so that one process writes at a time."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        opened = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise unusable_file(folder, error) from error
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


class PairingFiles:
    """Reading needs no lock, because files are replaced atomically."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def changing(self) -> AbstractContextManager[None]:
        """Lock the folder, so that one process writes at a time."""
        return changing_folder(self._folder)

    def pending(self, platform: str) -> Table:
        return _read(self._path(platform, "pending"))

    def approved(self, platform: str) -> Table:
        return _read(self._path(platform, "approved"))

    def limits(self) -> Table:
        return _read(self._folder / _LIMITS)

    def write_pending(self, platform: str, table: Table) -> None:
        _write(self._path(platform, "pending"), table)

    def write_approved(self, platform: str, table: Table) -> None:
        _write(self._path(platform, "approved"), table)

    def write_limits(self, table: Table) -> None:
        _write(self._folder / _LIMITS, table)

    def platforms(self, kind: str) -> list[str]:
        """List the platforms that have a file of this kind (`pending` or `approved`)."""
        suffix = f"-{kind}.json"
        try:
            names = [path.name for path in self._folder.iterdir()]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise unusable_file(self._folder, error) from error
        found = (name.removesuffix(suffix) for name in names if name.endswith(suffix))
        return sorted(name for name in found if _PLATFORM.fullmatch(name))

    def _path(self, platform: str, kind: str) -> Path:
        return self._folder / f"{platform}-{kind}.json"


def checked_platform(name: str) -> str:
    """Return the name in lower case; raises `UsageError` if it cannot be a file name."""
    platform = name.strip().lower()
    if not _PLATFORM.fullmatch(platform):
        raise UsageError(
            f"{name!r} is not a platform name.",
            hint="Platforms are, for example: telegram, discord, slack.",
        )
    return platform


def as_entry(value: object) -> Table:
    """Return the value as a table; anything else is an empty one."""
    return cast("Table", value) if isinstance(value, dict) else {}


def _read(path: Path) -> Table:
    try:
        data = path.read_bytes().removeprefix(_BOM)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise unusable_file(path, error) from error
    try:
        return msgspec.json.decode(data, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(
            f"{path} is damaged: {error}",
            hint="Repair the file (it was not changed), or rename it and pair again.",
        ) from error


def _write(path: Path, table: Table) -> None:
    data = msgspec.json.format(msgspec.json.encode(table), indent=2)
    try:
        write_atomic(path, data + b"\n", mode=0o600)
    except OSError as error:
        raise unusable_file(path, error) from error


def unusable_file(path: Path, error: OSError) -> ConfigError:
    hint = "Run this as the user the gateway runs as, and check who owns the file."
    return file_error(error, f"{path} cannot be used: {error.strerror}", hint)
