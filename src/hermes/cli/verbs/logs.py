"""`hermes logs`: show or follow the logs, filtered by session, level or time."""

import os
import time
from argparse import ArgumentTypeError, Namespace
from collections.abc import Iterable
from datetime import datetime

from hermes.app.log_files import LogFiles, LogFollower, RecordFilter, record_level
from hermes.cli.context import CliContext
from hermes.cli.dates import TimePoint
from hermes.cli.output import Style
from hermes.config.home import Home
from hermes.kit.clock import SystemClock
from hermes.kit.terminal_text import escape_controls
from hermes.schema.errors import NotFound, StoreError, UsageError
from hermes.schema.scope import OWNER

FOLLOW_INTERVAL = 0.25
"""Seconds between checks for new records."""
_COLORS = {"WARNING": "yellow", "ERROR": "red", "CRITICAL": "red"}


def run(args: Namespace, context: CliContext) -> int:
    if args.number < 0:
        raise UsageError("-n must not be negative.", hint="For example: -n 100")
    home = context.home()
    path = home.logs / f"{args.log}.log"
    known = _session_names(args.session, home) if args.session else ()
    wanted = RecordFilter(
        level=args.level or "",
        names=known or ((args.session,) if args.session else ()),
        since=_parse_since(args.since) if args.since else None,
    )
    each_line = args.log == "gateway"
    opened = LogFiles(path, each_line=each_line)
    try:
        if args.session and not known and opened.find_last(1, wanted) is None:
            raise NotFound(
                f"Unknown session: {args.session!r}. No log record mentions it.",
                hint="List the sessions: hermes sessions list",
            )
        if not opened.files and not args.follow:
            context.note(f"{path} does not exist yet")
            return 0
        start = opened.find_last(args.number, wanted)
        if start is not None:
            _print(context, filter(wanted, opened.records(start)))
        elif opened.files:
            opened.files[-1].seek(0, os.SEEK_END)
        if not args.follow:
            if start is None and args.number:
                context.note(f"No matching records in {path}")
            return 0
        follower = LogFollower(path, opened.newest(), each_line=each_line)
    finally:
        opened.close()
    try:
        while True:
            _print(context, filter(wanted, follower.read_new()))
            time.sleep(FOLLOW_INTERVAL)
    finally:
        follower.close()


def _parse_since(text: str) -> datetime:
    try:
        return TimePoint(text).at(SystemClock().now())
    except ArgumentTypeError as error:
        raise UsageError(
            f"--since: {error}.", hint="For example: hermes logs --since yesterday, or --since 2h"
        ) from error


def _session_names(session: str, home: Home) -> tuple[str, ...]:
    """The names of a session in the log: its id and session key; empty if unknown."""
    if not home.has_sessions:
        return ()
    import anyio

    from hermes.app.storage import find_by_preview, open_archive

    async def find() -> tuple[str, ...]:
        async with open_archive(home, SystemClock()) as store:
            archive = store.archive_for(OWNER)
            try:
                found = await archive.find(session)
            except NotFound:
                found = await find_by_preview(archive, session)
            return tuple(filter(None, (found.id, found.key))) if found else ()

    try:
        return anyio.run(find)
    except StoreError:
        # A deleted session or a broken database must not hide the log.
        return ()


def _print(context: CliContext, records: Iterable[bytes]) -> None:
    style = Style(context.stdout, context.env)
    for record in records:
        text = escape_controls(record.decode("utf-8", "replace"))
        color = _COLORS.get(record_level(record))
        context.stdout.write(style(text, color) if color else text)
    context.stdout.flush()
