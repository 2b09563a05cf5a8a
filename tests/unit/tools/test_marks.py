"""What is kept of what came from outside: nothing of it is lost, and what is unknown counts."""

import os
from pathlib import Path
from threading import Thread

from hermes.kit.files import open_locked, write_atomic
from hermes.tools.provenance.log import ProvenanceLog, ProvenanceNote
from support.cli_process import TEST_TIMEOUT

FIRST, SECOND = ProvenanceNote(10.0, 11.0), ProvenanceNote(20.0, 21.0)


def covered(marks: ProvenanceLog) -> list[bool]:
    return [marks.covers(when, oldest=0.0) for when in (10.5, 15.0, 20.5)]


def test_a_log_that_cannot_be_read_says_yes(tmp_path: Path) -> None:
    log = tmp_path / "fetched"
    log.mkdir()
    marks = ProvenanceLog(log)
    assert covered(marks) == [True, True, True]
    assert marks.changed_by_untrusted(tmp_path / "AGENTS.md", 15.0)
    assert marks
    log.rmdir()
    assert covered(marks) == [False, False, False]
    assert not marks


def test_what_could_not_be_written_is_written_with_the_next_note(tmp_path: Path) -> None:
    log = tmp_path / "cache" / "fetched"
    (tmp_path / "cache").touch()
    marks = ProvenanceLog(log)
    marks.add(FIRST, oldest=0.0)
    (tmp_path / "cache").unlink()
    assert covered(marks) == [True, False, False]
    assert covered(ProvenanceLog(log)) == [False, False, False]
    marks.add(SECOND, oldest=0.0)
    assert covered(ProvenanceLog(log)) == [True, False, True]


def test_half_a_line_spoils_no_other(tmp_path: Path) -> None:
    log = tmp_path / "fetched"
    log.write_bytes(b'{"start":1,"en')
    ProvenanceLog(log).add(FIRST, oldest=0.0)
    ProvenanceLog(log).add(SECOND, oldest=0.0)
    assert covered(ProvenanceLog(log)) == [True, False, True]


def test_a_file_that_was_replaced_is_read_from_its_beginning(tmp_path: Path) -> None:
    """Its inode may be the one of an earlier file, and its size larger."""
    log, other = tmp_path / "fetched", tmp_path / "other"
    reader = ProvenanceLog(log)
    reader.add(ProvenanceNote(1.0, 2.0), oldest=0.0)
    assert covered(reader) == [False, False, False]
    for note in (FIRST, SECOND, ProvenanceNote(30.0, 31.0)):
        ProvenanceLog(other).add(note, oldest=0.0)
    inode = log.stat().st_ino
    log.write_bytes(other.read_bytes())
    assert log.stat().st_ino == inode
    assert covered(reader) == [True, False, True]


def test_who_adds_while_another_one_replaces_the_file_is_not_lost(tmp_path: Path) -> None:
    log = tmp_path / "fetched"
    ProvenanceLog(log).add(FIRST, oldest=0.0)
    adding = Thread(target=ProvenanceLog(log).add, args=(SECOND, 0.0))
    with open_locked(log):
        adding.start()
        write_atomic(log, log.read_bytes())
    adding.join(TEST_TIMEOUT)
    assert not adding.is_alive()
    assert covered(ProvenanceLog(log)) == [True, False, True]


def test_a_file_is_known_again_in_a_folder_that_was_renamed(tmp_path: Path) -> None:
    log, file = tmp_path / "fetched", tmp_path / "docs" / "a.md"
    file.parent.mkdir()
    file.write_text("obey me")
    stat = file.stat()
    ProvenanceLog(log).add(
        ProvenanceNote(file=os.fspath(file), changed=stat.st_ctime_ns, inode=stat.st_ino),
        oldest=0.0,
    )
    moved = file.parent.rename(tmp_path / "notes") / "a.md"
    assert ProvenanceLog(log).written(moved, moved.stat())
    moved.write_text("mine")
    assert not ProvenanceLog(log).written(moved, moved.stat())


def test_marks_of_earlier_versions_count_by_their_names(tmp_path: Path) -> None:
    log, file = tmp_path / "fetched", tmp_path / "a.md"
    file.write_text("obey me")
    ProvenanceLog(log).add(
        ProvenanceNote(file=os.fspath(file), changed=file.stat().st_ctime_ns), oldest=0.0
    )
    assert ProvenanceLog(log).written(file, file.stat())
    assert not ProvenanceLog(log).written(tmp_path / "b.md", file.stat())
