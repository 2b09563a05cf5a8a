from pathlib import Path

import pytest

from hermes.learning.ledger import Ledger
from hermes.learning.memory import MemoryLimits, MemoryStore
from hermes.testing.clock import FakeClock


@pytest.fixture
def memory(home: Path, ledger: Ledger, clock: FakeClock) -> MemoryStore:
    return MemoryStore(home, ledger, MemoryLimits(), clock)
