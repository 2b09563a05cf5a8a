"""Logs are read from their end, through old copies, and followed while they are turned."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.cli.verbs.logs import reader
from hermes.cli.verbs.logs.reader import LogFiles, LogFollower, RecordFilter, record_level
from hermes.logs.files import RotatingFile

EVERYTHING = RecordFilter()


def record(number: int, level: str = "INFO", more: str = "") -> bytes:
    text = (
        f"2026-03-04 10:{number // 60 % 60:02}:{number % 60:02},000 {level} [7] hermes.x: n{number}"
    )
    return f"{text}\n{more}".encode()


def last(
    path: Path, count: int, wanted: RecordFilter = EVERYTHING, *, lines: bool = False
) -> list[bytes]:
    opened = LogFiles(path, each_line=lines)
    try:
        place = opened.last(count, wanted)
        return [] if place is None else [one for one in opened.records(place) if wanted(one)]
    finally:
        opened.close()


@pytest.fixture
def log(tmp_path: Path) -> RotatingFile:
    return RotatingFile(tmp_path / "agent.log", 400, 3)


def test_the_last_records_come_from_old_copies_too(log: RotatingFile) -> None:
    for number in range(20):
        log.append(record(number))
    assert log.path.with_name("agent.log.2").exists()
    assert last(log.path, 12) == [record(number) for number in range(8, 20)]


def test_a_traceback_belongs_to_its_record(log: RotatingFile) -> None:
    log.append(record(1, "ERROR", "Traceback:\n  one\n  two\n"))
    log.append(record(2))
    assert last(log.path, 5, RecordFilter(level="error")) == [
        record(1, "ERROR", "Traceback:\n  one\n  two\n")
    ]


def test_a_level_means_that_and_all_above(log: RotatingFile) -> None:
    for number, level in enumerate(("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")):
        log.append(record(number, level))
    found = [record_level(one) for one in last(log.path, 9, RecordFilter(level="warning"))]
    assert found == ["WARNING", "ERROR", "CRITICAL"]


def test_only_what_names_the_session_is_wanted(log: RotatingFile) -> None:
    log.append(record(1, more="about ses_a\n"))
    log.append(record(2, more="about ses_b\n"))
    assert last(log.path, 9, RecordFilter(names=("ses_b",))) == [record(2, more="about ses_b\n")]


def test_only_what_is_late_enough_is_wanted() -> None:
    then = datetime(2026, 3, 4, 10, 0, 30).astimezone()
    assert [n for n in range(60) if RecordFilter(since=then)(record(n))] == list(range(30, 60))
    assert not RecordFilter(since=then)(b"no time at all\n")
    assert not RecordFilter(since=datetime.now(UTC) + timedelta(days=36500))(record(1))


def test_what_a_program_printed_is_shown_by_lines(tmp_path: Path) -> None:
    path = tmp_path / "gateway.log"
    path.write_bytes(b"one\ntwo\nthree")
    assert last(path, 2, lines=True) == [b"two\n", b"three\n"]


@given(
    st.lists(st.tuples(st.booleans(), st.text("ab\r é", max_size=30)), max_size=30),
    st.integers(1, 8),
    st.integers(1, 40),
)
def test_from_the_end_as_from_the_beginning(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[tuple[bool, str]],
    count: int,
    block: int,
) -> None:
    """However small the blocks are, records begin where they begin."""
    path = tmp_path_factory.mktemp("logs") / "agent.log"
    records: list[bytes] = []
    for number, (begins, text) in enumerate(lines):
        line = (record(number).rstrip() if begins else b"") + text.encode() + b"\n"
        if begins or not records:
            records.append(line)
        else:
            records[-1] += line
    path.write_bytes(b"".join(records))
    opened = LogFiles(path, block=block)
    place = opened.last(count, EVERYTHING)
    found = [] if place is None else list(opened.records(place))
    opened.close()
    assert found == records[-count:]


def test_a_line_without_end_does_not_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "agent.log"
    path.write_bytes(record(1) + record(2).rstrip() + b"x" * 1_000_000 + b"\n" + record(3))
    first, second, third = last(path, 3)
    assert (first, third) == (record(1), record(3))
    assert second.startswith(record(2).rstrip())
    assert len(second) <= 2 * reader.MAX_RECORD


def test_what_comes_is_followed_through_every_turn(log: RotatingFile) -> None:
    log.append(record(0))
    follower = LogFollower(log.path)
    assert list(follower.look()) == [record(0)]
    for number in range(1, 30):
        log.append(record(number))
    assert log.path.with_name("agent.log.3").exists()
    assert list(follower.look()) == [record(number) for number in range(1, 30)]
    assert list(follower.look()) == []
    log.append(record(30))
    assert list(follower.look()) == [record(30)]
    follower.close()


def test_a_log_that_was_turned_too_often_goes_on_with_what_is_left(log: RotatingFile) -> None:
    log.append(record(0))
    follower = LogFollower(log.path)
    assert list(follower.look()) == [record(0)]
    for number in range(1, 100):
        log.append(record(number))
    found = list(follower.look())
    follower.close()
    left = [record(number) for number in range(100) if record(number) in last(log.path, 100)]
    assert found[-len(left) :] == left
    assert 8 < len(left) < 50
    own = len(found) - len(left)
    assert found[:own] == [record(number) for number in range(1, own + 1)]


def test_a_log_that_was_taken_away_begins_anew_without_its_old_copies(log: RotatingFile) -> None:
    old = log.path.with_name("agent.log.1")
    log.append(record(2))
    old.write_bytes(record(1))
    os.utime(old, (1, 1))
    follower = LogFollower(log.path)
    assert list(follower.look()) == [record(2)]
    log.path.unlink()
    log.append(record(3))
    assert list(follower.look()) == [record(3)]
    follower.close()


def test_a_log_may_begin_later_and_be_emptied(tmp_path: Path) -> None:
    path = tmp_path / "agent.log"
    follower = LogFollower(path)
    assert list(follower.look()) == []
    path.write_bytes(record(1) + record(2))
    assert list(follower.look()) == [record(1), record(2)]
    path.write_bytes(record(3))
    assert list(follower.look()) == [record(3)]
    follower.close()


def test_half_a_line_waits_for_its_end(tmp_path: Path) -> None:
    path = tmp_path / "agent.log"
    path.write_bytes(record(1)[:20])
    follower = LogFollower(path)
    assert list(follower.look()) == []
    path.write_bytes(record(1))
    assert list(follower.look()) == [record(1)]
    follower.close()


def test_following_goes_on_where_reading_ended(log: RotatingFile) -> None:
    log.append(record(1))
    opened = LogFiles(log.path)
    place = opened.last(1, EVERYTHING)
    assert place is not None
    assert list(opened.records(place)) == [record(1)]
    for number in range(2, 12):
        log.append(record(number))
    follower = LogFollower(log.path, opened.newest())
    assert list(follower.look()) == [record(number) for number in range(2, 12)]
    follower.close()
    opened.close()
