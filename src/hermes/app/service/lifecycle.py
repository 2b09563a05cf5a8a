"""Options of a gateway run, its endings, and the marker files that explain them to others."""

from datetime import datetime, timedelta
from enum import IntEnum, StrEnum
from pathlib import Path

import msgspec
from msgspec import Struct

from hermes.app.service.lock import ProcessRecord
from hermes.config.home import Home
from hermes.kit.files import read_regular_file, write_atomic
from hermes.ports.ownership import WORKER_TTL

STOP_REASON = "stop"
"""Reason of a stop without a restart; any other reason is followed by a start."""


class RunOptions(Struct, frozen=True, kw_only=True):
    """`replace` stops a running gateway first; `force` skips the wait after repeated restarts.

    `ready_fd` is a pipe on which the starting process waits for readiness. Other gateways on the
    same store take over when this one has sent no heartbeat for `worker_ttl`.
    """

    replace: bool = False
    force: bool = False
    verbose: int = 0
    quiet: bool = False
    ready_fd: int | None = None
    worker_ttl: timedelta = WORKER_TTL


class ExitCode(IntEnum):
    """Apart from these, 128 plus the number of the signal that ended it."""

    ENDED = 0
    FAILED = 1
    RESTART = 75
    WRONG_CONFIG = 78


class Ending(StrEnum):
    """How a gateway ended; `crashed` is inferred when nothing was recorded."""

    STOPPED = "stopped"
    RESTART = "restart"
    SIGNAL = "signal"
    FAILED = "failed"
    CRASHED = "crashed"


def exit_code(ending: Ending, signal: int = 0) -> int:
    """Return the process's exit code; an unannounced signal shows in it."""
    if ending is Ending.SIGNAL:
        return 128 + signal
    codes = {Ending.STOPPED: ExitCode.ENDED, Ending.RESTART: ExitCode.RESTART}
    return codes.get(ending, ExitCode.FAILED)


class PlannedStop(Struct, frozen=True, kw_only=True):
    """Written before stopping a gateway on purpose; addressed to one process."""

    pid: int
    start_time: int | float | str | None = None
    requested_at: datetime
    reason: str = STOP_REASON


class _CleanShutdown(Struct, frozen=True, kw_only=True):
    pid: int
    ending: Ending
    at: datetime


def planned_stop_file(home: Home) -> Path:
    return home.path / ".gateway-planned-stop.json"


def clean_shutdown_file(home: Home) -> Path:
    return home.path / ".clean_shutdown"


def announce_stop(
    home: Home, record: ProcessRecord, now: datetime, reason: str = STOP_REASON
) -> None:
    """Announce the stop before sending the signal, so that the gateway knows it is intended."""
    stop = PlannedStop(
        pid=record.pid, start_time=record.start_time, requested_at=now, reason=reason
    )
    write_atomic(planned_stop_file(home), msgspec.json.encode(stop) + b"\n", mode=0o600)


def planned_stop(home: Home, record: ProcessRecord) -> PlannedStop | None:
    """Return the announcement if it is addressed to this process."""
    try:
        stop = msgspec.json.decode(read_regular_file(planned_stop_file(home)), type=PlannedStop)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    same = (stop.pid, stop.start_time) == (record.pid, record.start_time)
    return stop if same else None


def clear_planned_stop(home: Home) -> None:
    planned_stop_file(home).unlink(missing_ok=True)


def write_clean_shutdown(home: Home, record: ProcessRecord, ending: Ending, now: datetime) -> None:
    """Record a clean shutdown, so that the next start assumes no crash."""
    marker = _CleanShutdown(pid=record.pid, ending=ending, at=now)
    write_atomic(clean_shutdown_file(home), msgspec.json.encode(marker) + b"\n", mode=0o600)


def take_previous_ending(home: Home) -> Ending | None:
    """Return how the previous gateway ended (None if there was none) and forget it."""
    path = clean_shutdown_file(home)
    try:
        ending = msgspec.json.decode(read_regular_file(path), type=_CleanShutdown).ending
    except FileNotFoundError:
        return Ending.CRASHED if home.gateway_state.exists() else None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        # An empty file, as other versions write it, only says that it ended cleanly.
        ending = Ending.SIGNAL
    path.unlink(missing_ok=True)
    return ending
