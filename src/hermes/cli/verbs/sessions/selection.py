"""Which sessions an action means: the marks given on the command line, and what fits them."""

from argparse import Namespace
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path

from msgspec import Struct

from hermes.ports.store import Archive
from hermes.schema.sessions import Digest, SessionFilter

_PAGE = 200


class Selection(Struct, frozen=True):
    """`unused_since` looks at the last message, so that a long talk is as old as its end."""

    where: SessionFilter
    unused_since: datetime | None = None

    @property
    def everything(self) -> bool:
        return self == Selection(SessionFilter(reviews=self.where.reviews))


def selection(args: Namespace, now: datetime, *, reviews: bool = False) -> Selection:
    """With `reviews` also the sessions that nobody but the agent held."""
    unused_since = None if args.older_than is None else now - args.older_than
    before = None if args.before is None else args.before.at(now)
    bounds = [bound for bound in (before, unused_since) if bound is not None]
    return Selection(
        SessionFilter(
            source=args.source,
            model=args.model,
            title=args.title,
            cwd=None if args.cwd is None else str(Path(args.cwd).expanduser().resolve()),
            started_before=min(bounds, default=None),
            started_after=None if args.since is None else args.since.at(now),
            min_messages=args.min_messages,
            max_messages=args.max_messages,
            reviews=reviews,
        ),
        unused_since,
    )


async def matching(
    archive: Archive, wanted: Selection, limit: int | None = None
) -> AsyncIterator[Digest]:
    """The last used first; what moves while we turn the pages is given once."""
    seen: set[str] = set()
    offset = 0
    size = _PAGE if limit is None else min(limit, _PAGE)
    while True:
        page = await archive.list(wanted.where, size, offset)
        for digest in page:
            fits = wanted.unused_since is None or digest.last_at < wanted.unused_since
            if not fits or digest.session.id in seen:
                continue
            seen.add(digest.session.id)
            yield digest
            if len(seen) == limit:
                return
        if len(page) < size:
            return
        offset += size
