"""`gateway status` right after a start waits a moment for platforms that connect, not longer."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hermes.cli.verbs.gateway.showing import GLANCE, MOMENT, settled
from hermes.config.home import Home
from hermes.daemon.record import Record
from hermes.daemon.standing import Standing
from hermes.daemon.state import GatewayState, PlatformState

BEGUN = datetime(2026, 3, 1, tzinfo=UTC)


class Looked:
    """A gateway whose platform connects after some looks; its clock moves when somebody waits."""

    def __init__(self, connects: int, begun: datetime = BEGUN) -> None:
        self.looks = 0
        self.now = BEGUN
        self._connects = connects
        self._begun = begun

    def look(self) -> Standing:
        self.looks += 1
        state = "connected" if self.looks > self._connects else "connecting"
        told = {"telegram": PlatformState(state=state, updated_at=self._begun)}
        home = Home(Path("/nowhere"), Path("/nowhere"))
        return Standing(home=home, record=Record(pid=1), state=GatewayState(platforms=told))

    def sleep(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def __call__(self) -> str:
        standing = settled(self.look, lambda: self.now, self.sleep)
        return standing.platforms["telegram"].state


@pytest.mark.parametrize(("connects", "looks"), [(0, 1), (1, 2), (7, 8)])
def test_it_waits_until_what_connects_is_connected(connects: int, looks: int) -> None:
    one = Looked(connects)
    assert (one(), one.looks) == ("connected", looks)


def test_it_waits_only_for_a_moment() -> None:
    one = Looked(1000)
    assert one() == "connecting"
    assert one.looks <= MOMENT / GLANCE + 1


def test_what_has_been_connecting_for_long_is_shown_at_once() -> None:
    one = Looked(1000, BEGUN - timedelta(seconds=MOMENT))
    assert (one(), one.looks) == ("connecting", 1)
