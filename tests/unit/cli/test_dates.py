"""Parsing and formatting of times."""

from argparse import ArgumentTypeError
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.cli.dates import TimePoint, local_time, parse_age, relative_time
from support.cases import cases

NOW = datetime(2026, 3, 10, 15, 30, tzinfo=UTC)


@cases(
    ("text", "expected"),
    [
        ("30d", timedelta(days=30)),
        ("12h", timedelta(hours=12)),
        ("45 min", timedelta(minutes=45)),
        ("2W", timedelta(weeks=2)),
        ("6mo", timedelta(days=180)),
        ("1y", timedelta(days=365)),
    ],
)
def test_age_is_parsed(text: str, expected: timedelta) -> None:
    assert parse_age(text) == expected


@cases("text", ["", "d", "90", "5m", "-3d", "3 moons", "1.5d", "99999999y", "٣d x"])
def test_invalid_age_is_rejected(text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        parse_age(text)


def test_date_means_local_midnight() -> None:
    here = TimePoint("2026-01-31").at(NOW).astimezone()
    assert (here.year, here.month, here.day, here.hour, here.minute) == (2026, 1, 31, 0, 0)


def test_time_with_zone_is_converted() -> None:
    assert TimePoint("2026-01-31T18:00+02:00").at(NOW) == datetime(2026, 1, 31, 16, tzinfo=UTC)


def test_today_and_yesterday_are_parsed() -> None:
    today = TimePoint("today").at(NOW)
    assert today <= NOW
    assert NOW - today < timedelta(days=1)
    yesterday = TimePoint("yesterday").at(NOW).astimezone()
    assert yesterday.date() == NOW.astimezone().date() - timedelta(days=1)
    assert yesterday.hour == 0


def test_age_is_a_time_in_the_past() -> None:
    assert TimePoint("7d").at(NOW) == NOW - timedelta(days=7)


@cases("text", ["", "soon", "2026-13-01", "0001-01-01T00:00+23:00", "12"])
def test_invalid_time_is_rejected(text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        TimePoint(text)


@cases(
    ("back", "expected"),
    [
        (timedelta(seconds=20), "just now"),
        (timedelta(minutes=5), "5 min ago"),
        (timedelta(hours=3, minutes=59), "3 h ago"),
        (timedelta(days=19), "19 d ago"),
        (timedelta(days=70), "2 mo ago"),
        (timedelta(days=800), "2 y ago"),
        (timedelta(hours=-5), "in the future"),
    ],
)
def test_relative_time_is_formatted(back: timedelta, expected: str) -> None:
    assert relative_time(NOW - back, NOW) == expected


@given(st.integers(0, 4_000_000_000).map(lambda n: datetime.fromtimestamp(n, UTC)))
def test_formatted_time_can_be_parsed(then: datetime) -> None:
    shown = local_time(then)
    assert local_time(TimePoint(shown).at(NOW)) == shown
