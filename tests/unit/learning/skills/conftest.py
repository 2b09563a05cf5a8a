from pathlib import Path

import pytest

from hermes.learning.ledger import Ledger
from hermes.learning.skills.catalog import SkillCatalog
from hermes.learning.skills.editor import SkillEditor
from hermes.learning.skills.usage import SkillUsageLog
from hermes.testing.clock import FakeClock


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    (folder / "skills").mkdir(parents=True)
    return folder


@pytest.fixture
def catalog(home: Path) -> SkillCatalog:
    return SkillCatalog(home / "skills", snapshot=home / ".skills_prompt_snapshot.json")


@pytest.fixture
def usage(home: Path, clock: FakeClock) -> SkillUsageLog:
    return SkillUsageLog(home / "skills", clock)


@pytest.fixture
def editor(
    home: Path, catalog: SkillCatalog, usage: SkillUsageLog, ledger: Ledger, clock: FakeClock
) -> SkillEditor:
    return SkillEditor(home, catalog, usage, ledger, clock)
