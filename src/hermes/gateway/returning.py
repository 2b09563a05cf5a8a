"""Who asked for a restart in a chat and waits for its end: on disk, so that they are told."""

from collections.abc import Collection
from datetime import timedelta

from msgspec import Raw

from hermes.gateway.letters import Reply, address_in, post_reply, topic_of
from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
from hermes.ports.store import Done, Parcel, Store
from hermes.schema.scope import Address

RESTARTS = "restarts"
BACK = "Hermes is back."
_MOST = 100


async def await_return(store: Store, address: Address) -> None:
    """To be called before the restart is asked for."""
    topic = topic_of(address)
    await store.lanes.put(Parcel(key=new_id("back"), lane=RESTARTS, topic=topic, body=Raw(b"{}")))


async def say_back(
    store: Store, clock: Clock, homes: Collection[Address], channels: Collection[str]
) -> None:
    """Tell these homes and whoever asked, each place once, as far as it is on these channels.

    On others nobody would deliver it, or nobody wants to hear of it.
    """
    if not homes and not await store.lanes.topics(RESTARTS):
        return
    rows = await store.lanes.claim(RESTARTS, None, "the start", timedelta(0), _MOST)
    places = dict.fromkeys([*homes, *(address_in(row.topic) for row in rows)])
    now = clock.now()
    posts = [
        post_reply(new_id("back"), Reply(address=place, text=BACK, at=now))
        for place in places
        if place.channel in channels
    ]
    await store.commit(*posts, *(Done(row.key) for row in rows))
