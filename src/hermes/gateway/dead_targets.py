"""Addresses that a platform has refused for good; kept on disk, and forgiven when they speak."""

from msgspec import Raw

from hermes.gateway.letters import address_in, topic_of
from hermes.kit.clock import Clock
from hermes.ports.store import Parcel, Store
from hermes.schema.scope import Address

_LANE = "gone"
MOST = 10_000


class DeadTargets:
    """One parked parcel for each; the newest are remembered when there are too many."""

    def __init__(self, store: Store, clock: Clock, most: int = MOST) -> None:
        self._store = store
        self._clock = clock
        self._most = most
        self._reasons: dict[str, str] = {}

    async def load(self) -> None:
        for parked in await self._store.lanes.parked(_LANE, self._most):
            self._reasons[parked.parcel.topic] = parked.reason

    def reason(self, address: Address) -> str | None:
        return self._reasons.get(topic_of(address))

    def all(self) -> dict[Address, str]:
        return {address_in(topic): reason for topic, reason in self._reasons.items()}

    async def bury(self, address: Address, reason: str) -> None:
        topic = topic_of(address)
        self._reasons.pop(topic, None)
        self._reasons[topic] = reason
        key = _key(topic)
        await self._store.lanes.put(Parcel(key=key, lane=_LANE, topic=topic, body=Raw(b"null")))
        await self._store.lanes.park(key, reason)
        while len(self._reasons) > self._most:
            await self._forgive(next(iter(self._reasons)), "too many others are gone")

    async def revive(self, address: Address) -> None:
        """Somebody spoke from there, so it can be reached."""
        topic = topic_of(address)
        if topic in self._reasons:
            await self._forgive(topic, "somebody spoke from there")

    async def _forgive(self, topic: str, why: str) -> None:
        del self._reasons[topic]
        await self._store.lanes.retry(_key(topic), self._clock.now(), why)


def _key(topic: str) -> str:
    return f"{_LANE}:{topic}"
