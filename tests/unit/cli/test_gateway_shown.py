"""`gateway status` right after a start waits a moment for platforms that connect, not longer."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hermes.app.service.lock import ProcessRecord
from hermes.app.service.status import GatewayState, GatewayStatus, PlatformState
from hermes.cli.verbs.gateway.status import POLL_INTERVAL, SETTLE_SECONDS, wait_until_settled
from hermes.config.home import Home

BEGUN = datetime(2026, 3, 1, tzinfo=UTC)


class Looked:
    """A gateway whose platform connects after some looks; its clock moves when somebody waits."""

    def __init__(self, connects: int, begun: datetime = BEGUN) -> None:
        self.looks = 0
        self.now = BEGUN
        self._connects = connects
        self._begun = begun

    def look(self) -> GatewayStatus:
        self.looks += 1
        state = "connected" if self.looks > self._connects else "connecting"
        told = {"telegram": PlatformState(state=state, updated_at=self._begun)}
        home = Home(Path("/nowhere"), Path("/nowhere"))
        return GatewayStatus(
            home=home, record=ProcessRecord(pid=1), state=GatewayState(platforms=told)
        )

    def sleep(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def __call__(self) -> str:
        standing = wait_until_settled(self.look, lambda: self.now, self.sleep)
        return standing.platforms["telegram"].state


@pytest.mark.parametrize(("connects", "looks"), [(0, 1), (1, 2), (7, 8)])
def test_it_waits_until_what_connects_is_connected(connects: int, looks: int) -> None:
    one = Looked(connects)
    assert (one(), one.looks) == ("connected", looks)


def test_it_waits_only_for_a_moment() -> None:
    one = Looked(1000)
    assert one() == "connecting"
    assert one.looks <= SETTLE_SECONDS / POLL_INTERVAL + 1


def test_what_has_been_connecting_for_long_is_shown_at_once() -> None:
    one = Looked(1000, BEGUN - timedelta(seconds=SETTLE_SECONDS))
    assert (one(), one.looks) == ("connecting", 1)
