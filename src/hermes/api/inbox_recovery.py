"""What turns left in the inbox whose process is gone: it is settled before anybody is served.

Such a turn is not run again: whoever asked for it is gone, and may ask again. What they said, and
what was said to steer it, belongs to the session, so the next turn there reads it.
"""

import logging
from collections.abc import Sequence

import msgspec

from hermes.app.build import App
from hermes.app.followups import FollowupMessage
from hermes.gateway.messages import CHAT_KEY_PREFIX, INBOX
from hermes.ports.store import AppendMessage, CompleteItem, QueueItem, Write
from hermes.schema.errors import NotFound, SessionBusy
from hermes.schema.messages import User
from hermes.schema.scope import OWNER

log = logging.getLogger(__name__)

MAX_ITEMS = 10_000


async def settle_interrupted_turns(app: App) -> int:
    """How many were settled. A session that somebody holds is left to them."""
    by_session: dict[str, list[QueueItem]] = {}
    for parcel in await app.store.queues.left(INBOX, MAX_ITEMS):
        if not parcel.topic.startswith(CHAT_KEY_PREFIX):
            by_session.setdefault(parcel.topic, []).append(parcel)
    count = 0
    for session, items in by_session.items():
        try:
            count += await _settle_session(app, session, items)
        except SessionBusy:
            continue
    if count:
        log.warning("%d messages of turns that were cut off are in their transcripts", count)
    return count


async def _settle_session(app: App, session: str, items: Sequence[QueueItem]) -> int:
    archive = app.store.archive_for(OWNER)
    try:
        await archive.get(session)
    except NotFound:
        # It was deleted, and with it all that was said there.
        await app.store.commit(*(CompleteItem(parcel.key) for parcel in items))
        return len(items)
    async with app.runner.holding(session) as lease:
        said = [row.message for row in await archive.messages(session)]
        said = await app.runner.closed(lease, said)
        known = {message.id for message in said}
        writes: list[Write] = []
        now = app.clock.now()
        for parcel in items:
            user = await _read_message(app, parcel)
            if user is None:
                continue
            if user.id not in known:
                writes.append(AppendMessage(session, "", user, now))
            writes.append(CompleteItem(parcel.key))
        await app.store.commit(*writes, fence=lease.fence)
        return sum(isinstance(write, CompleteItem) for write in writes)


async def _read_message(app: App, parcel: QueueItem) -> User | None:
    """None for news, which a turn is begun for, and for what nobody can read."""
    try:
        read = msgspec.json.decode(parcel.body, type=FollowupMessage)
    except msgspec.MsgspecError as error:
        log.warning("inbox parcel %s cannot be read: %s", parcel.key, error)
        await app.store.queues.park(parcel.key, f"It cannot be read: {error}")
        return None
    return None if read.news else User(read.id, read.parts, read.trust)
