"""Too many starts in a short time: first leave aside what may cause them, then wait in between.

A turn that makes the gateway end (it restarts it, or crashes it) would do so again after each
start. So after a few restarts the interrupted turns are parked instead of resumed. When starts
go on coming all the same, each waits longer than the one before. A start after `hermes gateway
stop` is somebody's wish and counts for nothing.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from hermes.app.service.options import Ending
from hermes.config.home import Home
from hermes.config.sections.messaging import Gateway
from hermes.kit.files import read_regular_file, write_atomic
from hermes.kit.text import plural

MAX_STARTS = 50
"""Lines in the file; more than anybody counts."""

_FIRST_WAIT = 5.0
_LONGEST_WAIT = 300.0


class StartRecord(Struct, frozen=True, kw_only=True):
    """One start; `after` is how the gateway before it ended, if there was one."""

    at: Annotated[datetime, Meta(tz=True)]
    pid: int
    after: Ending | None = None


class StartAdvice(Struct, frozen=True, kw_only=True):
    """`wait` seconds before connecting anything; `park` interrupted turns; `reason` for the log."""

    wait: float = 0.0
    park: bool = False
    reason: str = ""


def starts_file(home: Home) -> Path:
    return home.path / "gateway-starts.log"


def read_starts(home: Home) -> list[StartRecord]:
    """The last starts, oldest first; lines that are none are left out."""
    try:
        lines = read_regular_file(starts_file(home)).splitlines()
    except OSError:
        return []
    starts: list[StartRecord] = []
    for line in lines:
        try:
            starts.append(msgspec.json.decode(line, type=StartRecord))
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
    return starts[-MAX_STARTS:]


def record_start(home: Home, start: StartRecord) -> list[StartRecord]:
    """Add it to the file; to be called by whoever has the lock. Returns all that are kept."""
    starts = [*read_starts(home), start][-MAX_STARTS:]
    data = b"".join(msgspec.json.encode(one) + b"\n" for one in starts)
    write_atomic(starts_file(home), data, mode=0o600)
    return starts


def advise_start(starts: Sequence[StartRecord], settings: Gateway) -> StartAdvice:
    """What the newest of these starts should do."""
    if not starts:
        return StartAdvice()
    now = starts[-1].at
    guard, storm = settings.restart_loop_guard, settings.respawn_storm
    unasked = _unplanned_starts(starts)
    restarts = _count_since(unasked, now, guard.window_seconds)
    park = guard.enabled and 0 < guard.max_restarts <= restarts
    many = _count_since(unasked, now, storm.window_seconds)
    beyond = many - storm.max_starts + 1 if storm.enabled and storm.max_starts else 0
    wait = min(_FIRST_WAIT * 2 ** min(beyond - 1, 16), _LONGEST_WAIT) if beyond > 0 else 0.0
    reasons: list[str] = []
    if park:
        reasons.append(
            f"{plural(restarts, 'restart')} within {guard.window_seconds:g} s: turns that were "
            "interrupted are parked instead of resumed"
        )
    if wait:
        reasons.append(
            f"{plural(many, 'restart')} within {storm.window_seconds:g} s: waiting {wait:g} s"
        )
    return StartAdvice(wait=wait, park=park, reason="; ".join(reasons))


def _unplanned_starts(starts: Sequence[StartRecord]) -> list[datetime]:
    """Starts that nobody at the keyboard asked for, since the last one somebody did."""
    times: list[datetime] = []
    for start in starts:
        if start.after is None or start.after is Ending.STOPPED:
            times = []
        else:
            times.append(start.at)
    return times


def _count_since(times: Sequence[datetime], now: datetime, seconds: float) -> int:
    # A clock that was set back must not make the future count.
    return sum(timedelta(0) <= now - at <= timedelta(seconds=seconds) for at in times)
