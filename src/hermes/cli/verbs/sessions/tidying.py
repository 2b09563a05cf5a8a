"""`sessions rename`, `delete` and `prune`: nothing goes without having been named first."""

from collections.abc import Sequence
from datetime import timedelta

import anyio

from hermes.cli.export.markdown import name_of
from hermes.cli.export.plain import flat
from hermes.cli.verbs.sessions.desk import NONE_YET, Desk
from hermes.cli.verbs.sessions.listing import print_table
from hermes.cli.verbs.sessions.selection import Selection, matching, selection
from hermes.kit.holder import this_process
from hermes.kit.text import plural
from hermes.ports.store import ChangeSession
from hermes.schema.errors import SessionBusy, UsageError
from hermes.schema.scope import OWNER
from hermes.schema.sessions import Digest, Session, SessionChange
from hermes.store.sqlite import SqliteStore

_SHOWN = 20
_TITLE = 200
_AT_ONCE = 200
_MOMENT = timedelta(seconds=5)


def rename(desk: Desk) -> int:
    desk.need_sessions()
    title = " ".join(" ".join(desk.args.title).split())
    if len(title) > _TITLE:
        raise UsageError(
            f"The title has {len(title):,} characters.", hint=f"At most {_TITLE} are kept."
        )

    async def change(store: SqliteStore) -> Session:
        session = await store.seen_by(OWNER).find(desk.args.session)
        await store.commit(ChangeSession(session.id, SessionChange(title=title)))
        return session

    session = desk.with_store(change)
    said = f"is called “{flat(title)}” now." if title else "has no title now."
    desk.paper.line(f"{flat(session.id)} {said}")
    return 0


def delete(desk: Desk) -> int:
    desk.need_sessions()

    async def find(store: SqliteStore) -> list[Session]:
        archive = store.seen_by(OWNER)
        found = [await archive.find(name) for name in desk.args.sessions]
        return list({session.id: session for session in found}.values())

    sessions = desk.with_store(find)
    for session in sessions:
        title = f"  {name_of(session)}" if session.title else ""
        desk.note(f"  {flat(session.id)}{title}")
    if not desk.agreed(f"Delete {plural(len(sessions), 'session')} for good?"):
        return 1

    async def remove(store: SqliteStore) -> int:
        ids = [session.id for session in sessions]
        busy = await _busy(store, ids)
        if busy:
            raise SessionBusy(
                f"A turn is running in {', '.join(map(flat, busy))}; nothing was deleted.",
                hint="Wait for its end, or stop it.",
            )
        return await store.seen_by(OWNER).delete(ids)

    desk.paper.line(f"Deleted {plural(desk.with_store(remove), 'session')}.")
    return 0


def prune(desk: Desk) -> int:
    wanted = selection(desk.args, desk.clock.now(), reviews=True)
    if wanted.everything:
        raise UsageError(
            "Say which sessions should go.",
            hint="For example: hermes sessions prune --older-than 90d",
        )
    digests = [] if desk.is_empty else _find(desk, wanted)
    if not digests:
        desk.note(NONE_YET if desk.is_empty else "No session fits; nothing would go.")
        return 0
    _announce(desk, digests)
    if desk.args.dry_run:
        return 0
    if not desk.agreed(f"Delete {plural(len(digests), 'session')} for good?"):
        return 1
    agreed = {digest.session.id for digest in digests}
    deleted, busy = desk.with_store(lambda store: _remove(store, wanted, agreed))
    desk.paper.line(f"Deleted {plural(deleted, 'session')}.")
    if busy:
        desk.note(f"Kept, because a turn is running: {', '.join(map(flat, busy))}.")
    return 0


def _find(desk: Desk, wanted: Selection) -> list[Digest]:
    async def find(store: SqliteStore) -> list[Digest]:
        return [digest async for digest in matching(store.seen_by(OWNER), wanted)]

    return desk.with_store(find)


def _announce(desk: Desk, digests: Sequence[Digest]) -> None:
    """All of them when this is only a look, else enough to see whether the marks were right."""
    shown = list(digests) if desk.args.dry_run else list(digests[:_SHOWN])
    print_table(desk, shown)
    messages = sum(digest.messages for digest in digests)
    total = f"{plural(len(digests), 'session')} with {plural(messages, 'message')}"
    left = len(digests) - len(shown)
    more = f", {left:,} of them not shown" if left else ""
    desk.note(f"{total} would go{more}.")


async def _remove(store: SqliteStore, wanted: Selection, agreed: set[str]) -> tuple[int, list[str]]:
    """Only what was agreed to and still fits: somebody may have used one meanwhile."""
    archive = store.seen_by(OWNER)
    ids = [digest.session.id async for digest in matching(archive, wanted)]
    going = [session for session in ids if session in agreed]
    busy = await _busy(store, going)
    kept = set(busy)
    return await archive.delete([session for session in going if session not in kept]), busy


async def _busy(store: SqliteStore, sessions: Sequence[str]) -> list[str]:
    """Those in which a turn is running; asked about many at once, so that they share commits."""
    busy: list[str] = []
    us = this_process()

    async def try_it(session: str) -> None:
        try:
            generation = await store.leases.hold(session, us, _MOMENT)
        except SessionBusy:
            busy.append(session)
        else:
            await store.leases.release(session, generation)

    for start in range(0, len(sessions), _AT_ONCE):
        async with anyio.create_task_group() as group:
            for session in sessions[start : start + _AT_ONCE]:
                group.start_soon(try_it, session)
    return busy
