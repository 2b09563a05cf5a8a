"""One gateway for each home: a lock that is held for life and that the kernel frees at death."""

import fcntl
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from hermes.config.home import DEFAULT, Home
from hermes.daemon.record import Record, read_record
from hermes.kit.errors import ConfigError, HermesError
from hermes.kit.files import file_error

_TRIES = 100
_PAUSE = 0.01
"""Seconds between two tries while somebody only looks, or has not yet written who it is."""


class AlreadyRunning(HermesError):
    """Somebody else is the gateway of this home; `record` says who, when that is known."""

    code = "already_running"

    def __init__(self, home: Home, record: Record | None) -> None:
        self.home = home
        self.record = record
        super().__init__(_who(home, record), hint=_what_next(home, record))


class Lock:
    """Held until `release`, or until this process is gone."""

    def __init__(self, path: Path, handle: int) -> None:
        self.path = path
        self._handle = handle

    def write(self, record: Record) -> None:
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, msgspec.json.encode(record) + b"\n", 0)

    def release(self) -> None:
        """The record goes first: a free lock must not name anybody."""
        os.ftruncate(self._handle, 0)
        os.close(self._handle)


class Locks:
    """The locks of all profiles that one process serves."""

    def __init__(self, held: Sequence[Lock]) -> None:
        self._held = list(held)

    def release(self) -> None:
        while self._held:
            self._held.pop().release()


def take_lock(home: Home, record: Record) -> Lock:
    """Raises `AlreadyRunning`, or `ConfigError` when there cannot be a lock."""
    try:
        handle = _locked(home.gateway_lock)
    except OSError as error:
        raise _unusable(home.gateway_lock, error) from error
    if handle is None:
        raise AlreadyRunning(home, read_record(home.gateway_lock))
    lock = Lock(home.gateway_lock, handle)
    try:
        lock.write(record)
    except OSError as error:
        lock.release()
        raise _unusable(home.gateway_lock, error) from error
    return lock


def _unusable(path: Path, error: OSError) -> ConfigError:
    hint = "Make it yours, or use another: export HERMES_HOME=DIRECTORY"
    return file_error(error, f"{path} cannot be used: {error.strerror}", hint)


def take_locks(homes: Sequence[Home], record: Record) -> Locks:
    """All of them or none. Raises `AlreadyRunning` for the first that somebody else serves."""
    held: list[Lock] = []
    try:
        held.extend(take_lock(home, record) for home in homes)
    except BaseException:
        Locks(held).release()
        raise
    return Locks(held)


def who_holds(home: Home) -> Record | None:
    """The gateway that serves this home now, its own or another profile's."""
    record = read_record(home.gateway_lock)
    if record is None or record.surely_dead:
        return None
    # What runs elsewhere, say in a container, is known by its lock alone.
    return record if record.surely_alive or _is_locked(home.gateway_lock) else None


def _locked(path: Path) -> int | None:
    """A handle that has the lock of the file at `path`; None when somebody else has it."""
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
    """A lock on a file that was removed meanwhile keeps nobody out."""
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


def _try(handle: int, how: int) -> bool:
    with suppress(BlockingIOError):
        fcntl.flock(handle, how | fcntl.LOCK_NB)
        return True
    return False


def _who(home: Home, record: Record | None) -> str:
    if record is None:
        return f"Another process holds {home.gateway_lock} and does not say who it is"
    since = f", since {record.started_at.astimezone():%Y-%m-%d %H:%M}" if record.started_at else ""
    process = f"(pid {record.pid}{since})"
    if record.surely_dead:
        return f"The gateway {process} is gone, but a process that it left still holds its lock"
    if record.serves_as_guest(home):
        return (
            f"Profile {home.profile} is served already by the gateway of profile "
            f"{record.profile} {process}"
        )
    return f"The gateway of profile {home.profile} is running already {process}"


def _what_next(home: Home, record: Record | None) -> str:
    flag = "" if home.profile == DEFAULT else f" -p {home.profile}"
    if record is None or record.surely_dead:
        return f"Find it with: fuser {home.gateway_lock}"
    if record.serves_as_guest(home):
        return (
            "One gateway for all profiles is enough; to run one for each, set "
            f"gateway.multiplex_profiles to false in profile {record.profile} and restart it."
        )
    return (
        f"See how it is with `hermes{flag} gateway status`, end it with `hermes{flag} gateway "
        f"stop`, or take its place with `hermes{flag} gateway run --replace`."
    )
