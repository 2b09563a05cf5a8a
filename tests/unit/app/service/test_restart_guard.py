"""Repeated starts: when interrupted turns are parked and when a start waits."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from hermes.app.service.lifecycle import Ending
from hermes.app.service.restart_guard import (
    MAX_STARTS,
    StartRecord,
    advise_start,
    read_starts,
    record_start,
    starts_file,
)
from hermes.config.home import Home
from hermes.config.sections.messaging import Gateway, RespawnStorm, RestartLoopGuard
from support.cases import cases

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def start_records(*ages: float, after: Ending | None = Ending.CRASHED) -> list[StartRecord]:
    return [StartRecord(at=NOW - timedelta(seconds=age), pid=1, after=after) for age in ages]


@cases(
    ("ages", "park", "wait"),
    [
        ([], False, 0),
        ([0], False, 0),
        ([10, 0], False, 0),
        ([20, 10, 0], True, 0),
        ([200, 100, 0], False, 0),
        ([40, 30, 20, 10, 0], True, 5),
        ([50, 40, 30, 20, 10, 0], True, 10),
        ([100, 80, 60.1, 30, 0], False, 5),
        ([*range(40, -1, -1)], True, 300),
        ([-50, -40, -30, -20, 0], False, 0),
    ],
)
def test_restart_loops_park_turns_and_delay_starts(
    ages: list[float], park: bool, wait: float
) -> None:
    advice = advise_start(start_records(*ages), Gateway())
    assert (advice.park, advice.wait) == (park, wait)
    assert bool(advice.reason) == (park or wait > 0)


def test_planned_start_resets_the_count() -> None:
    many = start_records(40, 30, 20, 10)
    assert advise_start([*many, *start_records(0)], Gateway()).park
    for ending in (Ending.STOPPED, None):
        assert not advise_start([*many, *start_records(0, after=ending)], Gateway()).park
        assert not advise_start(
            [*many, *start_records(5, after=ending), *start_records(0)], Gateway()
        ).park


def test_guards_can_be_disabled() -> None:
    off = Gateway(
        restart_loop_guard=RestartLoopGuard(enabled=False), respawn_storm=RespawnStorm(max_starts=0)
    )
    advice = advise_start(start_records(*range(40, -1, -1)), off)
    assert (advice.park, advice.wait) == (False, 0)


def test_file_is_bounded_and_ignores_invalid_lines(tmp_path: Path) -> None:
    home = Home(tmp_path, tmp_path)
    assert read_starts(home) == []
    starts_file(home).write_bytes(b"garbage\n\xff\n")
    for number in range(MAX_STARTS + 20):
        kept = record_start(home, StartRecord(at=NOW, pid=number))
    assert kept == read_starts(home)
    assert [start.pid for start in kept] == list(range(20, MAX_STARTS + 20))
    assert starts_file(home).stat().st_mode & 0o777 == 0o600
