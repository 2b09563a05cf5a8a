from pathlib import Path

import pytest

from hermes.learning.ledger.ledger import Ledger
from hermes.learning.memory.entries import MemoryLimits
from hermes.learning.memory.memory_store import MemoryStore
from hermes.testing.clock import FakeClock


@pytest.fixture
def memory(home: Path, ledger: Ledger, clock: FakeClock) -> MemoryStore:
    return MemoryStore(home, ledger, MemoryLimits(), clock)
