"""Route the results of background work to the session or chat that started it."""

from collections.abc import Sequence

import msgspec
from msgspec import Raw, Struct

from hermes.gateway.followups import chat_followup, current_scope, is_chat
from hermes.gateway.messages import INBOX
from hermes.ports.bus import Bus
from hermes.ports.store import EnqueueItem, QueueItem, Store, Write
from hermes.schema.messages import Text, Trust, User
from hermes.schema.scope import Role, Scope

MAX_SESSIONS = 10_000
"""Maximum sessions that `has_followups` remembers; others see the message in their next turn."""
SESSION_FOLLOWUPS = "followups"
"""Wake-ups for follow-ups in sessions that are not chats, by session."""


_MAX_LEFT = 10_000


class _InboxBody(Struct):
    """The part of any inbox item that tells a follow-up from a message."""

    news: bool = False


class FollowupMessage(User, frozen=True, tag="user"):
    """A message with the role of the requester of the work; with `news` it may start a turn."""

    role: Role = Role.OWNER
    news: bool = False


async def left_followups(store: Store) -> Sequence[str]:
    """The session of each stored follow-up that no turn has picked up yet, except in chats."""
    items = await store.queues.waiting(INBOX, _MAX_LEFT)
    return [item.topic for item in items if _is_news(item)]


def _is_news(item: QueueItem) -> bool:
    try:
        return msgspec.json.decode(item.body, type=_InboxBody).news
    except msgspec.DecodeError:
        return False


class FollowupRouter:
    """Implements `hermes.ports.message_sender.Followups`.

    A chat gets the message as if it had been sent there. In any other session it is an inbox
    item that the next turn picks up before it answers.
    """

    def __init__(self, store: Store, bus: Bus) -> None:
        self._store = store
        self._bus = bus
        self._wakeups: dict[str, object] = {}

    async def current_scope(self, scope: Scope) -> Scope:
        """The scope in which the session continues now, such as after a reset."""
        return await current_scope(self._store, scope)

    def rows(
        self, scope: Scope, key: str, text: str, *, trust: Trust = Trust.DATA
    ) -> Sequence[Write]:
        if is_chat(scope):
            return [chat_followup(scope, key, text, trust)]
        message = FollowupMessage(key, (Text(text),), trust, scope.role, news=True)
        body = Raw(msgspec.json.encode(message))
        return [EnqueueItem(QueueItem(key=key, queue=INBOX, topic=scope.session, body=body))]

    def wake(self, scope: Scope) -> None:
        if is_chat(scope):
            self._bus.wake(INBOX, scope.key)
            return
        self._remember(scope.session)
        self._bus.wake(SESSION_FOLLOWUPS, scope.session)

    async def find_left(self, session: str) -> None:
        """Remember the follow-ups of a session that another process stored."""
        if session in await left_followups(self._store):
            self._remember(session)

    def _remember(self, session: str) -> None:
        # Keep the most recent session last: the oldest ones are dropped first.
        self._wakeups.pop(session, None)
        self._wakeups[session] = object()
        while len(self._wakeups) > MAX_SESSIONS:
            del self._wakeups[next(iter(self._wakeups))]

    async def has_followups(self, session: str) -> bool:
        """Whether a session has a follow-up that no turn has picked up yet."""
        wakeup = self._wakeups.get(session)
        if wakeup is None:
            return False
        if session in await self._store.queues.topics(INBOX):
            return True
        if self._wakeups.get(session) is wakeup:  # otherwise, one arrived meanwhile
            del self._wakeups[session]
        return False
