"""What turns left in the inbox whose process is gone: it is settled before anybody is served.

Such a turn is not run again: whoever asked for it is gone, and may ask again. What they said, and
what was said to steer it, belongs to the session, so the next turn there reads it.
"""

import logging
from collections.abc import Sequence

import msgspec

from hermes.app.build import App
from hermes.app.later import News
from hermes.gateway.letters import INBOX, OURS
from hermes.ports.store import Append, Done, Parcel, Write
from hermes.schema.errors import NotFound, SessionBusy
from hermes.schema.messages import User
from hermes.schema.scope import OWNER

log = logging.getLogger(__name__)

MOST = 10_000


async def settle_cut_off(app: App) -> int:
    """How many were settled. A session that somebody holds is left to them."""
    by_session: dict[str, list[Parcel]] = {}
    for parcel in await app.store.lanes.left(INBOX, MOST):
        if not parcel.topic.startswith(OURS):
            by_session.setdefault(parcel.topic, []).append(parcel)
    count = 0
    for session, parcels in by_session.items():
        try:
            count += await _settle(app, session, parcels)
        except SessionBusy:
            continue
    if count:
        log.warning("%d messages of turns that were cut off are in their transcripts", count)
    return count


async def _settle(app: App, session: str, parcels: Sequence[Parcel]) -> int:
    archive = app.store.seen_by(OWNER)
    try:
        await archive.get(session)
    except NotFound:
        # It was deleted, and with it all that was said there.
        await app.store.commit(*(Done(parcel.key) for parcel in parcels))
        return len(parcels)
    async with app.runner.holding(session) as lease:
        said = [row.message for row in await archive.messages(session)]
        said = await app.runner.closed(lease, said)
        known = {message.id for message in said}
        writes: list[Write] = []
        now = app.clock.now()
        for parcel in parcels:
            user = await _read(app, parcel)
            if user is None:
                continue
            if user.id not in known:
                writes.append(Append(session, "", user, now))
            writes.append(Done(parcel.key))
        await app.store.commit(*writes, fence=lease.fence)
        return sum(isinstance(write, Done) for write in writes)


async def _read(app: App, parcel: Parcel) -> User | None:
    """None for news, which a turn is begun for, and for what nobody can read."""
    try:
        read = msgspec.json.decode(parcel.body, type=News)
    except msgspec.MsgspecError as error:
        log.warning("inbox parcel %s cannot be read: %s", parcel.key, error)
        await app.store.lanes.park(parcel.key, f"It cannot be read: {error}")
        return None
    return None if read.news else User(read.id, read.parts, read.trust)
