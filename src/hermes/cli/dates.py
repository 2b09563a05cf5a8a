"""Parse and format times for people: `2 h ago`, `2026-01-31`, `yesterday`, `90d`."""

import re
from argparse import ArgumentTypeError
from datetime import UTC, datetime, time, timedelta

_UNITS = {"min": 1, "h": 60, "d": 1440, "w": 10_080, "mo": 43_200, "y": 525_600}
_AGE = re.compile(r"(\d{1,9})\s*([a-z]*)")
_MAX_MINUTES = 200 * 525_600
_RELATIVE_UNITS = ((60, 1, "min"), (1440, 60, "h"), (43_200, 1440, "d"), (525_600, 43_200, "mo"))


def parse_age(text: str) -> timedelta:
    """Parse `30d`, `12h`, `2w`, `6mo` or `1y`; `m` is rejected as ambiguous."""
    found = _AGE.fullmatch(text.strip().lower())
    unit = found and found[2].removesuffix("s")
    if not found or unit not in _UNITS:
        raise ArgumentTypeError(f"{text!r} is not an age; use 30d, 12h, 2w, 6mo or 1y")
    minutes = int(found[1]) * _UNITS[unit]
    if minutes > _MAX_MINUTES:
        raise ArgumentTypeError(f"{text!r} is too long; the limit is 200 years")
    return timedelta(minutes=minutes)


class TimePoint:
    """A point in time given on the command line, absolute or relative to now."""

    def __init__(self, text: str) -> None:
        self._text = text.strip().lower()
        self._fixed: datetime | None = None
        self._back: timedelta | None = None
        if self._text in {"today", "yesterday"}:
            return
        if _AGE.fullmatch(self._text) and not self._text.isdecimal():
            self._back = parse_age(self._text)
            return
        try:
            self._fixed = datetime.fromisoformat(text.strip()).astimezone(UTC)
        except (ValueError, OverflowError) as error:
            raise ArgumentTypeError(
                f"{text!r} is not a time; use 2026-01-31, '2026-01-31 18:00', yesterday or 7d"
            ) from error

    def at(self, now: datetime) -> datetime:
        if self._fixed is not None:
            return self._fixed
        if self._back is not None:
            return now - self._back
        day = now.astimezone().date()
        if self._text == "yesterday":
            day -= timedelta(days=1)
        return datetime.combine(day, time()).astimezone(UTC)


def relative_time(then: datetime, now: datetime) -> str:
    minutes = int((now - then).total_seconds() // 60)
    if minutes < -1:
        return "in the future"
    if minutes < 1:
        return "just now"
    for below, divisor, unit in _RELATIVE_UNITS:
        if minutes < below:
            return f"{minutes // divisor} {unit} ago"
    return f"{minutes // 525_600} y ago"


def local_time(moment: datetime) -> str:
    """Date and time in the local time zone."""
    return f"{moment.astimezone():%Y-%m-%d %H:%M}"
