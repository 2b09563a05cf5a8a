"""Who asked for a restart in a chat and waits for its end: on disk, so that they are told."""

from collections.abc import Collection
from datetime import timedelta

from msgspec import Raw

from hermes.gateway.messages import OutboxMessage, address_of_topic, outbox_post, topic_of
from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
from hermes.ports.store import CompleteItem, QueueItem, Store
from hermes.schema.scope import Address

RESTARTS = "restarts"
BACK_ONLINE = "Hermes is back."
_MAX_CLAIMED = 100


async def request_restart_notice(store: Store, address: Address) -> None:
    """To be called before the restart is asked for."""
    topic = topic_of(address)
    await store.queues.put(
        QueueItem(key=new_id("back"), lane=RESTARTS, topic=topic, body=Raw(b"{}"))
    )


async def post_restart_notices(
    store: Store, clock: Clock, homes: Collection[Address], channels: Collection[str]
) -> None:
    """Tell these homes and whoever asked, each place once, as far as it is on these channels.

    On others nobody would deliver it, or nobody wants to hear of it.
    """
    if not homes and not await store.queues.topics(RESTARTS):
        return
    rows = await store.queues.claim(RESTARTS, None, "the start", timedelta(0), _MAX_CLAIMED)
    places = dict.fromkeys([*homes, *(address_of_topic(row.topic) for row in rows)])
    now = clock.now()
    posts = [
        outbox_post(new_id("back"), OutboxMessage(address=place, text=BACK_ONLINE, at=now))
        for place in places
        if place.channel in channels
    ]
    await store.commit(*posts, *(CompleteItem(row.key) for row in rows))
