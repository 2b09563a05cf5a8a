"""The lock of a home's gateway, and the record of the process that holds it."""

import fcntl
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from hermes.config.home import DEFAULT_PROFILE, Home
from hermes.kit.errors import ConfigError, HermesError
from hermes.kit.files import content_digest, file_error, read_regular_file
from hermes.kit.ids import is_surely_dead, process_id, runs_here

RECORD_KIND = "hermes-gateway"
_TRIES = 100
_PAUSE = 0.01
"""Seconds between attempts while another process probes the lock or writes its record."""


class ProcessRecord(Struct, frozen=True, kw_only=True):
    """`start_time` is in clock ticks since boot; `holder` identifies the process uniquely.

    `profile` and `home` name the gateway's own profile: a gateway that serves several profiles
    writes the same record to each home. `settings` are digests of the settings files it read.
    """

    pid: int
    kind: str = RECORD_KIND
    argv: tuple[str, ...] = ()
    start_time: int | float | str | None = None
    holder: str = ""
    profile: str = DEFAULT_PROFILE
    home: str = ""
    started_at: Annotated[datetime, Meta(tz=True)] | None = None
    settings: Mapping[str, str] = {}

    @property
    def surely_dead(self) -> bool:
        return bool(self.holder) and is_surely_dead(self.holder)

    @property
    def surely_alive(self) -> bool:
        """Whether the process is on this machine, alive and not a reused pid."""
        return bool(self.holder) and runs_here(self.holder)

    def serves_other_profile(self, home: Home) -> bool:
        """Whether it is another profile's gateway, which serves this home, too."""
        return bool(self.home) and Path(self.home) != home.path

    def changed_settings(self, home: Home) -> list[str]:
        """Names of the home's settings files whose content changed since the process started."""
        prefix = f"{home.profile}/"
        return [
            key.removeprefix(prefix)
            for key, digest in settings_digests(home).items()
            if self.settings.get(key, digest) != digest
        ]


def own_record(home: Home, now: datetime, argv: Sequence[str] | None = None) -> ProcessRecord:
    """Return the record of this process as the gateway of `home`."""
    holder = process_id()
    start = holder.rpartition("/")[2]
    return ProcessRecord(
        pid=os.getpid(),
        argv=tuple(sys.argv if argv is None else argv),
        start_time=int(start) if start.isdecimal() else None,
        holder=holder,
        profile=home.profile,
        home=str(home.path),
        started_at=now,
    )


def settings_digests(home: Home) -> dict[str, str]:
    files = (home.config, home.dotenv, home.auth)
    return {f"{home.profile}/{file.name}": content_digest(file) for file in files}


def read_record(path: Path) -> ProcessRecord | None:
    """Read a record; None if the file is missing or has other content."""
    try:
        record = msgspec.json.decode(read_regular_file(path), type=ProcessRecord)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return record if record.kind == RECORD_KIND and record.pid > 0 else None


class AlreadyRunning(HermesError):
    """Another process is the gateway of this home; `record` describes it, if known."""

    code = "already_running"

    def __init__(self, home: Home, record: ProcessRecord | None) -> None:
        self.home = home
        self.record = record
        super().__init__(
            _already_running_message(home, record), hint=_already_running_hint(home, record)
        )


class HomeLock:
    """Held until `release` or the end of this process."""

    def __init__(self, path: Path, handle: int) -> None:
        self.path = path
        self._handle = handle

    def write(self, record: ProcessRecord) -> None:
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, msgspec.json.encode(record) + b"\n", 0)

    def release(self) -> None:
        """Clear the record first, so that a free lock names no process."""
        os.ftruncate(self._handle, 0)
        os.close(self._handle)


class HomeLocks:
    """The locks of all profiles that one process serves."""

    def __init__(self, locks: Sequence[HomeLock]) -> None:
        self._locks = list(locks)

    def release(self) -> None:
        while self._locks:
            self._locks.pop().release()


def take_lock(home: Home, record: ProcessRecord) -> HomeLock:
    """Take the lock; raises `AlreadyRunning`, or `ConfigError` if it cannot be created."""
    try:
        handle = _locked(home.gateway_lock)
    except OSError as error:
        raise _unusable(home.gateway_lock, error) from error
    if handle is None:
        raise AlreadyRunning(home, read_record(home.gateway_lock))
    lock = HomeLock(home.gateway_lock, handle)
    try:
        lock.write(record)
    except OSError as error:
        lock.release()
        raise _unusable(home.gateway_lock, error) from error
    return lock


def _unusable(path: Path, error: OSError) -> ConfigError:
    hint = "Fix its permissions, or use another home: export HERMES_HOME=DIRECTORY"
    return file_error(error, f"{path} cannot be used: {error.strerror}.", hint)


def take_locks(homes: Sequence[Home], record: ProcessRecord) -> HomeLocks:
    """Take all locks or none; raises `AlreadyRunning` for the first that is held."""
    locks: list[HomeLock] = []
    try:
        locks.extend(take_lock(home, record) for home in homes)
    except BaseException:
        HomeLocks(locks).release()
        raise
    return HomeLocks(locks)


def running_gateway(home: Home) -> ProcessRecord | None:
    """Return the gateway that serves this home now: its own or another profile's."""
    record = read_record(home.gateway_lock)
    if record is None or record.surely_dead:
        return None
    # A gateway elsewhere, for example in a container, is only known by its lock.
    return record if record.surely_alive or _is_locked(home.gateway_lock) else None


def _locked(path: Path) -> int | None:
    """Return a handle that holds the lock, or None if another process has it."""
    for _ in range(_TRIES):
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        if _try(handle, fcntl.LOCK_EX):
            if _is_at(handle, path):
                return handle
            os.close(handle)
            continue
        os.close(handle)
        record = read_record(path)
        if record is not None and not record.surely_dead:
            return None
        time.sleep(_PAUSE)
    return None


def _is_at(handle: int, path: Path) -> bool:
    """Whether the file was not removed meanwhile; a lock on a removed file has no effect."""
    try:
        return os.path.samestat(os.fstat(handle), path.lstat())
    except FileNotFoundError:
        return False


def _is_locked(path: Path) -> bool:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        return not _try(handle, fcntl.LOCK_SH)
    finally:
        os.close(handle)


def _try(handle: int, mode: int) -> bool:
    with suppress(BlockingIOError):
        fcntl.flock(handle, mode | fcntl.LOCK_NB)
        return True
    return False


def _already_running_message(home: Home, record: ProcessRecord | None) -> str:
    if record is None:
        return f"Another process holds {home.gateway_lock} without a record."
    since = f", since {record.started_at.astimezone():%Y-%m-%d %H:%M}" if record.started_at else ""
    process = f"(pid {record.pid}{since})"
    if record.surely_dead:
        return f"The gateway {process} has ended, but a child process still holds its lock."
    if record.serves_other_profile(home):
        return (
            f"Profile {home.profile} is already served by the gateway of profile "
            f"{record.profile} {process}."
        )
    return f"The gateway of profile {home.profile} is already running {process}."


def _already_running_hint(home: Home, record: ProcessRecord | None) -> str:
    flag = "" if home.profile == DEFAULT_PROFILE else f" -p {home.profile}"
    if record is None or record.surely_dead:
        return f"Find it with: fuser {home.gateway_lock}"
    if record.serves_other_profile(home):
        return (
            "One gateway serves all profiles. To run one per profile, set "
            f"gateway.multiplex_profiles to false in profile {record.profile} and restart it."
        )
    return (
        f"Check it with `hermes{flag} gateway status`, stop it with `hermes{flag} gateway "
        f"stop`, or replace it with `hermes{flag} gateway run --replace`."
    )
