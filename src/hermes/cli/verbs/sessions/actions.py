"""What an action works with: its arguments, the paper it prints on, and the store on request."""

from argparse import Namespace
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import TypeVar

import anyio

from hermes.app.archive import open_archive
from hermes.cli.context import CliContext
from hermes.cli.dialog import read_line
from hermes.cli.output import Printer
from hermes.kit.clock import Clock
from hermes.kit.terminal_text import escape_controls
from hermes.schema.errors import NotFound, UsageError
from hermes.store.sqlite import SqliteStore

R = TypeVar("R")

NO_SESSIONS = "There are no sessions yet."
_START_HINT = 'Start one with: hermes, or hermes -z "Hello"'


class SessionsAction:
    def __init__(self, args: Namespace, context: CliContext, clock: Clock) -> None:
        self.args = args
        self.context = context
        self.clock = clock
        self.printer = Printer(context)

    @property
    def is_empty(self) -> bool:
        """Whether no session was ever stored: then reading creates nothing."""
        return not self.context.home().state_db.exists()

    def with_store(self, work: Callable[[SqliteStore], Awaitable[R]]) -> R:
        """Open the store for one piece of work; printing and asking happen outside of it."""

        async def work_at_it() -> R:
            async with open_archive(self.context.home(), self.clock) as store:
                return await work(store)

        return anyio.run(work_at_it)

    def require_sessions(self) -> None:
        """Raises `NotFound` where a named session cannot exist."""
        if self.is_empty:
            raise NotFound(NO_SESSIONS, hint=_START_HINT)

    def note(self, text: str) -> None:
        """A remark for people; it does not disturb what a program reads from stdout."""
        self.context.stderr.write(escape_controls(text) + "\n")

    def agreed(self, question: str) -> bool:
        """Ask before something is lost. Raises `UsageError` when nobody can be asked."""
        if self.args.yes:
            return True
        if not self.context.stdin.isatty():
            raise UsageError(
                f"{question} There is nobody to ask.", hint="Add --yes to do it without asking."
            )
        self.context.stderr.write(f"{question} [y/N] ")
        self.context.stderr.flush()
        if read_line(self.context.stdin).strip().lower() in {"y", "yes"}:
            return True
        self.note("Nothing was changed.")
        return False


_ACTIONS = {
    "list": "session_list:list_sessions",
    "show": "transcript:show",
    "search": "search:search",
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


def perform(args: Namespace, context: CliContext, clock: Clock) -> int:
    module, _, function = _ACTIONS[args.action].partition(":")
    action = getattr(import_module(f"hermes.cli.verbs.sessions.{module}"), function)
    return action(SessionsAction(args, context, clock))
