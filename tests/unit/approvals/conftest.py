import pytest

from desks import House
from hermes.store.sqlite import SqliteStore
from hermes.testing.clock import FakeClock


@pytest.fixture
def house(store: SqliteStore, clock: FakeClock) -> House:
    return House(store, clock)
