"""Walk through local time minute by minute, as Debian's cron does; shares no code with cronsim."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))


def _values(field: str, low: int, high: int) -> set[int]:
    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        if span == "*":
            first, last = low, high
        elif "-" in span:
            first, last = (int(one) for one in span.split("-"))
        else:
            first = int(span)
            last = high if step else first
        found |= set(range(first, last + 1, int(step or 1)))
    return found


class Expression:
    def __init__(self, text: str) -> None:
        self.fields = text.split()
        self.last_day = self.fields[2] == "L"
        texts = [*self.fields[:2], "*" if self.last_day else self.fields[2], *self.fields[3:]]
        self.sets = [_values(one, *span) for one, span in zip(texts, _RANGES, strict=True)]
        self.fixed = not self.fields[0].startswith("*") and not self.fields[1].startswith("*")
        minutes, hours = self.sets[:2]
        self.times = {hour * 60 + minute for hour in hours for minute in minutes}

    def matches(self, at: datetime) -> bool:
        return at.hour * 60 + at.minute in self.times and self.matches_day(at)

    def matches_day(self, at: datetime) -> bool:
        _, _, days, months, weekdays = self.sets
        if at.month not in months:
            return False
        tomorrow = at.date() + timedelta(days=1)
        in_month = tomorrow.month != at.month if self.last_day else at.day in days
        in_week = at.isoweekday() in weekdays or at.isoweekday() % 7 in weekdays
        if self.fields[2].startswith("*") or self.fields[4].startswith("*"):
            return in_month and in_week
        return in_month or in_week


def walk(
    zone: ZoneInfo, start: datetime, end: datetime, texts: Sequence[str]
) -> dict[str, list[datetime]]:
    """All instants after `start` up to `end`, of each expression.

    A fixed time that was skipped fires at the end of the gap, a repeated one only at first.
    """
    expressions = [(text, Expression(text)) for text in texts]
    by_time = [[one for one in expressions if time in one[1].times] for time in range(24 * 60)]
    found: dict[str, list[datetime]] = {text: [] for text in texts}
    at = start.replace(second=0, microsecond=0)
    before = latest = at.astimezone(zone).replace(tzinfo=None)
    while (at := at + MINUTE) <= end:
        local = at.astimezone(zone).replace(tzinfo=None)
        repeated = local <= latest
        if local - before == MINUTE and not repeated:
            # Nearly every minute: only expressions that name this time of the day can match.
            for text, one in by_time[local.hour * 60 + local.minute]:
                if one.matches_day(local):
                    found[text].append(at)
        else:
            gap = [before + MINUTE]
            while gap[-1] < local:
                gap.append(gap[-1] + MINUTE)
            for text, one in expressions:
                times = ([] if repeated else gap) if one.fixed else [local]
                if any(map(one.matches, times)):
                    found[text].append(at)
        before, latest = local, max(latest, local)
    return found


def shifts(zone: ZoneInfo, start: datetime, end: datetime) -> list[datetime]:
    """The hours in which the zone's offset changes."""
    found: list[datetime] = []
    at, step = start, timedelta(hours=1)
    while at < end:
        if at.astimezone(zone).utcoffset() != (at + step).astimezone(zone).utcoffset():
            found.append(at)
        at += step
    return found
