"""`sessions backup`, `optimize` and `adopt`: looking after the database as a whole."""

from pathlib import Path

from hermes.cli.export.plain import harmless
from hermes.cli.verbs.sessions.desk import NONE_YET, Desk
from hermes.cli.verbs.sessions.totals import size
from hermes.kit.text import plural
from hermes.schema.errors import UsageError
from hermes.store.adopt import adopt as adopt_database
from hermes.store.sqlite import SqliteStore


def backup(desk: Desk) -> int:
    desk.need_sessions()
    target = Path(desk.args.file).expanduser().absolute()
    if target.exists():
        raise UsageError(f"{target} exists already.", hint="Choose a name that is still free.")
    if not target.parent.is_dir():
        raise UsageError(f"There is no folder {target.parent}.")
    desk.with_store(lambda store: store.backup(target))
    desk.paper.line(f"Copied {size(target.stat().st_size)} to {harmless(str(target))}.")
    return 0


def adopt(desk: Desk) -> int:
    path = desk.context.home().state_db
    adopted = adopt_database(path, desk.clock)
    if adopted.kept_as is None:
        desk.note(f"{path} is ours already; there is nothing to take over.")
        return 0
    sessions, messages = plural(adopted.sessions, "session"), plural(adopted.messages, "message")
    desk.paper.line(f"Took over {sessions} with {messages}.")
    desk.paper.line(f"The old database is kept as {harmless(str(adopted.kept_as))}.")
    return 0


def optimize(desk: Desk) -> int:
    if desk.is_empty:
        desk.note(NONE_YET)
        return 0

    async def tidy(store: SqliteStore) -> tuple[int, int]:
        before = (await store.stats()).size
        await store.optimize()
        await store.vacuum()
        return before, (await store.stats()).size

    before, after = desk.with_store(tidy)
    desk.paper.line(f"The database takes {size(after)} now; it took {size(before)}.")
    return 0
