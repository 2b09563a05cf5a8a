"""The bus of one process follows the contract."""

import pytest

from hermes.bus.memory import MemoryBus
from hermes.ports.bus import Bus
from hermes.testing.contracts.bus import BusContract


class TestMemoryBus(BusContract):
    @pytest.fixture
    def bus(self) -> Bus:
        return MemoryBus()
