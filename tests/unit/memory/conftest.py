from pathlib import Path

import pytest

from hermes.changes.ledger import Ledger
from hermes.memory.entries import Limits
from hermes.memory.notebook import Notebook
from hermes.testing.clock import FakeClock


@pytest.fixture
def notebook(home: Path, ledger: Ledger, clock: FakeClock) -> Notebook:
    return Notebook(home, ledger, Limits(), clock)
