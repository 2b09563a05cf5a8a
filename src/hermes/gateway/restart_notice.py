"""Notify chats after a restart: those that asked for it, and the home channels."""

from collections.abc import Collection
from datetime import timedelta

from msgspec import Raw

from hermes.gateway.messages import OutboxMessage, address_of_topic, outbox_post, topic_of
from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
from hermes.ports.store import CompleteItem, QueueItem, Store
from hermes.schema.scope import Address

RESTARTS = "restarts"
BACK_ONLINE = "Hermes is back online."
_MAX_CLAIMED = 100


async def request_restart_notice(store: Store, address: Address) -> None:
    """Store the request; call before restarting."""
    topic = topic_of(address)
    await store.queues.put(
        QueueItem(key=new_id("back"), lane=RESTARTS, topic=topic, body=Raw(b"{}"))
    )


async def post_restart_notices(
    store: Store, clock: Clock, homes: Collection[Address], channels: Collection[str]
) -> None:
    """Notify the homes and the requesting chats once each, on these channels only.

    Other channels cannot deliver it or do not want it.
    """
    if not homes and not await store.queues.topics(RESTARTS):
        return
    rows = await store.queues.claim(RESTARTS, None, "the start", timedelta(0), _MAX_CLAIMED)
    addresses = dict.fromkeys([*homes, *(address_of_topic(row.topic) for row in rows)])
    now = clock.now()
    posts = [
        outbox_post(new_id("back"), OutboxMessage(address=address, text=BACK_ONLINE, at=now))
        for address in addresses
        if address.channel in channels
    ]
    await store.commit(*posts, *(CompleteItem(row.key) for row in rows))
