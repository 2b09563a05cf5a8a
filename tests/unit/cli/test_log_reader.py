"""Reading and following rotated log files."""

import os
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.app import log_files as logs
from hermes.app.log_files import LogFiles, LogFollower, RecordFilter, record_level
from hermes.logs import RotatingFile

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
        start = opened.find_last(count, wanted)
        return [] if start is None else [one for one in opened.records(start) if wanted(one)]
    finally:
        opened.close()


@pytest.fixture
def log(tmp_path: Path) -> RotatingFile:
    return RotatingFile(tmp_path / "agent.log", 400, 3)


def test_last_records_include_rotated_files(log: RotatingFile) -> None:
    for number in range(20):
        log.append(record(number))
    assert log.path.with_name("agent.log.2").exists()
    assert last(log.path, 12) == [record(number) for number in range(8, 20)]
    assert last(log.path, 10**20) == [record(number) for number in range(20)]


def test_traceback_is_part_of_its_record(log: RotatingFile) -> None:
    log.append(record(1, "ERROR", "Traceback:\n  one\n  two\n"))
    log.append(record(2))
    assert last(log.path, 5, RecordFilter(level="error")) == [
        record(1, "ERROR", "Traceback:\n  one\n  two\n")
    ]


def test_level_filter_includes_higher_levels(log: RotatingFile) -> None:
    for number, level in enumerate(("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")):
        log.append(record(number, level))
    found = [record_level(one) for one in last(log.path, 9, RecordFilter(level="warning"))]
    assert found == ["WARNING", "ERROR", "CRITICAL"]


def test_session_filter_matches_records_that_name_it(log: RotatingFile) -> None:
    log.append(record(1, more="about ses_a\n"))
    log.append(record(2, more="about ses_b\n"))
    assert last(log.path, 9, RecordFilter(names=("ses_b",))) == [record(2, more="about ses_b\n")]


def test_since_filter_drops_older_records() -> None:
    then = datetime(2026, 3, 4, 10, 0, 30).astimezone()
    assert [n for n in range(60) if RecordFilter(since=then)(record(n))] == list(range(30, 60))
    assert not RecordFilter(since=then)(b"no time at all\n")
    assert not RecordFilter(since=datetime.now(UTC) + timedelta(days=36500))(record(1))


def test_program_output_is_split_by_lines(tmp_path: Path) -> None:
    path = tmp_path / "gateway.log"
    path.write_bytes(b"one\ntwo\nthree")
    assert last(path, 2, lines=True) == [b"two\n", b"three\n"]


@given(
    st.lists(st.tuples(st.booleans(), st.text("ab\r é", max_size=30)), max_size=30),
    st.integers(1, 8),
    st.integers(1, 40),
)
def test_reading_backwards_matches_reading_forwards(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[tuple[bool, str]],
    count: int,
    block: int,
) -> None:
    """The block size does not change where records begin."""
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
    start = opened.find_last(count, EVERYTHING)
    found = [] if start is None else list(opened.records(start))
    opened.close()
    assert found == records[-count:]


def test_endless_line_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "agent.log"
    path.write_bytes(record(1) + record(2).rstrip() + b"x" * 1_000_000 + b"\n" + record(3))
    first, second, third = last(path, 3)
    assert (first, third) == (record(1), record(3))
    assert second.startswith(record(2).rstrip())
    assert len(second) <= 2 * logs.MAX_RECORD


def test_follower_survives_rotation(log: RotatingFile) -> None:
    log.append(record(0))
    follower = LogFollower(log.path)
    assert list(follower.read_new()) == [record(0)]
    for number in range(1, 30):
        log.append(record(number))
    assert log.path.with_name("agent.log.3").exists()
    assert list(follower.read_new()) == [record(number) for number in range(1, 30)]
    assert list(follower.read_new()) == []
    log.append(record(30))
    assert list(follower.read_new()) == [record(30)]
    follower.close()


def test_follower_continues_after_many_rotations(log: RotatingFile) -> None:
    log.append(record(0))
    follower = LogFollower(log.path)
    assert list(follower.read_new()) == [record(0)]
    for number in range(1, 100):
        log.append(record(number))
    found = list(follower.read_new())
    follower.close()
    left = [record(number) for number in range(100) if record(number) in last(log.path, 100)]
    assert found[-len(left) :] == left
    assert 8 < len(left) < 50
    own = len(found) - len(left)
    assert found[:own] == [record(number) for number in range(1, own + 1)]


def test_follower_reads_everything_while_files_are_rotated(tmp_path: Path) -> None:
    log, count = RotatingFile(tmp_path / "agent.log", 2000, 99), 3000
    log.append(record(0))
    follower = LogFollower(log.path)
    found = [*follower.read_new()]

    def write() -> None:
        for number in range(1, count):
            log.append(record(number))

    writer = threading.Thread(target=write)
    writer.start()
    while writer.is_alive():
        found += follower.read_new()
    writer.join()
    found += follower.read_new()
    follower.close()
    log.close()
    assert found == [record(number) for number in range(count)]


def test_follower_restarts_after_deletion_without_rotated_files(log: RotatingFile) -> None:
    old = log.path.with_name("agent.log.1")
    log.append(record(2))
    old.write_bytes(record(1))
    os.utime(old, (1, 1))
    follower = LogFollower(log.path)
    assert list(follower.read_new()) == [record(2)]
    log.path.unlink()
    log.append(record(3))
    assert list(follower.read_new()) == [record(3)]
    follower.close()


def test_follower_handles_missing_and_truncated_file(tmp_path: Path) -> None:
    path = tmp_path / "agent.log"
    follower = LogFollower(path)
    assert list(follower.read_new()) == []
    path.write_bytes(record(1) + record(2))
    assert list(follower.read_new()) == [record(1), record(2)]
    path.write_bytes(record(3))
    assert list(follower.read_new()) == [record(3)]
    follower.close()


def test_incomplete_line_is_held_back(tmp_path: Path) -> None:
    path = tmp_path / "agent.log"
    path.write_bytes(record(1)[:20])
    follower = LogFollower(path)
    assert list(follower.read_new()) == []
    path.write_bytes(record(1))
    assert list(follower.read_new()) == [record(1)]
    follower.close()


def test_follower_continues_where_reading_ended(log: RotatingFile) -> None:
    log.append(record(1))
    opened = LogFiles(log.path)
    start = opened.find_last(1, EVERYTHING)
    assert start is not None
    assert list(opened.records(start)) == [record(1)]
    for number in range(2, 12):
        log.append(record(number))
    follower = LogFollower(log.path, opened.newest())
    assert list(follower.read_new()) == [record(number) for number in range(2, 12)]
    follower.close()
    opened.close()
