"""`gateway status` waits briefly for platforms that are connecting."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hermes.app.service.lock import ProcessRecord
from hermes.app.service.status import GatewayState, GatewayStatus, PlatformState
from hermes.cli.verbs.gateway.status import POLL_INTERVAL, SETTLE_SECONDS, wait_until_settled
from hermes.config.home import Home

BEGUN = datetime(2026, 3, 1, tzinfo=UTC)


class FakeGateway:
    """A gateway whose platform connects after some calls; `sleep` advances its clock."""

    def __init__(self, connects: int, begun: datetime = BEGUN) -> None:
        self.looks = 0
        self.now = BEGUN
        self._connects = connects
        self._begun = begun

    def look(self) -> GatewayStatus:
        self.looks += 1
        state = "connected" if self.looks > self._connects else "connecting"
        platforms = {"telegram": PlatformState(state=state, updated_at=self._begun)}
        home = Home(Path("/nowhere"), Path("/nowhere"))
        return GatewayStatus(
            home=home, record=ProcessRecord(pid=1), state=GatewayState(platforms=platforms)
        )

    def sleep(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def __call__(self) -> str:
        standing = wait_until_settled(self.look, lambda: self.now, self.sleep)
        return standing.platforms["telegram"].state


@pytest.mark.parametrize(("connects", "looks"), [(0, 1), (1, 2), (7, 8)])
def test_status_waits_until_platforms_are_connected(connects: int, looks: int) -> None:
    one = FakeGateway(connects)
    assert (one(), one.looks) == ("connected", looks)


def test_status_stops_waiting_after_a_moment() -> None:
    one = FakeGateway(1000)
    assert one() == "connecting"
    assert one.looks <= SETTLE_SECONDS / POLL_INTERVAL + 1


def test_long_connecting_platform_is_not_waited_for() -> None:
    one = FakeGateway(1000, BEGUN - timedelta(seconds=SETTLE_SECONDS))
    assert (one(), one.looks) == ("connecting", 1)
