"""Compute when a schedule fires, exactly, across daylight saving changes.

As in Debian's cron, a fixed time that the clock skips fires right after the gap, one that occurs
twice fires once, and a schedule with wildcards for minutes or hours follows the clock as it is.
Intervals count in real time.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from hermes.ports.jobs import Schedule, ScheduleKind
from hermes.schema.errors import UsageError

_MINUTE = timedelta(minutes=1)
_MINUTES_A_DAY = 1440
_NEVER = timedelta(days=366 * 20)


def zone_named(name: str) -> ZoneInfo:
    """Raises `UsageError` for an unknown zone; an empty name is UTC."""
    try:
        return ZoneInfo(name or "UTC")
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise UsageError(
            f"{name!r} is not a time zone.", hint="Use a name such as Europe/Berlin."
        ) from error


def instants_after(
    schedule: Schedule, zone: ZoneInfo, after: datetime, anchor: datetime
) -> Iterator[datetime]:
    """The instants later than `after`, in order, in UTC; intervals count from `anchor`."""
    match schedule.kind:
        case ScheduleKind.ONCE:
            if schedule.run_at is not None and schedule.run_at > after:
                yield schedule.run_at.astimezone(UTC)
        case ScheduleKind.INTERVAL:
            yield from _interval(timedelta(minutes=schedule.minutes), after, anchor)
        case ScheduleKind.CRON:
            yield from _cron(schedule.expr, zone, after)
        case ScheduleKind.EVENT:
            return


def next_instant(
    schedule: Schedule, zone: ZoneInfo, after: datetime, anchor: datetime
) -> datetime | None:
    return next(instants_after(schedule, zone, after, anchor), None)


def period(schedule: Schedule, zone: ZoneInfo, at: datetime) -> timedelta | None:
    """The time from this instant to the next one; None if there is none."""
    following = next_instant(schedule, zone, at, at)
    return None if following is None else following - at


def check_expression(expr: str) -> None:
    """Raises `UsageError` for an expression that is invalid or never matches."""
    _checked_fields(expr)
    found = next(CronSim(expr, datetime(2024, 1, 1, tzinfo=UTC)), None)
    if found is None or found - datetime(2024, 1, 1, tzinfo=UTC) > _NEVER:
        raise _never(expr)


@lru_cache(maxsize=1024)
def _checked_fields(expr: str) -> tuple[str, ...]:
    fields = expr.split()
    if len(fields) != 5:
        raise UsageError(f"{expr!r} is not a cron expression: it must have five fields.")
    try:
        CronSim(expr, datetime(2024, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        minute, hour, day, month, weekday = fields
        any_month, any_day = (minute, hour, day, "*", weekday), (minute, hour, "*", month, weekday)
        if _is_valid(any_month) and _is_valid(any_day):
            raise _never(expr) from error
        raise UsageError(f"{expr!r} is not a cron expression: {error}.") from error
    return tuple(fields)


def _is_valid(fields: Sequence[str]) -> bool:
    try:
        CronSim(" ".join(fields), datetime(2024, 1, 1, tzinfo=UTC))
    except CronSimError:
        return False
    return True


def _never(expr: str) -> UsageError:
    return UsageError(f"The cron expression {expr!r} never matches.")


def _interval(step: timedelta, after: datetime, anchor: datetime) -> Iterator[datetime]:
    if step < _MINUTE:
        raise UsageError("The interval is shorter than a minute.")
    passed = max(0, (after - anchor) // step + 1)
    at = (anchor + passed * step).astimezone(UTC)
    while True:
        yield at
        at += step


def _cron(expr: str, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    minutes, hours = _checked_fields(expr)[:2]
    fixed = not minutes.startswith("*") and not hours.startswith("*")
    found = _fixed_times(expr, zone, after) if fixed else _clock_times(expr, zone, after)
    last = after.astimezone(UTC)
    for at in found:
        if at > last:
            last = at
            yield at


def _fixed_times(expr: str, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    """Yield fixed times; after a time that occurs twice, cronsim may repeat earlier ones."""
    for local in CronSim(expr, after.astimezone(zone)):
        yield local.astimezone(UTC)


def _clock_times(expr: str, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    """Schedules with wildcards, by the clock as it is."""
    start: datetime | None = after.astimezone(UTC)
    while start is not None:
        restart: datetime | None = None
        for local in CronSim(expr, start.astimezone(zone)):
            at = local.astimezone(UTC)
            if (shift := _part_hour_shift(zone, start, at)) is not None:
                restart = _first_from(expr, zone, shift)
                break
            # A midnight that the clock skips does not exist.
            if at.astimezone(zone).replace(tzinfo=None) == local.replace(tzinfo=None):
                yield at
                start = at
        start = restart
        if start is not None:
            yield start


def _part_hour_shift(zone: ZoneInfo, start: datetime, end: datetime) -> datetime | None:
    """When the clock was set by less than an hour: cronsim steps by whole hours over it."""
    before, then = start.astimezone(zone).utcoffset(), end.astimezone(zone).utcoffset()
    if before is None or then is None or not (then - before) % timedelta(hours=1):
        return None
    return _shift_between(zone, start, end)


def _first_from(expr: str, zone: ZoneInfo, shift: datetime) -> datetime | None:
    """The first instant at the shift or after it: minute by minute for a day, then by cronsim."""
    at = shift
    for _ in range(_MINUTES_A_DAY):
        naive = at.astimezone(zone).replace(tzinfo=None)
        if next(CronSim(expr, naive - _MINUTE), None) == naive:
            return at
        at += _MINUTE
    found = next(CronSim(expr, at.astimezone(zone)), None)
    return None if found is None else found.astimezone(UTC)


def _shift_between(zone: ZoneInfo, start: datetime, end: datetime) -> datetime:
    """The minute at which the zone's offset changes between the two."""
    offset = start.astimezone(zone).utcoffset()
    while end - start > _MINUTE:
        middle = start + (end - start) / 2
        if middle.astimezone(zone).utcoffset() == offset:
            start = middle
        else:
            end = middle
    return end.replace(second=0, microsecond=0)
