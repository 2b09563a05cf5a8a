"""How what ends after its turn comes back, whatever kind of conversation began it."""

from collections.abc import Callable, Sequence

import msgspec
from msgspec import Raw

from hermes.gateway.followups import ChatFollowups, current_scope, is_chat
from hermes.gateway.messages import INBOX
from hermes.ports.store import EnqueueItem, QueueItem, Store, Write
from hermes.schema.messages import Text, Trust, User
from hermes.schema.scope import Role, Scope

MAX_SESSIONS = 10_000
"""Sessions that somebody may still look at; in others the next turn finds what was brought."""


class FollowupMessage(User, frozen=True, tag="user"):
    """A message that a turn is begun for, with the rights of who had begun what it tells of."""

    role: Role = Role.OWNER
    news: bool = False


class FollowupRouter:
    """Implements `hermes.ports.followups.Later`.

    To a chat it is a letter. To any other conversation it is a message in the inbox of its
    session, which the next turn there takes up before it answers.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.chats = ChatFollowups()
        self._news: dict[str, None] = {}
        self._elsewhere: Callable[[Scope], None] = _ignore_wake

    def set_wake_elsewhere(self, ring: Callable[[Scope], None]) -> None:
        """Who is told when something was brought to a conversation that is no chat."""
        self._elsewhere = ring

    async def present(self, scope: Scope) -> Scope:
        """Where the conversation of a scope goes on by now."""
        return await current_scope(self._store, scope)

    def brought(self, scope: Scope, key: str, text: str) -> Sequence[Write]:
        if is_chat(scope):
            return self.chats.brought(scope, key, text)
        said = FollowupMessage(key, (Text(text),), Trust.DATA, scope.role, news=True)
        body = Raw(msgspec.json.encode(said))
        return [EnqueueItem(QueueItem(key=key, lane=INBOX, topic=scope.session, body=body))]

    def ring(self, scope: Scope) -> None:
        if is_chat(scope):
            self.chats.ring(scope)
        else:
            # The last place is of who was rung for last: those in front are forgotten first.
            self._news.pop(scope.session, None)
            self._news[scope.session] = None
            while len(self._news) > MAX_SESSIONS:
                del self._news[next(iter(self._news))]
            self._elsewhere(scope)

    async def has_news(self, session: str) -> bool:
        """Whether something was brought to a session that no turn has taken up yet."""
        if session not in self._news:
            return False
        if session in await self._store.queues.topics(INBOX):
            return True
        self._news.pop(session, None)
        return False


def _ignore_wake(scope: Scope) -> None:
    """The next turn there takes it up."""
