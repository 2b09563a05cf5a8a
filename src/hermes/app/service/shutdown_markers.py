"""Small files by which one gateway, its stopper and the next gateway tell each other why."""

from datetime import datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from hermes.app.service.lock import ProcessRecord
from hermes.app.service.options import Ending
from hermes.config.home import Home
from hermes.kit.files import read_regular_file, write_atomic

STOP = "stop"
"""The reason of an end after which nobody is to come; after any other, somebody does."""


class PlannedStop(Struct, frozen=True, kw_only=True):
    """Left by whoever is about to end a gateway on purpose; meant for one process only."""

    pid: int
    start_time: int | float | str | None = None
    requested_at: datetime
    reason: str = STOP


class _CleanShutdown(Struct, frozen=True, kw_only=True):
    pid: int
    ending: Ending
    at: datetime


def planned_stop_file(home: Home) -> Path:
    return home.path / ".gateway-planned-stop.json"


def clean_shutdown_file(home: Home) -> Path:
    return home.path / ".clean_shutdown"


def announce_stop(home: Home, record: ProcessRecord, now: datetime, reason: str = STOP) -> None:
    """To be called before the signal is sent, so that the gateway knows it was meant."""
    stop = PlannedStop(
        pid=record.pid, start_time=record.start_time, requested_at=now, reason=reason
    )
    write_atomic(planned_stop_file(home), msgspec.json.encode(stop) + b"\n", mode=0o600)


def planned_stop(home: Home, record: ProcessRecord) -> PlannedStop | None:
    """The announcement, when it is meant for the process of this record."""
    try:
        stop = msgspec.json.decode(read_regular_file(planned_stop_file(home)), type=PlannedStop)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    same = (stop.pid, stop.start_time) == (record.pid, record.start_time)
    return stop if same else None


def clear_planned_stop(home: Home) -> None:
    planned_stop_file(home).unlink(missing_ok=True)


def write_clean_shutdown(home: Home, record: ProcessRecord, ending: Ending, now: datetime) -> None:
    """Everything is in order: whoever starts next need not look for a crash."""
    farewell = _CleanShutdown(pid=record.pid, ending=ending, at=now)
    write_atomic(clean_shutdown_file(home), msgspec.json.encode(farewell) + b"\n", mode=0o600)


def take_previous_ending(home: Home) -> Ending | None:
    """How the gateway before us ended; None when there was none. Asked once, then forgotten."""
    path = clean_shutdown_file(home)
    try:
        ending = msgspec.json.decode(read_regular_file(path), type=_CleanShutdown).ending
    except FileNotFoundError:
        return Ending.CRASHED if home.gateway_state.exists() else None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        # An empty file, as other programs leave it, says no more than that it ended well.
        ending = Ending.SIGNAL
    path.unlink(missing_ok=True)
    return ending
