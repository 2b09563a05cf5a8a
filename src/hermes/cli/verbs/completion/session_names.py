"""The sessions a shell may offer: the ones used last, each with its title."""

import re

import anyio

from hermes.app.archive import open_archive
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
    """One line per session, `id<TAB>title`; silence when anything is wrong."""
    try:
        digests = anyio.run(_recent_sessions, context)
    except HermesError:
        # The reader is in the middle of a line: a complaint there would only spoil it.
        return 1
    for digest in digests:
        session = digest.session
        if session.id.startswith(beginning) and _SAFE_ID.fullmatch(session.id):
            context.stdout.write(f"{session.id}\t{single_line(session.title or digest.preview)}\n")
    return 0


async def _recent_sessions(context: CliContext) -> "list[SessionSummary]":
    home = context.home()
    if not home.state_db.exists():
        return []
    async with open_archive(home, SystemClock()) as store:
        return list(await store.archive_for(OWNER).list(SessionFilter(), _MAX_SESSIONS))
