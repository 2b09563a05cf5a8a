"""Stored facts about chats: where sessions continue, keys, questions, quotas."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol, TypeAlias

from msgspec import Raw, Struct

from hermes.schema.scope import OWNER, Address, Requester, Role


class SessionLocation(Struct, frozen=True, kw_only=True):
    """Where a session continues after it was resumed in another chat."""

    session: str
    key: str
    address: Address
    principal: str = OWNER
    role: Role = Role.OWNER
    asker: Requester = Requester()


class PutSessionLocation(Struct, frozen=True):
    location: SessionLocation


class SessionKeyRecord(Struct, frozen=True, kw_only=True):
    """A session key, the address it was first used at, and the chat it belongs to, as JSON."""

    key: str
    topic: str
    chat: Raw


class AddSessionKey(Struct, frozen=True):
    """Store the key; the commit fails with `StateConflict` if a chat already has it."""

    record: SessionKeyRecord


class PutQuestionPost(Struct, frozen=True):
    """A post that asks a question. Platforms number posts per chat, not per thread."""

    address: Address
    post: str
    question: str
    at: datetime


class AddStartedTurn(Struct, frozen=True):
    """A turn that counts against the quota of a principal."""

    message: str
    principal: str
    at: datetime


class UnreachableChat(Struct, frozen=True):
    """A chat, as a topic, that its platform has permanently rejected."""

    topic: str
    reason: str


class MarkUnreachable(Struct, frozen=True):
    chat: UnreachableChat


class ForgetUnreachable(Struct, frozen=True):
    topic: str


ChatWrite: TypeAlias = (
    PutSessionLocation
    | AddSessionKey
    | PutQuestionPost
    | AddStartedTurn
    | MarkUnreachable
    | ForgetUnreachable
)


class ChatRecords(Protocol):
    async def location(self, session: str) -> SessionLocation | None: ...

    async def session_key(self, key: str) -> SessionKeyRecord | None: ...

    async def keys_at(self, topic: str, limit: int) -> Sequence[str]:
        """The keys first used at an address, newest first."""
        ...

    async def question_in(self, address: Address, post: str) -> str:
        """The id of the question that a post asks, or ""."""
        ...

    async def forget_question_posts(self, before: datetime) -> int: ...

    async def started_turns(self, principal: str, limit: int) -> Sequence[datetime]:
        """When the newest turns of a principal started, in chronological order."""
        ...

    async def forget_started_turns(self, before: datetime) -> int: ...

    async def unreachable(self, limit: int) -> Sequence[UnreachableChat]:
        """The chats that were marked, oldest first."""
        ...
