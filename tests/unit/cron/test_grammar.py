"""What people write becomes the schedule they mean, or an error."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from hermes.cron.grammar import parse_schedule
from hermes.schema.errors import UsageError
from support.cases import cases

NOW = datetime(2026, 11, 17, 12, 0, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")


@cases(
    ("text", "expr"),
    [
        ("0 9 * * *", "0 9 * * *"),
        ("*/15 8-18 * * mon-fri", "*/15 8-18 * * mon-fri"),
        ("@hourly", "0 * * * *"),
        ("weekdays at 9", "0 9 * * 1-5"),
        ("every weekday at 9:30", "30 9 * * 1-5"),
        ("weekends at noon", "0 12 * * 0,6"),
        ("every 1d at 09:00", "0 9 * * *"),
        ("every day at 6pm", "0 18 * * *"),
        ("daily at 9 and 17", "0 9,17 * * *"),
        ("Every Monday and Friday at 9", "0 9 * * 1,5"),
        ("on sundays at 20:00", "0 20 * * 0"),
        ("last day of the month", "0 9 L * *"),
        ("the last day of the month at 18:00", "0 18 L * *"),
        ("first monday of the month at 8", "0 8 * * 1#1"),
        ("15th of the month at 10", "0 10 15 * *"),
    ],
)
def test_recurring_schedule(text: str, expr: str) -> None:
    assert parse_schedule(text, BERLIN, NOW).expr == expr


@cases(
    ("text", "at"),
    [
        ("30m", "2026-11-17T12:30:00+00:00"),
        ("in 2 hours", "2026-11-17T14:00:00+00:00"),
        ("1h 30m", "2026-11-17T13:30:00+00:00"),
        ("1d", "2026-11-18T12:00:00+00:00"),
        ("2026-12-24T18:00", "2026-12-24T17:00:00+00:00"),
        ("2026-12-24T18:00+05:00", "2026-12-24T13:00:00+00:00"),
        ("tomorrow at 9", "2026-11-18T08:00:00+00:00"),
        ("at 12:30", "2026-11-18T11:30:00+00:00"),
    ],
)
def test_single_time(text: str, at: str) -> None:
    assert parse_schedule(text, BERLIN, NOW).run_at == datetime.fromisoformat(at)


@pytest.mark.parametrize(("text", "minutes"), [("every 30m", 30), ("every 2 hours", 120)])
def test_interval(text: str, minutes: int) -> None:
    assert parse_schedule(text, BERLIN, NOW).minutes == minutes


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (" ", "The schedule is empty."),
        (".", "'.' is not a schedule."),
        ("0m", "The delay '0m' is zero."),
        ("every 0m", "The shortest interval is one minute."),
        ("every 99999999d", "The duration '99999999d' is longer than ten years."),
        ("0 9 31 2 *", "The cron expression '0 9 31 2 *' never matches."),
        ("0 9 31 13 *", "'0 9 31 13 *' is not a cron expression: Bad month."),
        ("0 9 32 2 *", "'0 9 32 2 *' is not a cron expression: Bad day-of-month."),
    ],
)
def test_refusal_names_the_reason(text: str, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_schedule(text, BERLIN, NOW)
    assert str(caught.value) == why


@cases(
    "text",
    [
        "", "soon", "one two three four five", "61 * * * *", "0 0 31 2 *", "2020-01-01",
        "every 5s", "0m", "weekdays at 25", "every 99999999d", "* * * *",
    ],
)  # fmt: skip
def test_invalid_schedule_is_rejected(text: str) -> None:
    with pytest.raises(UsageError):
        parse_schedule(text, BERLIN, NOW)
