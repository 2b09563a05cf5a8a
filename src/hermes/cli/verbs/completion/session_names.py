"""Print recent sessions for shell completion."""

import re

import anyio

from hermes.app.storage import open_archive
from hermes.cli.context import CliContext
from hermes.kit.clock import SystemClock
from hermes.kit.terminal_text import single_line
from hermes.schema.errors import HermesError
from hermes.schema.scope import OWNER
from hermes.schema.sessions import SessionFilter, SessionSummary

_MAX_SESSIONS = 200
_SAFE_ID = re.compile(r"[\w.-]+", re.ASCII)
"""Ids that need no quoting in any shell."""


def print_sessions(beginning: str, context: CliContext) -> int:
    """Print `id<TAB>title` for each session; nothing on errors."""
    try:
        summaries = anyio.run(_recent_sessions, context)
    except HermesError:
        # An error message would garble the command line being completed.
        return 1
    for summary in summaries:
        session = summary.session
        if session.id.startswith(beginning) and _SAFE_ID.fullmatch(session.id):
            context.stdout.write(f"{session.id}\t{single_line(session.title or summary.preview)}\n")
    return 0


async def _recent_sessions(context: CliContext) -> "list[SessionSummary]":
    home = context.home()
    if not home.state_db.exists():
        return []
    async with open_archive(home, SystemClock()) as store:
        return list(await store.archive_for(OWNER).list(SessionFilter(), _MAX_SESSIONS))
