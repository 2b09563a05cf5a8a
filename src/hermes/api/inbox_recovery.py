"""Settle the inbox messages of turns whose process is gone, before requests are served.

Such a turn is not run again: its client is gone and may repeat the request. Its messages, including
steering messages, are added to the session for the next turn to read.
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
    """Return how many messages were settled. Sessions held by another process are skipped."""
    by_session: dict[str, list[QueueItem]] = {}
    for item in await app.store.queues.unfinished(INBOX, MAX_ITEMS):
        if not item.topic.startswith(CHAT_KEY_PREFIX):
            by_session.setdefault(item.topic, []).append(item)
    count = 0
    for session, items in by_session.items():
        try:
            count += await _settle_session(app, session, items)
        except SessionBusy:
            continue
    if count:
        log.warning("added %d messages of interrupted turns to their transcripts", count)
    return count


async def _settle_session(app: App, session: str, items: Sequence[QueueItem]) -> int:
    archive = app.store.archive_for(OWNER)
    try:
        await archive.get(session)
    except NotFound:
        # The session was deleted with everything in it.
        await app.store.commit(*(CompleteItem(item.key) for item in items))
        return len(items)
    async with app.runner.holding(session) as lease:
        messages = [row.message for row in await archive.messages(session)]
        messages = await app.runner.close_calls(lease, messages)
        known = {message.id for message in messages}
        writes: list[Write] = []
        now = app.clock.now()
        for item in items:
            user = await _read_message(app, item)
            if user is None:
                continue
            if user.id not in known:
                writes.append(AppendMessage(session, "", user, now))
            writes.append(CompleteItem(item.key))
        await app.store.commit(*writes, fence=lease.fence)
        return sum(isinstance(write, CompleteItem) for write in writes)


async def _read_message(app: App, item: QueueItem) -> User | None:
    """Return None for followups, which start a turn, and for unreadable items."""
    try:
        followup = msgspec.json.decode(item.body, type=FollowupMessage)
    except msgspec.MsgspecError as error:
        log.warning("cannot read inbox item %s: %s", item.key, error)
        await app.store.queues.park(item.key, f"Cannot be read: {error}")
        return None
    return None if followup.news else User(followup.id, followup.parts, followup.trust)
