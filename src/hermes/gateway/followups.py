"""What ends after its turn comes back to a chat as a letter to the session there."""

import logging
from collections.abc import Callable
from datetime import datetime

import msgspec
from msgspec import Raw, Struct, structs

from hermes.gateway.messages import CHAT_KEY_PREFIX, BusyMode, InboxMessage, inbox_item
from hermes.ports.records import PutRecord, StateRecord
from hermes.ports.store import EnqueueItem, Store, Write
from hermes.schema.errors import NotFound
from hermes.schema.messages import Text, Trust, User
from hermes.schema.scope import OWNER, Address, Requester, Role, Scope

log = logging.getLogger(__name__)

LOCATION_KIND = "place"


class SessionLocation(Struct, frozen=True, kw_only=True):
    """Where a session went on when somebody took it up in another chat."""

    key: str
    address: Address
    principal: str = OWNER
    role: Role = Role.OWNER
    asker: Requester = Requester()


def is_chat(scope: Scope) -> bool:
    return scope.address is not None and scope.key.startswith(CHAT_KEY_PREFIX)


class ChatFollowups:
    """Implements `hermes.ports.followups.Later` for scopes of chats.

    It waits behind a running turn, whatever the chat does with people's own messages; several
    that wait become one turn.
    """

    def __init__(self) -> None:
        self._wake: Callable[[str], None] = _ignore_wake

    def set_wake(self, wake: Callable[[str], None]) -> None:
        """Before anything is brought: who is told that something waits for a session key."""
        self._wake = wake

    def brought(self, scope: Scope, key: str, text: str) -> list[Write]:
        if scope.address is None:
            raise ValueError("only a chat has a place that a letter can come from")
        letter = InboxMessage(
            user=User(key, (Text(text),), Trust.DATA),
            address=scope.address,
            asker=structs.replace(scope.asker, message=""),
            principal=scope.principal,
            role=scope.role,
            manner=BusyMode.COLLECT,
        )
        return [EnqueueItem(inbox_item(key, scope.key, letter))]

    def ring(self, scope: Scope) -> None:
        self._wake(scope.key)


def location_of_message(session: str, letter: InboxMessage, key: str, at: datetime) -> PutRecord:
    """To be committed with a session's move to the chat that this letter came from."""
    place = SessionLocation(
        key=key,
        address=letter.address,
        principal=letter.principal,
        role=letter.role,
        asker=structs.replace(letter.asker, message=""),
    )
    return _put(session, place, at)


def location_at(session: str, key: str, address: Address, at: datetime) -> PutRecord:
    """The same for a move that the owner makes from elsewhere."""
    return _put(session, SessionLocation(key=key, address=address), at)


def _put(session: str, place: SessionLocation, at: datetime) -> PutRecord:
    matter = StateRecord(
        kind=LOCATION_KIND,
        id=session,
        session=session,
        state="here",
        at=at,
        body=Raw(msgspec.json.encode(place)),
        open=True,
    )
    return PutRecord(matter)


async def current_scope(store: Store, scope: Scope) -> Scope:
    """The scope as its conversation goes on now.

    A session that was taken up in another chat is found there; one that has ended has left its
    place to another, which hears of it instead.
    """
    try:
        session = await store.archive_for(OWNER).get(scope.session)
    except NotFound:
        return scope
    if session.ended_at is not None or session.key in {"", scope.key}:
        return scope
    matter = await store.records.get(LOCATION_KIND, scope.session)
    if matter is None:
        return scope
    place = msgspec.json.decode(matter.body, type=SessionLocation)
    if place.key != session.key:
        return scope
    return structs.replace(
        scope,
        key=place.key,
        address=place.address,
        principal=place.principal,
        role=place.role,
        asker=place.asker,
    )


def _ignore_wake(key: str) -> None:
    log.debug("nobody answers %s here; what was brought waits", key)
