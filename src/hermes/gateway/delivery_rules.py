"""When a delivery is retried or given up: rules, and addresses that cannot be reached."""

from datetime import timedelta
from typing import Literal, TypeAlias

from msgspec import Struct, structs

from hermes.gateway.messages import OutboxMessage, address_of_topic, topic_of
from hermes.gateway.shutdown_budget import SEND_SECONDS
from hermes.kit.retry import Backoff
from hermes.ports.chat_records import ForgetUnreachable, MarkUnreachable, UnreachableChat
from hermes.ports.store import QueueItem, Store
from hermes.schema.scope import Address

MAX_TARGETS = 10_000
QuotePolicy: TypeAlias = Literal["off", "first", "all"]


class PendingDelivery(Struct):
    """An item to deliver; if it was `sent_separately`, its progress message needs a final edit.

    `to`: its address as the channel knows it. `attempts`: those that count. `counted`: whether the
    rate limiter has counted its next post.
    """

    item: QueueItem
    reply: OutboxMessage
    to: Address
    attempts: int
    sent_separately: bool = False
    counted: bool = False


class DeliveryRules(Struct, frozen=True, kw_only=True):
    """Limits for retries and calls.

    `max_unsure`: how often a post with an unknown outcome is repeated. `send_timeout` and
    `edit_timeout` are in seconds. `replies`: which chunks quote the question.
    """

    attempts: int = 8
    max_unsure: int = 2
    send_timeout: float = SEND_SECONDS
    edit_timeout: float = 10.0
    stale: timedelta = timedelta(hours=24)
    concurrency: int = 64
    backoff: Backoff = Backoff(base=1.0, cap=120.0)
    replies: QuotePolicy = "first"


class DeadTargets:
    """Addresses that a platform has permanently rejected, until a message comes from them.

    Keeps the newest; `reasons` has them by topic.
    """

    def __init__(self, store: Store, max_targets: int = MAX_TARGETS) -> None:
        self._store = store
        self._max_targets = max_targets
        self.reasons: dict[str, str] = {}

    async def load(self) -> None:
        for chat in await self._store.chats.unreachable(self._max_targets):
            self.reasons[chat.topic] = chat.reason

    def all(self) -> dict[Address, str]:
        return {address_of_topic(topic): reason for topic, reason in self.reasons.items()}

    async def mark_dead(self, address: Address, reason: str) -> None:
        topic = topic_of(address)
        self.reasons.pop(topic, None)
        self.reasons[topic] = reason
        await self._store.commit(MarkUnreachable(UnreachableChat(topic, reason)))
        while len(self.reasons) > self._max_targets:
            await self._forget(next(iter(self.reasons)))

    async def revive(self, address: Address) -> None:
        """Forget the rejection, because a message came from the address.

        One from a thread also shows that the chat itself can be reached.
        """
        for topic in {topic_of(address), topic_of(structs.replace(address, thread=None))}:
            if topic in self.reasons:
                await self._forget(topic)

    async def _forget(self, topic: str) -> None:
        del self.reasons[topic]
        await self._store.commit(ForgetUnreachable(topic))
