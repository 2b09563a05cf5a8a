"""What `hermes logs` does: print the last records that are wanted, then those that come."""

import os
import time
from argparse import ArgumentTypeError, Namespace
from collections.abc import Iterable

from hermes.cli.context import CliContext
from hermes.cli.export.plain import harmless
from hermes.cli.log_reading import Follower, Opened, Wanted, level_in
from hermes.cli.style import Style
from hermes.cli.verbs.sessions.when import Moment
from hermes.config.home import Home
from hermes.kit.clock import SystemClock
from hermes.schema.errors import NotFound, StoreError, UsageError
from hermes.schema.scope import OWNER

GLANCE = 0.25
"""Seconds between two looks at a log that is followed."""
_COLOURS = {"WARNING": "yellow", "ERROR": "red", "CRITICAL": "red"}


def show_logs(args: Namespace, context: CliContext) -> int:
    if args.number < 0:
        raise UsageError("-n needs a number that is not negative.", hint="For example: -n 100")
    home = context.home()
    path = home.logs / f"{args.log}.log"
    known = _names_of(args.session, home) if args.session else ()
    wanted = _wanted(args, known or ((args.session,) if args.session else ()))
    each_line = args.log == "gateway"
    opened = Opened(path, each_line=each_line)
    try:
        if args.session and not known and opened.last(1, wanted) is None:
            raise NotFound(
                f"There is no session {args.session!r}, and no record names it.",
                hint="hermes sessions list",
            )
        if not opened.files and not args.follow:
            context.stderr.write(f"Nothing was logged yet in {path}\n")
            return 0
        place = opened.last(args.number, wanted)
        if place is not None:
            _print(context, filter(wanted, opened.records(place)))
        elif opened.files:
            opened.files[-1].seek(0, os.SEEK_END)
        if not args.follow:
            if place is None and args.number:
                context.stderr.write(f"Nothing in {path} is of that kind.\n")
            return 0
        follower = Follower(path, opened.newest(), each_line=each_line)
    finally:
        opened.close()
    try:
        while True:
            _print(context, filter(wanted, follower.look()))
            time.sleep(GLANCE)
    finally:
        follower.close()


def _wanted(args: Namespace, names: tuple[str, ...]) -> Wanted:
    since = None
    if args.since:
        since = _moment(args.since).at(SystemClock().now())
    return Wanted(level=args.level or "", names=names, since=since)


def _moment(text: str) -> Moment:
    try:
        return Moment(text)
    except ArgumentTypeError as error:
        raise UsageError(
            f"--since: {error}.", hint="For example: hermes logs --since yesterday, or --since 2h"
        ) from error


def _names_of(session: str, home: Home) -> tuple[str, ...]:
    """What a session may be called in a log: its whole id, and its place; nothing if unknown."""
    if not home.state_db.exists():
        return ()
    import anyio

    from hermes.app.archive import listed_as, open_archive

    async def find() -> tuple[str, ...]:
        async with open_archive(home, SystemClock()) as store:
            archive = store.seen_by(OWNER)
            try:
                found = await archive.find(session)
            except NotFound:
                found = await listed_as(archive, session)
            return tuple(filter(None, (found.id, found.key))) if found else ()

    try:
        return anyio.run(find)
    except StoreError:
        # It may have been deleted, or the database may be what is wrong; the log is still there.
        return ()


def _print(context: CliContext, records: Iterable[bytes]) -> None:
    style = Style(context.stdout, context.env.get("NO_COLOR"), context.env.get("TERM"))
    for record in records:
        text = harmless(record.decode("utf-8", "replace"))
        colour = _COLOURS.get(level_in(record))
        context.stdout.write(style(text, colour) if colour else text)
    context.stdout.flush()
