"""The stored time stays before everything that is not handled yet."""

from datetime import timedelta
from pathlib import Path

import msgspec
from msgspec import Raw

from hermes.channels.discord.gateway_connection import GatewayEvent
from hermes.channels.discord.position import EventLog, Position
from hermes.channels.state_file import StateFile
from hermes.testing.clock import FakeClock


def event(sequence: int) -> GatewayEvent:
    return GatewayEvent(session="s", sequence=sequence, name="MESSAGE_CREATE", data=Raw(b"{}"))


async def test_replayed_events_are_as_old_as_the_outage(tmp_path: Path) -> None:
    """They are searched for since then if the session is lost before all are handled."""
    clock = FakeClock()
    before = clock.now() - timedelta(minutes=5)
    stored = Position(session="s", url="wss://x.org", sequence=1, handled_until=before)
    path = tmp_path / "discord.json"
    path.write_bytes(msgspec.json.encode(stored))
    events = EventLog(StateFile(path, Position), clock)
    await events.load()
    events.began(event(2))
    events.ended(event(2))
    assert (events.position.sequence, events.position.handled_until) == (2, before)
    events.began(event(3))
    events.caught_up()
    events.began(event(4))
    events.ended(event(4))
    assert (events.position.sequence, events.position.handled_until) == (2, before)
    events.ended(event(3))
    assert (events.position.sequence, events.position.handled_until) == (4, clock.now())
