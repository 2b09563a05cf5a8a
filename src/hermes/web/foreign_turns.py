"""Notice what changes in the sessions that pages show without a turn of this process."""

import logging

from anyio.to_thread import run_sync
from msgspec import Struct

from hermes.schema.errors import NotFound, StoreError
from hermes.schema.scope import OWNER
from hermes.web.context import ProfileWeb
from hermes.web.entries import live_entry
from hermes.web.markdown import PARSERS, LiveMarkdown

log = logging.getLogger(__name__)

POLL_INTERVAL = 1.0


class _Seen(Struct, frozen=True):
    last: int = 0
    running: bool = False
    partial: str = ""
    title: str = ""
    own: int = 0  # facts of turns in this process: changes with them are not news


async def watch_foreign_turns(profile: ProfileWeb) -> None:
    """Look at the shown sessions that no turn of this process changes."""
    seen: dict[str, _Seen] = {}
    while True:
        await profile.app.clock.sleep(POLL_INTERVAL)
        watched = [one for one in profile.feed.watched if one]
        seen = {session: state for session, state in seen.items() if session in watched}
        for session in watched:
            try:
                state = await _look(profile, session)
            except NotFound:
                continue
            except StoreError as error:
                log.warning("cannot look at session %s: %s", session, error)
                continue
            except Exception:
                log.exception("cannot look at session %s", session)
                continue
            before = seen.get(session)
            seen[session] = state
            if before is not None and before.title != state.title:
                profile.feed.publish("activity", {"session": session, "title": state.title})
            if before is not None and before.own == state.own:
                try:
                    await _publish(profile, session, before, state)
                except Exception:
                    log.exception("cannot show what changed in session %s", session)


async def _look(profile: ProfileWeb, session: str) -> _Seen:
    store = profile.app.store
    tail = await store.archive_for(OWNER).tail(session, 1, 1)
    running = await store.leases.held(session)
    partial = ""
    if running and profile.live.get(session) is None:
        partial = "".join(one.text for one in await store.runs.partial_texts(session))
    last = tail.rows[-1].seq if tail.rows else 0
    title = (await store.archive_for(OWNER).get(session)).title
    return _Seen(last, running, partial, title, profile.live.facts.get(session, 0))


async def _publish(profile: ProfileWeb, session: str, before: _Seen, now: _Seen) -> None:
    feed = profile.feed
    if now.last != before.last and not profile.conversations.is_running(session):
        feed.publish("reload", {}, session)
    if now.running != before.running and not profile.conversations.is_running(session):
        feed.publish("run", {"running": now.running, "here": False}, session)
    if now.partial and now.partial != before.partial:
        markdown = LiveMarkdown()
        markdown.add(now.partial)
        blocks = await run_sync(markdown.blocks, limiter=PARSERS)
        entry = live_entry("live-elsewhere", blocks, "")
        feed.publish("entry", {"id": "live-elsewhere", "html": entry}, session)
