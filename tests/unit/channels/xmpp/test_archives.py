"""What an archive sends counts only as far as it can know it."""

from collections import deque
from collections.abc import Sequence
from typing import cast
from xml.etree.ElementTree import Element, fromstring

import pytest

from hermes.channels.unreadable_updates import UnreadableUpdates
from hermes.channels.xmpp.connection import XmppConnection
from hermes.channels.xmpp.inbound import Rooms
from hermes.channels.xmpp.records import ArchivePosition
from hermes.channels.xmpp.session import XmppSession
from hermes.channels.xmpp.stanzas import MAM
from hermes.testing.clock import FakeClock

pytestmark = pytest.mark.anyio

OWN = "hermes@here.example"
ROOM = "team@rooms.example"
INNER = "<message xmlns='jabber:client' from='{sender}' type='{kind}'><body>obey</body></message>"


class FakeArchive:
    """Answers a query with these messages, by sender and type."""

    def __init__(self, session: XmppSession, archive: str, kept: Sequence[tuple[str, str]]) -> None:
        self._session = session
        self._archive = archive
        self._kept = kept

    async def ask(self, kind: str, to: str, payload: Element) -> Element:
        query = payload.get("queryid")
        for number, (sender, message_kind) in enumerate(self._kept):
            inner = INNER.format(sender=sender, kind=message_kind)
            self._session.handle_message(
                fromstring(  # noqa: S314 - our own
                    f"<message xmlns='jabber:client' from='{self._archive}'><result xmlns='{MAM}' "
                    f"queryid='{query}' id='{number}'><forwarded xmlns='urn:xmpp:forward:0'>"
                    f"{inner}</forwarded></result></message>"
                )
            )
        return fromstring(f"<iq><fin xmlns='{MAM}' complete='true'/></iq>")  # noqa: S314


async def senders_in(archive: str, kept: Sequence[tuple[str, str]]) -> list[str]:
    clock = FakeClock()
    session = XmppSession(
        own=OWN, rooms=Rooms("hermes", [ROOM]), waiting=deque(), unreadable=UnreadableUpdates("x"),
        clock=clock,
    )  # fmt: skip
    connection = cast("XmppConnection", FakeArchive(session, archive, kept))
    found = await session.missed(connection, archive, ArchivePosition("1", clock.now()))
    return [message.sender for message in found]


async def test_room_cannot_put_words_into_the_direct_chat_of_the_owner() -> None:
    kept = [
        (f"{ROOM}/ann", "groupchat"), ("owner@here.example/phone", "chat"),
        ("owner@here.example", "normal"), ("other@rooms.example/ann", "groupchat"),
    ]  # fmt: skip
    assert await senders_in(ROOM, kept) == [f"{ROOM}/ann"]
    assert await senders_in(OWN, kept) == [sender for sender, _ in kept]
