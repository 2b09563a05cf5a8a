"""`hermes sessions`: list, search, show, export and delete sessions."""

from argparse import Namespace
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import TypeVar

import anyio

from hermes.app.storage import import_public_sessions, open_archive
from hermes.cli.context import CliContext
from hermes.cli.dialog import TerminalDialog
from hermes.cli.import_progress import ImportProgress
from hermes.cli.output import Printer
from hermes.kit.clock import Clock, SystemClock
from hermes.kit.terminal_text import escape_controls
from hermes.ports.store import Store
from hermes.schema.errors import NotFound, UsageError

R = TypeVar("R")

NO_SESSIONS = "No sessions yet."
_START_HINT = 'Start one: hermes, or hermes -z "Hello"'


class SessionsAction:
    def __init__(self, args: Namespace, context: CliContext, clock: Clock) -> None:
        self.args = args
        self.context = context
        self.clock = clock
        self.printer = Printer(context)

    @property
    def is_empty(self) -> bool:
        """Whether the database does not exist yet, so that reading does not create it."""
        return not self.context.home().has_sessions

    def with_store(self, work: Callable[[Store], Awaitable[R]]) -> R:
        """Run `work` with the store open and up to date; print and ask outside of it."""

        async def work_up_to_date(store: Store) -> R:
            progress = ImportProgress(self.context)
            await import_public_sessions(store, self.context.home(), progress)
            return await work(store)

        return self.open_store(work_up_to_date)

    def open_store(self, work: Callable[[Store], Awaitable[R]]) -> R:
        async def run() -> R:
            async with open_archive(self.context.home(), self.clock) as store:
                return await work(store)

        return anyio.run(run)

    def require_sessions(self) -> None:
        """Raise `NotFound` if there are no sessions at all."""
        if self.is_empty:
            raise NotFound(NO_SESSIONS, hint=_START_HINT)

    def note(self, text: str) -> None:
        self.context.note(escape_controls(text))

    def confirm(self, question: str) -> bool:
        """Ask for confirmation. Raises `UsageError` without --yes and without a terminal."""
        if self.args.yes:
            return True
        if not self.context.stdin.isatty():
            raise UsageError(f"{question} This needs confirmation.", hint="In a script, add --yes.")
        if TerminalDialog(self.context, interactive=True).confirm(question):
            return True
        self.note("Nothing was changed.")
        return False


_ACTIONS = {
    "list": "session_list:list_sessions",
    "show": "transcript:show",
    "search": "session_list:search",
    "stats": "database:stats",
    "export": "exporter:export",
    "import": "importer:import_sessions",
    "adopt": "database:adopt",
    "backup": "database:backup",
    "optimize": "database:optimize",
    "rename": "cleanup:rename",
    "delete": "cleanup:delete",
    "prune": "cleanup:prune",
}


def run(args: Namespace, context: CliContext, clock: Clock | None = None) -> int:
    module, _, function = _ACTIONS[args.action].partition(":")
    perform = getattr(import_module(f"hermes.cli.verbs.sessions.{module}"), function)
    return perform(SessionsAction(args, context, clock or SystemClock()))
