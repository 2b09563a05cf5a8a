"""Parse schedules as people write them."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from hermes.cron.instants import check_expression
from hermes.ports.jobs import Schedule, ScheduleKind
from hermes.schema.errors import UsageError

_UNITS = {"s": 1 / 60, "m": 1, "h": 60, "d": 1440, "w": 10080}
_DURATION = re.compile(
    r"(\d+(?:\.\d+)?)\s*(seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h|days?|d|weeks?|w)",
    re.IGNORECASE,
)
_CHANGE = re.compile(r"on changes? (?:of |in |to )?(?P<path>\S.*)", re.IGNORECASE)
_TIME = re.compile(r"(\d{1,2})(?::(\d{2}))?\s*(am|pm)?|noon|midnight", re.IGNORECASE)
_DAYS = {
    **{name: str(number) for number, names in enumerate(
        ("sunday sun", "monday mon", "tuesday tue tues", "wednesday wed", "thursday thu thurs",
         "friday fri", "saturday sat"),
    ) for name in names.split()},
    "weekday": "1-5", "weekdays": "1-5", "workday": "1-5", "workdays": "1-5",
    "weekend": "0,6", "weekends": "0,6",
}  # fmt: skip
_ORDINALS = {
    "first": 1,
    "1st": 1,
    "second": 2,
    "2nd": 2,
    "third": 3,
    "3rd": 3,
    "fourth": 4,
    "4th": 4,
}
_NICKNAMES = {
    "hourly": "0 * * * *", "daily": "0 0 * * *", "weekly": "0 0 * * 0", "monthly": "0 0 1 * *",
    "yearly": "0 0 1 1 *", "annually": "0 0 1 1 *", "midnight": "0 0 * * *",
}  # fmt: skip
_HINT = (
    "Examples: 30m (once, after a delay), every 2h, 0 9 * * 1-5, 2026-12-24T18:00, weekdays at 9, "
    "every monday at 9:30, last day of the month at 18:00."
)
_MAX_MINUTES = 60 * 24 * 366 * 10
_MIN_MINUTES = 1


def parse_schedule(text: str, zone: ZoneInfo, now: datetime) -> Schedule:
    """Raises `UsageError` if it is not a schedule, or is in the past."""
    words = " ".join(text.split())
    lowered = words.lower().removesuffix(".")
    if not words:
        raise UsageError("The schedule is empty.", hint=_HINT)
    found = (
        _event(words)
        or _expression(words)
        or _once(lowered, now)
        or _interval(lowered)
        or _timestamp(words, zone)
        or _tomorrow(lowered, zone, now)
        or _days(lowered)
    )
    if found is None:
        raise UsageError(f"{words!r} is not a schedule.", hint=_HINT)
    if found.run_at is not None and found.run_at <= now:
        raise UsageError(f"{words!r} is in the past.", hint=_HINT)
    return found


def _event(words: str) -> Schedule | None:
    if words.lower() in {"on webhook", "webhook"}:
        return Schedule(kind=ScheduleKind.EVENT, display="on webhook")
    found = _CHANGE.fullmatch(words)
    if found is None:
        return None
    path = Path(found["path"]).expanduser()
    if not path.is_absolute():
        raise UsageError(f"The path {str(path)!r} of a watched file must be absolute.")
    return Schedule(kind=ScheduleKind.EVENT, path=str(path), display=f"on change of {path}")


def _expression(words: str) -> Schedule | None:
    expr = _NICKNAMES.get(words.lower().removeprefix("@"), words)
    fields = expr.split()
    if len(fields) != 5 or not all(re.fullmatch(r"[\w*/,\-#]+", field) for field in fields):
        return None
    if not re.search(r"[\d*]", fields[0]):
        return None
    check_expression(expr)
    return Schedule(kind=ScheduleKind.CRON, expr=expr, display=words)


def _minutes(text: str) -> float | None:
    """The length of a duration such as `30m`, `1h 30m` or `2 days`."""
    parts = _DURATION.findall(text)
    if not parts or _DURATION.sub("", text).replace("and", "").strip(" ,"):
        return None
    total = sum(float(number) * _UNITS[unit[0].lower()] for number, unit in parts)
    if total > _MAX_MINUTES:
        raise UsageError(f"The duration {text!r} is longer than ten years.")
    return total


def _once(text: str, now: datetime) -> Schedule | None:
    delay = text.removeprefix("in ").removeprefix("after ")
    minutes = _minutes(delay)
    if minutes is None:
        return None
    if not minutes:
        raise UsageError(f"The delay {delay!r} is zero.", hint=_HINT)
    at = now + timedelta(minutes=minutes)
    return Schedule(kind=ScheduleKind.ONCE, run_at=at, display=f"once in {delay}")


def _interval(text: str) -> Schedule | None:
    if not text.startswith("every "):
        return None
    rest = text.removeprefix("every ").strip()
    if rest in {"minute", "hour"}:
        rest = f"1 {rest}"
    minutes = _minutes(rest)
    if minutes is None:
        return None
    if minutes < _MIN_MINUTES:
        raise UsageError("The shortest interval is one minute.", hint=_HINT)
    whole = int(minutes) if minutes == int(minutes) else minutes
    return Schedule(kind=ScheduleKind.INTERVAL, minutes=whole, display=text)


def _timestamp(words: str, zone: ZoneInfo) -> Schedule | None:
    if not re.match(r"\d{4}-?\d{2}", words):
        return None
    try:
        at = datetime.fromisoformat(words)
    except ValueError:
        return None
    if at.tzinfo is None:
        at = at.replace(tzinfo=zone)
    return _at(at, f"once at {at:%Y-%m-%d %H:%M}")


def _at(at: datetime, display: str) -> Schedule:
    return Schedule(kind=ScheduleKind.ONCE, run_at=at.astimezone(UTC), display=display)


def _tomorrow(text: str, zone: ZoneInfo, now: datetime) -> Schedule | None:
    found = re.fullmatch(r"(today|tonight|tomorrow|at)(?: at)? (.+)", text)
    clock = _clock(found[2]) if found else None
    if found is None or clock is None:
        return None
    minute, hour = clock
    day = now.astimezone(zone)
    at = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
    if found[1] == "tomorrow" or (found[1] == "at" and at <= now):
        at = datetime.combine(at.date() + timedelta(days=1), at.timetz())
    return _at(at, f"once at {at:%Y-%m-%d %H:%M}")


def _clock(text: str) -> tuple[int, int] | None:
    """Minute and hour of a time such as `9`, `9:30`, `6pm` or `noon`."""
    text = text.strip().removesuffix(" o'clock").removesuffix("h").strip()
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    if text in {"noon", "midnight"}:
        return 0, 12 if text == "noon" else 0
    hour, minute = int(found[1]), int(found[2] or 0)
    if found[3]:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if found[3].lower() == "pm" else 0)
    return (minute, hour) if hour < 24 and minute < 60 else None


def _days(text: str) -> Schedule | None:
    """`weekdays at 9`, `every monday and friday at 9:30`, `last day of the month at 18:00`."""
    when, _, time = text.partition(" at ")
    times = [_clock(part) for part in re.split(r",|\band\b", time)] if time else [(0, 9)]
    if not times or None in times:
        return None
    clocks = [one for one in times if one is not None]
    minutes = {minute for minute, _ in clocks}
    if len(minutes) > 1:
        raise UsageError(f"The times in {text!r} must share their minutes.", hint=_HINT)
    hours = ",".join(map(str, sorted({hour for _, hour in clocks})))
    days = _day_fields(
        when.removeprefix("on ").removeprefix("every ").removeprefix("each ").strip()
    )
    if days is None:
        return None
    expr = f"{minutes.pop()} {hours} {days}"
    check_expression(expr)
    return Schedule(kind=ScheduleKind.CRON, expr=expr, display=text)


def _day_fields(when: str) -> str | None:
    """The last three fields of the expression."""
    if when in {"day", "days", "daily", "1d", "1 day", "morning"}:
        return "* * *"
    names = [part.strip() for part in re.split(r",|\band\b", when)]
    if all(name in _DAYS or name.removesuffix("s") in _DAYS for name in names):
        known = [_DAYS.get(name) or _DAYS[name.removesuffix("s")] for name in names]
        return f"* * {','.join(known)}"
    return _month_fields(when)


def _month_fields(when: str) -> str | None:
    """Return the last three fields for a day of the month."""
    month = re.sub(r"\s+(of|in) (the|each|every) month$", "", when).removeprefix("the ")
    if month == when and not when.startswith(("last ", "first ")):
        return None
    if month in {"last day", "first day"}:
        return "L * *" if month == "last day" else "1 * *"
    ordinal, _, day = month.partition(" ")
    if ordinal in _ORDINALS and _DAYS.get(day, "").isdecimal():
        return f"* * {_DAYS[day]}#{_ORDINALS[ordinal]}"
    number = re.fullmatch(r"(\d{1,2})(st|nd|rd|th)?", month)
    return f"{int(number[1])} * *" if number and 1 <= int(number[1]) <= 31 else None
