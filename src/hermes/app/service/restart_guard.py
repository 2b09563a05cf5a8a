"""Limit restart loops: first park interrupted turns, then delay starts.

A turn that restarts or crashes the gateway would do so again after each start. After a few
restarts, interrupted turns are therefore parked instead of resumed. If starts continue, each one
waits longer than the one before. A start after `hermes gateway stop` is intended and resets this.
"""

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from hermes.app.service.lifecycle import Ending
from hermes.config.home import Home
from hermes.config.sections.messaging import Gateway
from hermes.kit.files import read_regular_file, write_atomic
from hermes.kit.text import plural

MAX_STARTS = 50
"""Lines kept in the file; more than any window needs."""

_FIRST_WAIT = 5.0
_LONGEST_WAIT = 300.0


class StartRecord(Struct, frozen=True, kw_only=True):
    """One start; `after` is how the previous gateway ended, if there was one."""

    at: Annotated[datetime, Meta(tz=True)]
    pid: int
    after: Ending | None = None


class StartAdvice(Struct, frozen=True, kw_only=True):
    """`wait` seconds before connecting; `park` interrupted turns; `reason` for the log."""

    wait: float = 0.0
    park: bool = False
    reason: str = ""


def starts_file(home: Home) -> Path:
    return home.path / "gateway-starts.log"


def read_starts(home: Home) -> list[StartRecord]:
    """Return the last starts, oldest first; invalid lines are skipped."""
    try:
        lines = read_regular_file(starts_file(home)).splitlines()
    except OSError:
        return []
    starts: list[StartRecord] = []
    for line in lines:
        with suppress(msgspec.DecodeError, UnicodeDecodeError):
            starts.append(msgspec.json.decode(line, type=StartRecord))
    return starts[-MAX_STARTS:]


def record_start(home: Home, start: StartRecord) -> list[StartRecord]:
    """Append to the file and return all starts; the caller must hold the lock."""
    starts = [*read_starts(home), start][-MAX_STARTS:]
    data = b"".join(msgspec.json.encode(start_record) + b"\n" for start_record in starts)
    write_atomic(starts_file(home), data, mode=0o600)
    return starts


def advise_start(starts: Sequence[StartRecord], settings: Gateway) -> StartAdvice:
    """Return what the newest of these starts should do."""
    if not starts:
        return StartAdvice()
    now = starts[-1].at
    guard, storm = settings.restart_loop_guard, settings.respawn_storm
    unplanned = _unplanned_starts(starts)
    restarts = _count_since(unplanned, now, guard.window_seconds)
    park = guard.enabled and 0 < guard.max_restarts <= restarts
    recent = _count_since(unplanned, now, storm.window_seconds)
    excess = recent - storm.max_starts + 1 if storm.enabled and storm.max_starts else 0
    wait = min(_FIRST_WAIT * 2 ** min(excess - 1, 16), _LONGEST_WAIT) if excess > 0 else 0.0
    reasons: list[str] = []
    if park:
        reasons.append(
            f"{plural(restarts, 'restart')} within {guard.window_seconds:g} s: "
            "interrupted turns are parked instead of resumed"
        )
    if wait:
        reasons.append(
            f"{plural(recent, 'restart')} within {storm.window_seconds:g} s: waiting {wait:g} s"
        )
    return StartAdvice(wait=wait, park=park, reason="; ".join(reasons))


def _unplanned_starts(starts: Sequence[StartRecord]) -> list[datetime]:
    """Return unplanned starts since the last planned one."""
    times: list[datetime] = []
    for start in starts:
        if start.after is None or start.after is Ending.STOPPED:
            times = []
        else:
            times.append(start.at)
    return times


def _count_since(times: Sequence[datetime], now: datetime, seconds: float) -> int:
    # Ignore times in the future, in case the clock was set back.
    return sum(timedelta(0) <= now - at <= timedelta(seconds=seconds) for at in times)
