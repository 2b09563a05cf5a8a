import pytest

from hermes.store.sqlite import SqliteStore
from hermes.testing.clock import FakeClock
from support.approvals import ApprovalHarness


@pytest.fixture
def harness(store: SqliteStore, clock: FakeClock) -> ApprovalHarness:
    return ApprovalHarness(store, clock)
