"""Assign session keys so that two chats never share one."""

import logging
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import sha256

import msgspec
from msgspec import Raw

from hermes.gateway.messages import topic_of
from hermes.kit.clock import Clock
from hermes.ports.chat_records import AddSessionKey, SessionKeyRecord
from hermes.ports.store import Store
from hermes.schema.errors import StateConflict
from hermes.schema.scope import Address
from hermes.session.keys import ChatId

log = logging.getLogger(__name__)

CACHE_SIZE = 10_000
"""How many keys are cached."""

MAX_KEYS_PER_ADDRESS = 100


class SessionKeys:
    """Binds each key to the first chat that used it.

    Platform ids may contain ":", so two different chats can produce the same key; the second chat
    then gets the key with a short hash appended.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._known: OrderedDict[str, ChatId] = OrderedDict()

    async def assign(self, key: str, chat: ChatId, address: Address) -> str:
        """Return the chat's key: the given one, unless another chat has it."""
        own = key
        while True:
            holder = self._known.get(own)
            if holder is None:
                # A key that is not known here is almost always new.
                record = SessionKeyRecord(
                    key=own, topic=topic_of(address), chat=Raw(msgspec.json.encode(chat))
                )
                try:
                    await self._store.commit(AddSessionKey(record))
                    holder = chat
                except StateConflict:
                    holder = await self._recorded(own) or chat
            self._known[own] = holder
            self._known.move_to_end(own)
            while len(self._known) > CACHE_SIZE:
                self._known.popitem(last=False)
            if holder == chat:
                return own
            log.info("session key %s already belongs to another chat", own)
            digest = sha256(own.encode() + msgspec.json.encode(chat)).hexdigest()[:12]
            own = f"{own}:~{digest}"

    async def _recorded(self, key: str) -> ChatId | None:
        record = await self._store.chats.session_key(key)
        return record and msgspec.json.decode(record.chat, type=ChatId)


async def keys_at(store: Store, address: Address) -> Sequence[str]:
    """Return the keys of sessions at an address, newest first."""
    return await store.chats.keys_at(topic_of(address), MAX_KEYS_PER_ADDRESS)


async def belongs_to_other_address(store: Store, key: str, address: Address) -> bool:
    record = await store.chats.session_key(key)
    return record is not None and record.topic != topic_of(address)
