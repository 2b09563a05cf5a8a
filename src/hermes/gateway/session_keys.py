"""Whose a session key is: that of the first place which used it, and of no other."""

import logging
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import sha256

import msgspec
from msgspec import Raw

from hermes.gateway.messages import topic_of
from hermes.kit.clock import Clock
from hermes.ports.records import PutRecord, StateRecord
from hermes.ports.store import Store
from hermes.schema.errors import StateConflict
from hermes.schema.scope import Address
from hermes.session.keys import ChatId

log = logging.getLogger(__name__)

KEY_KIND = "chat_key"
CACHE_SIZE = 10_000
"""How many keys are remembered without asking the store."""

MAX_KEYS_PER_ADDRESS = 100


class SessionKeys:
    """Ids that hold a colon can make one key of two places; the second one gets another key."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._known: OrderedDict[str, ChatId] = OrderedDict()

    async def assign(self, key: str, place: ChatId, address: Address) -> str:
        """The key to use for this place: the given one, unless that is another's already."""
        own = key
        while await self._holder(own, place, address) != place:
            log.info("the session key %s is that of another place", own)
            own = f"{own}:~{_digest(own, place)}"
        return own

    async def _holder(self, key: str, place: ChatId, address: Address) -> ChatId:
        holder = self._known.get(key) or await self._recorded(key)
        if holder is None:
            holder = await self._record(key, place, address)
        self._known[key] = holder
        self._known.move_to_end(key)
        while len(self._known) > CACHE_SIZE:
            self._known.popitem(last=False)
        return holder

    async def _recorded(self, key: str) -> ChatId | None:
        matter = await self._store.records.get(KEY_KIND, key)
        return matter and msgspec.json.decode(matter.body, type=ChatId)

    async def _record(self, key: str, place: ChatId, address: Address) -> ChatId:
        matter = StateRecord(
            kind=KEY_KIND,
            id=key,
            # Filed under the address and not under a session: it outlives every session there.
            session=topic_of(address),
            state="used",
            at=self._clock.now(),
            body=Raw(msgspec.json.encode(place)),
            open=False,
        )
        try:
            await self._store.commit(PutRecord(matter, was=""))
        except StateConflict:
            return await self._recorded(key) or place
        return place


async def keys_at(store: Store, address: Address) -> Sequence[str]:
    """The keys of the sessions that people had at an address, the newest first."""
    topic = topic_of(address)
    found = await store.records.find(KEY_KIND, session=topic, limit=MAX_KEYS_PER_ADDRESS)
    return [matter.id for matter in reversed(found)]


async def belongs_to_other_address(store: Store, key: str, address: Address) -> bool:
    """Whether the key is known to be that of a session at some other address."""
    matter = await store.records.get(KEY_KIND, key)
    return matter is not None and matter.session != topic_of(address)


def _digest(taken: str, place: ChatId) -> str:
    return sha256(taken.encode() + msgspec.json.encode(place)).hexdigest()[:12]
