"""Schedules agree with a walk through local time, minute by minute."""

import random
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from zoneinfo import ZoneInfo

import pytest

from hermes.cron.instants import instants_after
from hermes.ports.jobs import Schedule, ScheduleKind
from support.cases import cases
from unit.cron.minute_oracle import shifts, walk

EXPRESSIONS = (
    "30 2 * * *", "0 0 * * *", "0 9 * * 1-5", "*/15 * * * *", "*/20 2 * * *", "0 */3 * * *",
    "0,30 1,2 * * *", "5 0 L * *", "0 12 13 * 5", "30 * * * 0", "15 0-3 * * *", "*/10 0 * * *",
)  # fmt: skip
ZONES = (
    "UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Havana",
    "Asia/Beirut", "Africa/Casablanca", "America/St_Johns", "Asia/Kathmandu", "America/Santiago",
    "Pacific/Chatham", "Atlantic/Azores",
)  # fmt: skip
START = datetime(2026, 1, 1, tzinfo=UTC)


def check(zone: ZoneInfo, start: datetime, end: datetime) -> int:
    """Compare both; return how many instants there were."""
    count = 0
    for text, wanted in walk(zone, start, end, EXPRESSIONS).items():
        schedule = Schedule(kind=ScheduleKind.CRON, expr=text)
        found = takewhile(lambda at: at <= end, instants_after(schedule, zone, start, start))
        assert [*found] == wanted, f"{text} in {zone}"
        count += len(wanted)
    return count


@cases("name", ZONES)
def test_instants_around_changes_of_the_clock(name: str) -> None:
    zone = ZoneInfo(name)
    chance = random.Random(name)  # noqa: S311 - a fixed seed
    changes = shifts(zone, START, START + timedelta(days=366)) or [START + timedelta(days=58)]
    at = chance.choice(changes) - timedelta(minutes=chance.randrange(60 * 30))
    assert check(zone, at, at + timedelta(hours=60)) > 200


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", ZONES)
def test_instants_of_two_years(name: str) -> None:
    assert check(ZoneInfo(name), START, START + timedelta(days=731)) > 90_000


def test_interval_counts_in_real_time() -> None:
    zone = ZoneInfo("Europe/Berlin")
    schedule = Schedule(kind=ScheduleKind.INTERVAL, minutes=90)
    anchor = datetime(2026, 3, 28, 23, 0, tzinfo=UTC)
    found = instants_after(schedule, zone, anchor, anchor)
    assert [next(found) - anchor for _ in range(3)] == [
        timedelta(minutes=90 * n) for n in (1, 2, 3)
    ]


def test_job_created_in_a_repeated_hour_does_not_fire_in_the_past() -> None:
    zone = ZoneInfo("Europe/Berlin")
    second_pass = datetime(2026, 10, 25, 1, 30, tzinfo=UTC)  # 02:30 for the second time
    schedule = Schedule(kind=ScheduleKind.CRON, expr="45 2 * * *")
    assert next(instants_after(schedule, zone, second_pass, second_pass)) > second_pass
