from pathlib import Path

import pytest

from hermes.changes.ledger import Ledger
from hermes.skills.editing import Editor
from hermes.skills.shelf import Shelf
from hermes.skills.usage import Usage
from hermes.testing.clock import FakeClock


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    (folder / "skills").mkdir(parents=True)
    return folder


@pytest.fixture
def shelf(home: Path) -> Shelf:
    return Shelf(home / "skills", snapshot=home / ".skills_prompt_snapshot.json")


@pytest.fixture
def usage(home: Path, clock: FakeClock) -> Usage:
    return Usage(home / "skills", clock)


@pytest.fixture
def editor(home: Path, shelf: Shelf, usage: Usage, ledger: Ledger, clock: FakeClock) -> Editor:
    return Editor(home, shelf, usage, ledger, clock)
