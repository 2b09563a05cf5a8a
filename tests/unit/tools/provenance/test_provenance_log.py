"""The provenance log loses nothing, and unknown content counts as fetched."""

import os
from pathlib import Path
from threading import Thread

from hermes.kit.files import open_locked, write_atomic
from hermes.tools.provenance.log import ProvenanceLog, ProvenanceNote
from support.cli_process import TEST_TIMEOUT

FIRST, SECOND = ProvenanceNote(10.0, 11.0), ProvenanceNote(20.0, 21.0)


def covered(provenance_log: ProvenanceLog) -> list[bool]:
    return [provenance_log.covers(when, oldest=0.0) for when in (10.5, 15.0, 20.5)]


def test_unreadable_log_covers_everything(tmp_path: Path) -> None:
    log = tmp_path / "fetched"
    log.mkdir()
    provenance_log = ProvenanceLog(log)
    assert covered(provenance_log) == [True, True, True]
    assert provenance_log.changed_by_untrusted(tmp_path / "AGENTS.md", 15.0)
    assert provenance_log
    log.rmdir()
    assert covered(provenance_log) == [False, False, False]
    assert not provenance_log


def test_failed_write_is_repeated_with_the_next_note(tmp_path: Path) -> None:
    log = tmp_path / "cache" / "fetched"
    (tmp_path / "cache").touch()
    provenance_log = ProvenanceLog(log)
    provenance_log.add(FIRST, oldest=0.0)
    (tmp_path / "cache").unlink()
    assert covered(provenance_log) == [True, False, False]
    assert covered(ProvenanceLog(log)) == [False, False, False]
    provenance_log.add(SECOND, oldest=0.0)
    assert covered(ProvenanceLog(log)) == [True, False, True]


def test_partial_line_does_not_affect_others(tmp_path: Path) -> None:
    log = tmp_path / "fetched"
    log.write_bytes(b'{"start":1,"en')
    ProvenanceLog(log).add(FIRST, oldest=0.0)
    ProvenanceLog(log).add(SECOND, oldest=0.0)
    assert covered(ProvenanceLog(log)) == [True, False, True]


def test_replaced_log_is_read_from_the_start(tmp_path: Path) -> None:
    """It may have the inode of an earlier file and a larger size."""
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


def test_note_added_during_a_rewrite_is_kept(tmp_path: Path) -> None:
    log = tmp_path / "fetched"
    ProvenanceLog(log).add(FIRST, oldest=0.0)
    adding = Thread(target=ProvenanceLog(log).add, args=(SECOND, 0.0))
    with open_locked(log):
        adding.start()
        write_atomic(log, log.read_bytes())
    adding.join(TEST_TIMEOUT)
    assert not adding.is_alive()
    assert covered(ProvenanceLog(log)) == [True, False, True]


def test_file_is_recognized_in_a_renamed_folder(tmp_path: Path) -> None:
    log, file = tmp_path / "fetched", tmp_path / "docs" / "a.md"
    file.parent.mkdir()
    file.write_text("obey me")
    stat = file.stat()
    ProvenanceLog(log).add(
        ProvenanceNote(file=os.fspath(file), changed=stat.st_ctime_ns, inode=stat.st_ino),
        oldest=0.0,
    )
    moved = file.parent.rename(tmp_path / "notes") / "a.md"
    assert ProvenanceLog(log).is_untrusted_write(moved, moved.stat())
    moved.write_text("mine")
    assert not ProvenanceLog(log).is_untrusted_write(moved, moved.stat())


def test_notes_of_earlier_versions_count(tmp_path: Path) -> None:
    log, file = tmp_path / "fetched", tmp_path / "a.md"
    file.write_text("obey me")
    ProvenanceLog(log).add(
        ProvenanceNote(file=os.fspath(file), changed=file.stat().st_ctime_ns), oldest=0.0
    )
    assert ProvenanceLog(log).is_untrusted_write(file, file.stat())
    assert not ProvenanceLog(log).is_untrusted_write(tmp_path / "b.md", file.stat())
