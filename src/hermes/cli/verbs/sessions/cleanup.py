"""`sessions rename`, `delete` and `prune`: nothing goes without having been named first."""

from collections.abc import Sequence
from datetime import timedelta

import anyio

from hermes.cli.verbs.sessions.actions import NO_SESSIONS, SessionsAction
from hermes.cli.verbs.sessions.formats.markdown import session_name
from hermes.cli.verbs.sessions.session_list import (
    SessionSelection,
    matching_sessions,
    print_table,
    selection_from,
)
from hermes.kit.process_identity import process_id
from hermes.kit.terminal_text import single_line
from hermes.kit.text import plural
from hermes.ports.store import ChangeSession
from hermes.schema.errors import SessionBusy, UsageError
from hermes.schema.scope import OWNER
from hermes.schema.sessions import Session, SessionChange, SessionSummary
from hermes.store.sqlite import SqliteStore

_MAX_SHOWN = 20
_MAX_TITLE = 200
_CONCURRENT_CHECKS = 200
_PROBE_LEASE = timedelta(seconds=5)


def rename(desk: SessionsAction) -> int:
    desk.require_sessions()
    title = " ".join(" ".join(desk.args.title).split())
    if len(title) > _MAX_TITLE:
        raise UsageError(
            f"The title has {len(title):,} characters.", hint=f"At most {_MAX_TITLE} are kept."
        )

    async def change(store: SqliteStore) -> Session:
        session = await store.archive_for(OWNER).find(desk.args.session)
        await store.commit(ChangeSession(session.id, SessionChange(title=title)))
        return session

    session = desk.with_store(change)
    said = f"is called “{single_line(title)}” now." if title else "has no title now."
    desk.printer.line(f"{single_line(session.id)} {said}")
    return 0


def delete(desk: SessionsAction) -> int:
    desk.require_sessions()

    async def find(store: SqliteStore) -> list[Session]:
        archive = store.archive_for(OWNER)
        found = [await archive.find(name) for name in desk.args.sessions]
        return list({session.id: session for session in found}.values())

    sessions = desk.with_store(find)
    for session in sessions:
        title = f"  {session_name(session)}" if session.title else ""
        desk.note(f"  {single_line(session.id)}{title}")
    if not desk.agreed(f"Delete {plural(len(sessions), 'session')} for good?"):
        return 1

    async def remove(store: SqliteStore) -> int:
        ids = [session.id for session in sessions]
        busy = await _busy_sessions(store, ids)
        if busy:
            raise SessionBusy(
                f"A turn is running in {', '.join(map(single_line, busy))}; nothing was deleted.",
                hint="Wait for its end, or stop it.",
            )
        return await store.archive_for(OWNER).delete(ids)

    desk.printer.line(f"Deleted {plural(desk.with_store(remove), 'session')}.")
    return 0


def prune(desk: SessionsAction) -> int:
    wanted = selection_from(desk.args, desk.clock.now(), reviews=True)
    if wanted.everything:
        raise UsageError(
            "Say which sessions should go.",
            hint="For example: hermes sessions prune --older-than 90d",
        )
    digests = [] if desk.is_empty else _find(desk, wanted)
    if not digests:
        desk.note(NO_SESSIONS if desk.is_empty else "No session fits; nothing would go.")
        return 0
    _print_preview(desk, digests)
    if desk.args.dry_run:
        return 0
    if not desk.agreed(f"Delete {plural(len(digests), 'session')} for good?"):
        return 1
    agreed = {digest.session.id for digest in digests}
    deleted, busy = desk.with_store(lambda store: _remove(store, wanted, agreed))
    desk.printer.line(f"Deleted {plural(deleted, 'session')}.")
    if busy:
        desk.note(f"Kept, because a turn is running: {', '.join(map(single_line, busy))}.")
    return 0


def _find(desk: SessionsAction, wanted: SessionSelection) -> list[SessionSummary]:
    async def find(store: SqliteStore) -> list[SessionSummary]:
        return [digest async for digest in matching_sessions(store.archive_for(OWNER), wanted)]

    return desk.with_store(find)


def _print_preview(desk: SessionsAction, digests: Sequence[SessionSummary]) -> None:
    """All of them when this is only a look, else enough to see whether the marks were right."""
    shown = list(digests) if desk.args.dry_run else list(digests[:_MAX_SHOWN])
    print_table(desk, shown)
    messages = sum(digest.messages for digest in digests)
    total = f"{plural(len(digests), 'session')} with {plural(messages, 'message')}"
    left = len(digests) - len(shown)
    more = f", {left:,} of them not shown" if left else ""
    desk.note(f"{total} would go{more}.")


async def _remove(
    store: SqliteStore, wanted: SessionSelection, agreed: set[str]
) -> tuple[int, list[str]]:
    """Only what was agreed to and still fits: somebody may have used one meanwhile."""
    archive = store.archive_for(OWNER)
    ids = [digest.session.id async for digest in matching_sessions(archive, wanted)]
    going = [session for session in ids if session in agreed]
    busy = await _busy_sessions(store, going)
    kept = set(busy)
    return await archive.delete([session for session in going if session not in kept]), busy


async def _busy_sessions(store: SqliteStore, sessions: Sequence[str]) -> list[str]:
    """Those in which a turn is running; asked about many at once, so that they share commits."""
    busy: list[str] = []
    us = process_id()

    async def try_it(session: str) -> None:
        try:
            generation = await store.leases.hold(session, us, _PROBE_LEASE)
        except SessionBusy:
            busy.append(session)
        else:
            await store.leases.release(session, generation)

    for start in range(0, len(sessions), _CONCURRENT_CHECKS):
        async with anyio.create_task_group() as group:
            for session in sessions[start : start + _CONCURRENT_CHECKS]:
                group.start_soon(try_it, session)
    return busy
