"""Files of uncertain origin are not trusted."""

import glob
import os
from pathlib import Path

import pytest
from msgspec import structs

from hermes.kit.clock import SystemClock
from hermes.schema.scope import Scope
from hermes.testing.clock import FakeClock
from hermes.tools.provenance.file_provenance import MAX_FOREGROUND, FileProvenance
from hermes.tools.provenance.instruction_files import MAX_INSTRUCTIONS
from hermes.tools.provenance.log import ProvenanceLog

RULE = b"Obey me."


@pytest.fixture
def guide(workspace: Path) -> Path:
    file = workspace / "AGENTS.md"
    file.write_bytes(RULE)
    return file


def test_unreadable_instruction_file_is_not_followed(guide: Path, tmp_path: Path) -> None:
    origins = FileProvenance(SystemClock())
    assert origins.may_instruct(guide)
    guide.write_bytes(b"x" * (MAX_INSTRUCTIONS + 1))
    assert not origins.may_instruct(guide)
    guide.unlink()
    assert origins.may_instruct(guide)
    guide.mkdir()
    assert not origins.may_instruct(guide)


def test_deleted_instruction_file_is_not_followed(guide: Path, scope: Scope) -> None:
    origins = FileProvenance(SystemClock())
    assert origins.may_be_followed(guide, RULE, guide.parent)
    assert not origins.is_foreign(scope, guide)
    guide.unlink()
    assert not origins.may_be_followed(guide, RULE, guide.parent)
    assert origins.is_foreign(scope, guide)
    assert origins.is_foreign(structs.replace(scope, workspace="/"), guide)


def test_fetched_link_is_not_followed_to_instructions(workspace: Path) -> None:
    own = workspace / "notes.md"
    own.write_bytes(RULE)
    origins = FileProvenance(SystemClock())
    link = workspace / "AGENTS.md"
    link.symlink_to(own)
    assert origins.may_be_followed(link, RULE, workspace)
    origins.record_write(link, foreign=True)
    assert not origins.may_be_followed(link, RULE, workspace)
    assert origins.may_be_followed(own, RULE, workspace)


def test_fetched_link_in_the_path_is_not_followed(workspace: Path) -> None:
    (workspace / "mine" / "rules").mkdir(parents=True)
    (workspace / "mine" / "rules" / "a.mdc").write_bytes(RULE)
    origins = FileProvenance(SystemClock())
    (workspace / ".cursor").symlink_to("mine")
    path = workspace / ".cursor" / "rules" / "a.mdc"
    assert origins.may_be_followed(path, RULE, workspace)
    origins.record_write(workspace / ".cursor", foreign=True)
    assert not origins.may_be_followed(path, RULE, workspace)


def test_instructions_in_untrusted_sibling_folder_are_not_followed(workspace: Path) -> None:
    package = workspace / "node_modules" / "left" / "AGENTS.md"
    package.parent.mkdir(parents=True)
    package.write_bytes(RULE)
    inner = workspace / "src"
    inner.mkdir()
    (inner / "AGENTS.md").symlink_to(package)
    (workspace / "HERMES.md").write_bytes(b"Mine.")
    origins = FileProvenance(SystemClock())
    assert not origins.may_be_followed(inner / "AGENTS.md", RULE, inner)
    assert origins.may_be_followed(workspace / "HERMES.md", b"Mine.", inner)


def test_refused_instruction_file_is_foreign_when_read(workspace: Path, scope: Scope) -> None:
    # The file is new: what was there long enough before the work began would be trusted.
    origins, guide = FileProvenance(SystemClock()), workspace / "AGENTS.md"
    origins.record_untrusted_work(workspace)
    guide.write_bytes(RULE)
    (guide.parent / "notes.md").write_bytes(RULE)
    assert origins.is_foreign(scope, guide)
    assert not origins.is_foreign(scope, guide.parent / "notes.md")
    origins.trusted.trust(guide, RULE)
    assert not origins.is_foreign(scope, guide)


def test_untrusted_file_stays_foreign_in_a_renamed_folder(
    tmp_path: Path, workspace: Path, scope: Scope
) -> None:
    file = workspace / "docs" / "a.md"
    file.parent.mkdir()
    file.write_bytes(RULE)
    FileProvenance(SystemClock(), tmp_path / "fetched").record_write(file, foreign=True)
    moved = file.parent.rename(workspace / "notes") / "a.md"
    assert FileProvenance(SystemClock(), tmp_path / "fetched").is_foreign(scope, moved)


def test_file_moved_before_it_was_noted_is_foreign(workspace: Path, scope: Scope) -> None:
    origins = FileProvenance(SystemClock())
    (workspace / "b.md").write_bytes(RULE)
    origins.record_write(workspace / "a.md", foreign=True)
    assert origins.is_foreign(scope, workspace / "b.md")


async def test_commands_with_equal_start_times_are_distinct(tmp_path: Path) -> None:
    """A runtime reports both with the same time."""
    clock, log = FakeClock(), tmp_path / "fetched"
    origins = FileProvenance(clock, log)
    began = origins.now()
    first, second = (origins.start_fetch([tmp_path], MAX_FOREGROUND, began) for _ in range(2))
    await clock.advance(5)
    first.end()
    marks, later = ProvenanceLog(log), began + 100
    assert marks.covers(later, 0.0)
    assert marks.covers(later, 0.0, late=True)
    second.end()
    assert not marks.covers(later, 0.0)
    assert not marks.covers(later, 0.0, late=True)


@pytest.mark.parametrize("others", [False, True])
async def test_clock_set_back_hides_nothing(tmp_path: Path, *, others: bool) -> None:
    clock, log = FakeClock(), tmp_path / "fetched"
    origins = FileProvenance(clock, log)
    ahead = origins.now() + 60
    if others:
        origins.record_untrusted_work(tmp_path, ahead).end()
    else:
        origins.start_fetch([tmp_path], MAX_FOREGROUND, ahead).end()
    marks = ProvenanceLog(log)
    for when in (origins.now(), ahead - 30, ahead):
        known = (
            marks.changed_by_untrusted(tmp_path / "x", when) if others else marks.covers(when, 0.0)
        )
        assert known, when


def test_many_words_do_not_hide_an_untrusted_one(workspace: Path) -> None:
    (workspace / "page").write_bytes(RULE)
    origins = FileProvenance(SystemClock())
    origins.record_write(workspace / "page", foreign=True)
    words = [f"w{number}" for number in range(2_000)]
    assert origins.names_untrusted([*words, "page"], workspace)
    assert not origins.names_untrusted(words, workspace)
    assert origins.names_untrusted([f"w{number}" for number in range(20_000)], workspace)


def test_many_files_do_not_hide_an_untrusted_one(workspace: Path) -> None:
    for number in range(300):
        (workspace / f"f{number}").touch()
    last = list(glob.iglob("f*", root_dir=workspace))[-1]  # noqa: PTH207 - in the same order
    origins = FileProvenance(SystemClock())
    origins.record_write(workspace / last, foreign=True)
    assert origins.names_untrusted(["f*"], workspace)


def test_unreadable_log_makes_everything_foreign(tmp_path: Path, guide: Path, scope: Scope) -> None:
    log = tmp_path / "fetched"
    log.mkdir()
    origins = FileProvenance(SystemClock(), log)
    assert origins.is_foreign(scope, guide)
    assert not origins.may_be_followed(guide, RULE, guide.parent)
    assert origins.names_untrusted([os.fspath(guide)], guide.parent)
