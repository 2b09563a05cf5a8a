"""Remember addresses that a platform has permanently refused, until a message comes from them."""

from msgspec import Raw

from hermes.gateway.messages import address_of_topic, topic_of
from hermes.kit.clock import Clock
from hermes.ports.store import QueueItem, Store
from hermes.schema.scope import Address

_QUEUE = "gone"
MAX_TARGETS = 10_000


class DeadTargets:
    """Stores one parked queue item per address and keeps the newest."""

    def __init__(self, store: Store, clock: Clock, most: int = MAX_TARGETS) -> None:
        self._store = store
        self._clock = clock
        self._max_targets = most
        self._reasons: dict[str, str] = {}

    async def load(self) -> None:
        for parked in await self._store.queues.parked(_QUEUE, self._max_targets):
            self._reasons[parked.item.topic] = parked.reason

    def reason(self, address: Address) -> str | None:
        return self._reasons.get(topic_of(address))

    def all(self) -> dict[Address, str]:
        return {address_of_topic(topic): reason for topic, reason in self._reasons.items()}

    async def mark_dead(self, address: Address, reason: str) -> None:
        topic = topic_of(address)
        self._reasons.pop(topic, None)
        self._reasons[topic] = reason
        key = _key(topic)
        await self._store.queues.put(
            QueueItem(key=key, lane=_QUEUE, topic=topic, body=Raw(b"null"))
        )
        await self._store.queues.park(key, reason)
        while len(self._reasons) > self._max_targets:
            await self._forget(next(iter(self._reasons)), "too many dead targets")

    async def revive(self, address: Address) -> None:
        """Forget the refusal, because a message came from the address."""
        topic = topic_of(address)
        if topic in self._reasons:
            await self._forget(topic, "a message came from it")

    async def _forget(self, topic: str, reason: str) -> None:
        del self._reasons[topic]
        await self._store.queues.retry(_key(topic), self._clock.now(), reason)


def _key(topic: str) -> str:
    return f"{_QUEUE}:{topic}"
