"""What is known about a room is asked for again only if it has changed."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw

from hermes.channels.matrix.objects import Event
from hermes.channels.matrix.position import Position
from hermes.channels.matrix.rooms import RoomDirectory
from hermes.testing.clock import FakeClock

ROOM = "!room:test"


class FakeState:
    """A homeserver with one room; `asked` counts the requests for its state."""

    def __init__(self, *events: Event) -> None:
        self.events = events
        self.asked = 0

    async def state(self, room: str) -> Sequence[Event]:
        self.asked += 1
        return self.events


def member(name: str, membership: str = "join") -> Event:
    content = {"membership": membership, "displayname": name}
    return Event(
        kind="m.room.member", state_key="@ann:test", content=Raw(msgspec.json.encode(content))
    )


@pytest.mark.parametrize(
    ("event", "asked"),
    [
        (member("Ann"), 1),
        (member("Anne"), 2),
        (member("Ann", "invite"), 2),
        (member("Ann", "leave"), 2),
        (Event(kind="m.room.member", state_key="@ann:test", content=Raw(b"[]")), 2),
        (Event(kind="m.room.name", state_key="", content=Raw(b'{"name":"Kitchen"}')), 2),
    ],
)
async def test_only_a_change_discards_what_is_known(
    tmp_path: Path, event: Event, asked: int
) -> None:
    """Syncs repeat the members who have written."""
    server = FakeState(member("Ann"))
    position = Position(tmp_path / "position.json")
    rooms = RoomDirectory(server, FakeClock(), position, ttl=60.0)  # pyright: ignore[reportArgumentType]
    await rooms.facts(ROOM)
    rooms.observe(ROOM, [event])
    await rooms.facts(ROOM)
    assert server.asked == asked
