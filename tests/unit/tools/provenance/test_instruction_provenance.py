"""Instruction files are followed only if nobody but the owner could have written them."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from hermes.testing.clock import FakeClock
from hermes.tools.provenance.file_provenance import MAX_BACKGROUND, MAX_FOREGROUND, FileProvenance
from hermes.tools.provenance.instruction_files import TrustStore
from hermes.tools.provenance.log import MAX_AGE, ProvenanceLog, ProvenanceNote

NO_PROGRAM = 1 << 30
"""Larger than any process id."""


class InstructedFolder:
    """A folder with an instruction file; provenance is loaded from disk each time."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.work = root / "work"
        self.work.mkdir()
        self.instructions = self.work / "AGENTS.md"
        self.instructions.write_text("Tabs.")

    def file_provenance(self, later: float = 0.0) -> FileProvenance:
        """As known to a program so many seconds after the last change."""
        clock = FakeClock(datetime.fromtimestamp(self.instructions.lstat().st_ctime + later, UTC))
        trusted = TrustStore(self.root / "vouched")
        return FileProvenance(clock, self.root / "fetched", trusted=trusted)

    def speaks(self, later: float = 0.0) -> bool:
        return self.file_provenance(later).may_be_followed(
            self.instructions, self.instructions.read_bytes(), self.work
        )


@pytest.fixture
def folder(tmp_path: Path) -> InstructedFolder:
    return InstructedFolder(tmp_path)


def test_instructions_from_before_others_stay_trusted(folder: InstructedFolder) -> None:
    folder.file_provenance(60.0).record_untrusted_work(folder.work)
    folder.file_provenance(-60.0).record_untrusted_work(folder.work)
    folder.instructions.chmod(0o600)
    assert folder.speaks()
    folder.instructions.write_text("Obey.")
    assert not folder.speaks()
    folder.instructions.write_text("Tabs.")
    assert folder.speaks()


@pytest.mark.parametrize("later", [0.0, 2 * MAX_AGE])
def test_untrusted_work_is_never_forgotten(folder: InstructedFolder, later: float) -> None:
    folder.file_provenance().record_untrusted_work(folder.work)
    folder.instructions.write_text("Obey.")
    marks = ProvenanceLog(folder.root / "fetched")
    for number in range(500):
        marks.add(
            ProvenanceNote(1.0, float(number)), oldest=folder.file_provenance(later).now() - MAX_AGE
        )
    assert not folder.speaks(later)


@pytest.mark.parametrize("longest", [MAX_FOREGROUND, MAX_BACKGROUND])
@pytest.mark.parametrize("over", [False, True])
def test_long_running_command_counts_until_its_end(
    folder: InstructedFolder, longest: float, over: bool
) -> None:
    """For instruction files only; other files would be foreign for days."""
    file_provenance = folder.file_provenance()
    fetching = file_provenance.start_fetch([], longest, file_provenance.now() - longest - 5)
    if over:
        fetching.end()
    assert not folder.file_provenance().was_fetched(folder.instructions)
    assert not folder.speaks()


def test_command_of_a_dead_program_no_longer_counts(folder: InstructedFolder) -> None:
    now = folder.file_provenance().now()
    marks = ProvenanceLog(folder.root / "fetched")
    marks.add(ProvenanceNote(now - 3_600.0, now - 3_000.0, pid=NO_PROGRAM), oldest=0.0)
    assert folder.speaks()


def test_refused_instructions_stay_refused_until_trusted(folder: InstructedFolder) -> None:
    folder.file_provenance().reject_instructions(folder.instructions, b"Tabs.")
    for text in ("Tabs.", "TABS.", "Spaces."):
        folder.instructions.write_text(text)
        assert not folder.speaks(), text
    folder.file_provenance().trusted.trust(folder.instructions, b"Spaces.")
    assert folder.speaks()
    folder.instructions.write_text("Mine.")
    assert folder.speaks()
    folder.instructions.write_text("Tabs.")
    assert not folder.speaks()


def test_refused_content_is_recognized_elsewhere(folder: InstructedFolder) -> None:
    before, after = folder.root / "CLAUDE.md", folder.root / "HERMES.md"
    before.write_text("Tabs.")
    while folder.instructions.lstat().st_ctime <= before.lstat().st_ctime:
        folder.instructions.write_text("Tabs.")
    folder.file_provenance().reject_instructions(folder.instructions, b"Tabs.")
    after.write_text("Tabs.")
    file_provenance = folder.file_provenance()
    assert file_provenance.may_be_followed(before, b"Tabs.", folder.root)
    assert not file_provenance.may_be_followed(after, b"Tabs.", folder.root)


def test_refusals_survive_a_rewrite_of_the_log(folder: InstructedFolder) -> None:
    log = folder.root / "fetched"
    folder.file_provenance().reject_instructions(folder.instructions, b"Tabs.")
    marks = ProvenanceLog(log)
    for number in range(1_000):
        marks.add(ProvenanceNote(1.0, float(number)), oldest=1e12)
    assert log.stat().st_size < 20_000
    assert not folder.speaks()
