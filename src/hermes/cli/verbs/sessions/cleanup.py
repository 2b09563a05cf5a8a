"""`sessions rename`, `delete` and `prune`; deletions are listed and confirmed first."""

from collections.abc import Sequence
from datetime import timedelta

import anyio

from hermes.app.session_documents import session_name
from hermes.cli.verbs.sessions import NO_SESSIONS, SessionsAction
from hermes.cli.verbs.sessions.session_list import (
    SessionSelection,
    matching_sessions,
    print_table,
    selection_from,
)
from hermes.kit.terminal_text import single_line
from hermes.kit.text import plural
from hermes.ports.store import ChangeSession, Store
from hermes.schema.errors import SessionBusy, UsageError
from hermes.schema.scope import OWNER
from hermes.schema.sessions import Session, SessionChange, SessionSummary

_MAX_SHOWN = 20
_MAX_TITLE = 200
_CONCURRENT_CHECKS = 200
_PROBE_LEASE = timedelta(seconds=5)


def rename(action: SessionsAction) -> int:
    action.require_sessions()
    title = " ".join(" ".join(action.args.title).split())
    if len(title) > _MAX_TITLE:
        raise UsageError(
            f"The title has {len(title):,} characters.", hint=f"The limit is {_MAX_TITLE}."
        )

    async def change(store: Store) -> Session:
        session = await store.archive_for(OWNER).find(action.args.session)
        await store.commit(ChangeSession(session.id, SessionChange(title=title)))
        return session

    session = action.with_store(change)
    result = f"renamed to “{single_line(title)}”." if title else "has no title now."
    action.printer.line(f"{single_line(session.id)} {result}")
    return 0


def delete(action: SessionsAction) -> int:
    action.require_sessions()

    async def find(store: Store) -> list[Session]:
        archive = store.archive_for(OWNER)
        found = [await archive.find(name) for name in action.args.sessions]
        return list({session.id: session for session in found}.values())

    sessions = action.with_store(find)
    for session in sessions:
        title = f"  {session_name(session)}" if session.title else ""
        action.note(f"  {single_line(session.id)}{title}")
    if not action.confirm(f"Delete {plural(len(sessions), 'session')} permanently?"):
        return 1

    async def remove(store: Store) -> int:
        ids = [session.id for session in sessions]
        if busy := await _busy_sessions(store, ids):
            raise SessionBusy(
                f"A turn is running in {', '.join(map(single_line, busy))}; nothing was deleted.",
                hint="Wait until it ends, or stop it.",
            )
        return await store.archive_for(OWNER).delete(ids)

    action.printer.line(f"Deleted {plural(action.with_store(remove), 'session')}.")
    return 0


def prune(action: SessionsAction) -> int:
    wanted = selection_from(action.args, action.clock.now(), reviews=True)
    if wanted.everything:
        raise UsageError(
            "Choose which sessions to delete.",
            hint="For example: hermes sessions prune --older-than 90d",
        )

    async def find(store: Store) -> list[SessionSummary]:
        return [summary async for summary in matching_sessions(store.archive_for(OWNER), wanted)]

    summaries = [] if action.is_empty else action.with_store(find)
    if not summaries:
        action.note(NO_SESSIONS if action.is_empty else "No matching sessions.")
        return 0
    _print_preview(action, summaries)
    if action.args.dry_run:
        return 0
    if not action.confirm(f"Delete {plural(len(summaries), 'session')} permanently?"):
        return 1
    confirmed = {summary.session.id for summary in summaries}
    deleted, busy = action.with_store(lambda store: _remove(store, wanted, confirmed))
    action.printer.line(f"Deleted {plural(deleted, 'session')}.")
    if busy:
        action.note(f"Kept, because a turn is running: {', '.join(map(single_line, busy))}.")
    return 0


def _print_preview(action: SessionsAction, summaries: Sequence[SessionSummary]) -> None:
    """List the sessions: all with --dry-run, only the first ones without it."""
    shown = list(summaries) if action.args.dry_run else list(summaries[:_MAX_SHOWN])
    print_table(action, shown)
    messages = sum(summary.messages for summary in summaries)
    total = f"{plural(len(summaries), 'session')} with {plural(messages, 'message')}"
    left = len(summaries) - len(shown)
    more = f" ({left:,} not shown)" if left else ""
    action.note(f"{total} would be deleted{more}.")


async def _remove(
    store: Store, wanted: SessionSelection, confirmed: set[str]
) -> tuple[int, list[str]]:
    """Delete the confirmed sessions that still match: one may have been used meanwhile."""
    archive = store.archive_for(OWNER)
    ids = [summary.session.id async for summary in matching_sessions(archive, wanted)]
    doomed = [session for session in ids if session in confirmed]
    busy = await _busy_sessions(store, doomed)
    kept = set(busy)
    return await archive.delete([session for session in doomed if session not in kept]), busy


async def _busy_sessions(store: Store, sessions: Sequence[str]) -> list[str]:
    """Sessions with a running turn; checked concurrently, so that they share commits."""
    busy: list[str] = []
    holder = store.workers.own

    async def probe(session: str) -> None:
        try:
            generation = await store.leases.hold(session, holder, _PROBE_LEASE)
        except SessionBusy:
            busy.append(session)
        else:
            await store.leases.release(session, generation)

    for start in range(0, len(sessions), _CONCURRENT_CHECKS):
        async with anyio.create_task_group() as group:
            for session in sessions[start : start + _CONCURRENT_CHECKS]:
                group.start_soon(probe, session)
    return busy
