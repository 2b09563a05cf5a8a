"""Notice changes made by other processes: in shown sessions, and in pending questions."""

import logging
from collections.abc import Mapping

from anyio.to_thread import run_sync
from msgspec import Struct

from hermes.approvals.service import Answerer
from hermes.schema.errors import NotFound, StoreError
from hermes.schema.scope import OWNER
from hermes.web.context import ProfileWeb, SessionState
from hermes.web.decisions import read_decisions
from hermes.web.entries import live_entry
from hermes.web.markdown import PARSERS, LiveMarkdown

log = logging.getLogger(__name__)

POLL_INTERVAL = 1.0


async def watch_shown_sessions(profile: ProfileWeb) -> None:
    """Watch the shown sessions for changes by other processes."""
    seen: dict[str, SessionState] = {}
    waiting: _Waiting | None = None
    while True:
        await profile.app.clock.sleep(POLL_INTERVAL)
        if profile.feed.watched:
            waiting = await _look_for_waiting(profile, waiting)
        watched = [one for one in profile.feed.watched if one]
        seen = {session: state for session, state in seen.items() if session in watched}
        for session in watched:
            try:
                state = await read_state(profile, session)
                loaded = profile.take_loaded(session)
                before = seen.get(session) or loaded
                seen[session] = state
                if before is not None:
                    await publish_changes(profile, session, before, state)
            except NotFound:
                continue
            except StoreError as error:
                log.warning("cannot look at session %s: %s", session, error)
            except Exception:
                # A session that cannot be shown must not stop watching the others.
                log.exception("cannot show what changed in session %s", session)


class _Waiting(Struct, frozen=True):
    """The questions of other processes, each with its session, and the number of decisions."""

    questions: Mapping[str, str]
    decisions: int


async def _look_for_waiting(profile: ProfileWeb, before: _Waiting | None) -> _Waiting | None:
    """Publish changes of the questions and decisions that wait without a turn of this process."""
    try:
        waiting = await profile.app.approvals.all_pending()
        decisions = (await read_decisions(profile)).count
    except StoreError as error:
        log.warning("cannot look for questions: %s", error)
        return before
    except Exception:
        # Questions that cannot be read must not end the other live updates.
        log.exception("cannot look for questions")
        return before
    own = profile.live.sessions
    found = {
        one.question.id: one.question.session for one in waiting if one.question.session not in own
    }
    known = before or _Waiting({}, 0)
    if (found.keys(), decisions) != (known.questions.keys(), known.decisions):
        # Results of the first check may be old.
        new = found.keys() - (found if before is None else known.questions).keys()
        count = len(found) + decisions
        profile.live.show_waiting_elsewhere(count, next((found[one] for one in new), ""))
    return _Waiting(found, decisions)


async def read_state(profile: ProfileWeb, session: str) -> SessionState:
    store = profile.app.store
    here = _runs_here(profile, session)
    tail = await store.archive_for(OWNER).tail(session, 1, 1)
    held = await store.leases.held(session)
    # A turn of this process may have begun or ended in between.
    here = here or _runs_here(profile, session)
    running = held and not here
    partial = ""
    if running:
        partial = "".join(one.text for one in await store.runs.partial_texts(session))
    last = tail.rows[-1].seq if tail.rows else 0
    title = (await store.archive_for(OWNER).get(session)).title
    pending = await profile.app.approvals.pending(Answerer(session=session))
    questions = tuple(one.question.id for one in pending)
    return SessionState(
        last=last,
        message=tail.rows[-1].message.id if tail.rows else "",
        here=here,
        running=running,
        partial=partial,
        title=title,
        questions=questions,
        own=profile.live.facts.get(session, 0),
    )


def _runs_here(profile: ProfileWeb, session: str) -> bool:
    return profile.app.runner.holds(session) or profile.conversations.is_running(session)


async def publish_changes(
    profile: ProfileWeb, session: str, before: SessionState, now: SessionState
) -> None:
    feed = profile.feed
    if before.title != now.title:
        feed.publish("activity", {"session": session, "title": now.title})
    if before.own != now.own:
        if now.here:
            return
        # A turn of this process was shown up to its last message.
        is_news = now.message != profile.live.messages.get(session, now.message)
        is_news |= not set(now.questions) <= set(before.questions)
    else:
        is_news = (now.last, now.questions) != (before.last, before.questions)
    if is_news and not profile.conversations.is_running(session):
        feed.publish("reload", {}, session)
    if now.running != before.running and not profile.conversations.is_running(session):
        feed.publish("run", {"running": now.running, "here": False}, session)
    if now.partial and now.partial != before.partial:
        markdown = LiveMarkdown()
        markdown.add(now.partial)
        blocks = await run_sync(markdown.blocks, limiter=PARSERS)
        entry = live_entry("live-elsewhere", blocks, "")
        feed.publish("entry", {"id": "live-elsewhere", "html": entry}, session)
