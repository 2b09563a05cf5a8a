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

from hermes.config.home import Home
from hermes.config.sections.chats import Gateway
from hermes.daemon.options import Ending
from hermes.kit.files import read_ordinary, write_atomic
from hermes.kit.text import plural

KEPT = 50
"""Lines in the file; more than anybody counts."""

_FIRST_WAIT = 5.0
_LONGEST_WAIT = 300.0


class Start(Struct, frozen=True, kw_only=True):
    """One start; `after` is how the gateway before it ended, if there was one."""

    at: Annotated[datetime, Meta(tz=True)]
    pid: int
    after: Ending | None = None


class Advice(Struct, frozen=True, kw_only=True):
    """`wait` seconds before connecting anything; `park` interrupted turns; `reason` for the log."""

    wait: float = 0.0
    park: bool = False
    reason: str = ""


def starts_file(home: Home) -> Path:
    return home.path / "gateway-starts.log"


def read_starts(home: Home) -> list[Start]:
    """The last starts, oldest first; lines that are none are left out."""
    try:
        lines = read_ordinary(starts_file(home)).splitlines()
    except OSError:
        return []
    starts: list[Start] = []
    for line in lines:
        try:
            starts.append(msgspec.json.decode(line, type=Start))
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
    return starts[-KEPT:]


def note_start(home: Home, start: Start) -> list[Start]:
    """Add it to the file; to be called by whoever has the lock. Returns all that are kept."""
    starts = [*read_starts(home), start][-KEPT:]
    data = b"".join(msgspec.json.encode(one) + b"\n" for one in starts)
    write_atomic(starts_file(home), data, mode=0o600)
    return starts


def advise(starts: Sequence[Start], settings: Gateway) -> Advice:
    """What the newest of these starts should do."""
    if not starts:
        return Advice()
    now = starts[-1].at
    guard, storm = settings.restart_loop_guard, settings.respawn_storm
    unasked = _unasked(starts)
    restarts = _within(unasked, now, guard.window_seconds)
    park = guard.enabled and 0 < guard.max_restarts <= restarts
    many = _within(unasked, now, storm.window_seconds)
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
    return Advice(wait=wait, park=park, reason="; ".join(reasons))


def _unasked(starts: Sequence[Start]) -> list[datetime]:
    """Starts that nobody at the keyboard asked for, since the last one somebody did."""
    times: list[datetime] = []
    for start in starts:
        if start.after is None or start.after is Ending.STOPPED:
            times = []
        else:
            times.append(start.at)
    return times


def _within(times: Sequence[datetime], now: datetime, seconds: float) -> int:
    # A clock that was set back must not make the future count.
    return sum(timedelta(0) <= now - at <= timedelta(seconds=seconds) for at in times)
