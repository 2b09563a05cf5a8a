"""The action of `hermes logs`: print the last matching records, then follow the log."""

import os
import time
from argparse import ArgumentTypeError, Namespace
from collections.abc import Iterable

from hermes.cli.context import CliContext
from hermes.cli.dates import TimePoint
from hermes.cli.output import Style
from hermes.cli.verbs.logs.reader import LogFiles, LogFollower, RecordFilter, record_level
from hermes.config.home import Home
from hermes.kit.clock import SystemClock
from hermes.kit.terminal_text import escape_controls
from hermes.schema.errors import NotFound, StoreError, UsageError
from hermes.schema.scope import OWNER

FOLLOW_INTERVAL = 0.25
"""Seconds between checks for new records."""
_COLOURS = {"WARNING": "yellow", "ERROR": "red", "CRITICAL": "red"}


def show_logs(args: Namespace, context: CliContext) -> int:
    if args.number < 0:
        raise UsageError("-n must not be negative.", hint="For example: -n 100")
    home = context.home()
    path = home.logs / f"{args.log}.log"
    known = _session_names(args.session, home) if args.session else ()
    wanted = _record_filter(args, known or ((args.session,) if args.session else ()))
    each_line = args.log == "gateway"
    opened = LogFiles(path, each_line=each_line)
    try:
        if args.session and not known and opened.find_last(1, wanted) is None:
            raise NotFound(
                f"There is no session {args.session!r}, and no log record mentions it.",
                hint="hermes sessions list",
            )
        if not opened.files and not args.follow:
            context.stderr.write(f"{path} does not exist yet\n")
            return 0
        start = opened.find_last(args.number, wanted)
        if start is not None:
            _print(context, filter(wanted, opened.records(start)))
        elif opened.files:
            opened.files[-1].seek(0, os.SEEK_END)
        if not args.follow:
            if start is None and args.number:
                context.stderr.write(f"No matching records in {path}\n")
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


def _record_filter(args: Namespace, names: tuple[str, ...]) -> RecordFilter:
    since = None
    if args.since:
        since = _parse_since(args.since).at(SystemClock().now())
    return RecordFilter(level=args.level or "", names=names, since=since)


def _parse_since(text: str) -> TimePoint:
    try:
        return TimePoint(text)
    except ArgumentTypeError as error:
        raise UsageError(
            f"--since: {error}.", hint="For example: hermes logs --since yesterday, or --since 2h"
        ) from error


def _session_names(session: str, home: Home) -> tuple[str, ...]:
    """The names of a session in the log: its id and session key; empty if unknown."""
    if not home.state_db.exists():
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
    style = Style(context.stdout, context.env.get("NO_COLOR"), context.env.get("TERM"))
    for record in records:
        text = escape_controls(record.decode("utf-8", "replace"))
        colour = _COLOURS.get(record_level(record))
        context.stdout.write(style(text, colour) if colour else text)
    context.stdout.flush()
