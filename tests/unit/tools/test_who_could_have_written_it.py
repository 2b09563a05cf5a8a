"""What tells how things are done speaks if only the owner could have written it."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from hermes.testing.clock import FakeClock
from hermes.tools.provenance.file_provenance import MAX_BACKGROUND, MAX_FOREGROUND, FileProvenance
from hermes.tools.provenance.log import MAX_AGE, ProvenanceLog, ProvenanceNote
from hermes.tools.provenance.trust_store import TrustStore

NO_PROGRAM = 1 << 30
"""Higher than any system counts."""


class Desk:
    """Somebody's folder with a guide in it; what is known of it is read from the disk anew."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.work = root / "work"
        self.work.mkdir()
        self.guide = self.work / "AGENTS.md"
        self.guide.write_text("Tabs.")

    def origins(self, later: float = 0.0) -> FileProvenance:
        """As a program knows it that looks so many seconds after the guide was changed last."""
        clock = FakeClock(datetime.fromtimestamp(self.guide.lstat().st_ctime + later, UTC))
        trusted = TrustStore(self.root / "vouched")
        return FileProvenance(clock, self.root / "fetched", trusted=trusted)

    def speaks(self, later: float = 0.0) -> bool:
        return self.origins(later).speaks(self.guide, self.guide.read_bytes(), self.work)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_what_the_owner_had_before_others_came_stays_the_owners(desk: Desk) -> None:
    desk.origins(60.0).record_untrusted_work(desk.work)
    desk.origins(-60.0).record_untrusted_work(desk.work)
    desk.guide.chmod(0o600)
    assert desk.speaks()
    desk.guide.write_text("Obey.")
    assert not desk.speaks()
    desk.guide.write_text("Tabs.")
    assert desk.speaks()


@pytest.mark.parametrize("later", [0.0, 2 * MAX_AGE])
def test_that_others_were_there_is_never_forgotten(desk: Desk, later: float) -> None:
    desk.origins().record_untrusted_work(desk.work)
    desk.guide.write_text("Obey.")
    marks = ProvenanceLog(desk.root / "fetched")
    for number in range(500):
        marks.add(ProvenanceNote(1.0, float(number)), oldest=desk.origins(later).now() - MAX_AGE)
    assert not desk.speaks(later)


@pytest.mark.parametrize("longest", [MAX_FOREGROUND, MAX_BACKGROUND])
@pytest.mark.parametrize("over", [False, True])
def test_what_takes_longer_than_most_brings_until_its_end(
    desk: Desk, longest: float, over: bool
) -> None:
    """For what tells how things are done; other files would be strangers' for days."""
    origins = desk.origins()
    fetching = origins.fetching([], longest, origins.now() - longest - 5)
    if over:
        fetching.over()
    assert not desk.origins().was_fetched(desk.guide)
    assert not desk.speaks()


def test_whose_program_is_gone_brings_no_longer(desk: Desk) -> None:
    now = desk.origins().now()
    marks = ProvenanceLog(desk.root / "fetched")
    marks.add(ProvenanceNote(now - 3_600.0, now - 3_000.0, pid=NO_PROGRAM), oldest=0.0)
    assert desk.speaks()


def test_what_was_silent_stays_so_until_it_is_vouched_for(desk: Desk) -> None:
    desk.origins().refuse(desk.guide, b"Tabs.")
    for words in ("Tabs.", "TABS.", "Spaces."):
        desk.guide.write_text(words)
        assert not desk.speaks(), words
    desk.origins().trusted.vouch(desk.guide, b"Spaces.")
    assert desk.speaks()
    desk.guide.write_text("Mine.")
    assert desk.speaks()
    desk.guide.write_text("Tabs.")
    assert not desk.speaks()


def test_its_content_is_known_again_elsewhere_but_not_what_was_there_before(desk: Desk) -> None:
    before, after = desk.root / "CLAUDE.md", desk.root / "HERMES.md"
    before.write_text("Tabs.")
    while desk.guide.lstat().st_ctime <= before.lstat().st_ctime:
        desk.guide.write_text("Tabs.")
    desk.origins().refuse(desk.guide, b"Tabs.")
    after.write_text("Tabs.")
    origins = desk.origins()
    assert origins.speaks(before, b"Tabs.", desk.root)
    assert not origins.speaks(after, b"Tabs.", desk.root)


def test_what_was_refused_outlives_the_shortening_of_the_log(desk: Desk) -> None:
    log = desk.root / "fetched"
    desk.origins().refuse(desk.guide, b"Tabs.")
    marks = ProvenanceLog(log)
    for number in range(1_000):
        marks.add(ProvenanceNote(1.0, float(number)), oldest=1e12)
    assert log.stat().st_size < 20_000
    assert not desk.speaks()
