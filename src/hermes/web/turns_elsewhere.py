"""Notify all pages when a turn of another process begins or ends."""

import logging

from hermes.kit.ids import worker_of
from hermes.schema.errors import StoreError
from hermes.schema.scope import OWNER
from hermes.schema.sessions import SessionFilter
from hermes.web.context import ProfileWeb

log = logging.getLogger(__name__)

INTERVAL = 1.0
MAX_LISTED = 50


async def watch_turns_elsewhere(profile: ProfileWeb) -> None:
    """Watch the sessions that other processes hold, while a page is open."""
    clock = profile.app.clock
    began: dict[str, float] = {}
    """When the turn of a session was first seen."""
    while True:
        await clock.sleep(INTERVAL)
        if not profile.feed.watched:
            began = {}
            continue
        try:
            running = await _running_elsewhere(profile)
            for session in running - began.keys():
                profile.feed.publish("activity", {"session": session, "running": True})
            for session in began.keys() - running:
                await _publish_end(profile, session, clock.monotonic() - began[session])
            began = {one: began.get(one, clock.monotonic()) for one in running}
        except StoreError as error:
            log.warning("cannot look at the turns of other processes: %s", error)
        except Exception:
            # Turns that cannot be read must not end the other live updates.
            log.exception("cannot look at the turns of other processes")


async def _running_elsewhere(profile: ProfileWeb) -> set[str]:
    store = profile.app.store
    holders = await store.leases.holders()
    return {one for one, holder in holders.items() if worker_of(holder) != store.workers.own}


async def _publish_end(profile: ProfileWeb, session: str, seconds: float) -> None:
    """Publish the end of a turn; `seconds` are given for listed sessions, which notify people."""
    ended: dict[str, object] = {"session": session, "running": False}
    recent = await profile.app.store.archive_for(OWNER).list(SessionFilter(), MAX_LISTED)
    for one in recent:
        if one.session.id == session:
            ended |= {"seconds": seconds, "name": one.session.title or one.preview}
    profile.feed.publish("activity", ended)
