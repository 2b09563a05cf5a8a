"""Route follow-up messages to the chat or session that started the work."""

from collections.abc import Sequence

import msgspec
from msgspec import Raw

from hermes.gateway.followups import chat_followup, current_scope, is_chat
from hermes.gateway.messages import INBOX
from hermes.ports.bus import Bus
from hermes.ports.store import EnqueueItem, QueueItem, Store, Write
from hermes.schema.messages import Text, Trust, User
from hermes.schema.scope import Role, Scope

MAX_SESSIONS = 10_000
"""How many sessions `has_followups` knows; elsewhere the next turn finds the message."""


SESSION_FOLLOWUPS = "followups"
"""Wake-ups for follow-ups in sessions that are not chats, by session."""


class FollowupMessage(User, frozen=True, tag="user"):
    """A message that starts a turn, with the role of the requester of the work."""

    role: Role = Role.OWNER
    news: bool = False


class FollowupRouter:
    """Implements `hermes.ports.message_sender.Followups`.

    A chat gets the message as if it had been sent there. In any other session it is an inbox
    item that the next turn picks up before it answers.
    """

    def __init__(self, store: Store, bus: Bus) -> None:
        self._store = store
        self._bus = bus
        self._sessions: dict[str, None] = {}

    async def current_scope(self, scope: Scope) -> Scope:
        """The scope in which the session continues now, such as after a reset."""
        return await current_scope(self._store, scope)

    def rows(self, scope: Scope, key: str, text: str) -> Sequence[Write]:
        if is_chat(scope):
            return [chat_followup(scope, key, text)]
        message = FollowupMessage(key, (Text(text),), Trust.DATA, scope.role, news=True)
        body = Raw(msgspec.json.encode(message))
        return [EnqueueItem(QueueItem(key=key, queue=INBOX, topic=scope.session, body=body))]

    def wake(self, scope: Scope) -> None:
        if is_chat(scope):
            self._bus.wake(INBOX, scope.key)
            return
        # Keep the most recent session last: the oldest ones are dropped first.
        self._sessions.pop(scope.session, None)
        self._sessions[scope.session] = None
        while len(self._sessions) > MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        self._bus.wake(SESSION_FOLLOWUPS, scope.session)

    async def has_followups(self, session: str) -> bool:
        """Whether a session has a follow-up that no turn has picked up yet."""
        if session not in self._sessions:
            return False
        if session in await self._store.queues.topics(INBOX):
            return True
        self._sessions.pop(session, None)
        return False
