"""`sessions export`: chosen sessions to a file that appears whole, or to stdout as they come."""

import os
import tempfile
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct, structs

from hermes.app.archive import open_blobs
from hermes.cli.export import html, markdown
from hermes.cli.export.jsonl import Copy, encode
from hermes.cli.verbs.sessions.desk import Desk
from hermes.cli.verbs.sessions.selection import matching, selection
from hermes.cli.verbs.sessions.showing import fetch
from hermes.kit.text import plural
from hermes.ports.blobs import Blobs
from hermes.schema.errors import NotFound, StoreError, UsageError
from hermes.schema.scope import OWNER
from hermes.schema.sessions import Session
from hermes.store.sqlite import SqliteStore

_JSON = "json"
"""As `jsonl`, for a single session."""
_SUFFIXES = {
    "": "jsonl",
    ".jsonl": "jsonl",
    ".json": _JSON,
    ".md": "md",
    ".markdown": "md",
    ".html": "html",
    ".htm": "html",
}


def export(desk: Desk) -> int:
    args = desk.args
    wanted = selection(args, desk.clock.now(), reviews=True)
    if bool(args.sessions) == (args.all or not wanted.everything):
        raise UsageError(
            "Name the sessions to export, or choose them with --all and marks; not both.",
            hint="For example: hermes sessions export --all -o sessions.jsonl",
        )
    desk.need_sessions()
    output = Path(args.output).expanduser() if args.output not in {None, "-"} else None
    kind: str = args.format or _kind(output)

    async def write(store: SqliteStore) -> _Written:
        sessions = await _chosen(store, desk)
        if not sessions:
            raise NotFound("No session fits.", hint="`hermes sessions list` shows all there are.")
        if kind == _JSON and len(sessions) > 1:
            raise UsageError(
                f"A .json file holds one session, and these are {len(sessions)}.",
                hint=f"Write one line for each: -o {Path(args.output).with_suffix('.jsonl')}",
            )
        with _destination(desk, output) as out:
            return await _Writer(store, open_blobs(desk.context.home()), kind, out).run(sessions)

    written = desk.with_store(write)
    if output is not None:
        desk.note(f"{plural(written.sessions, 'session')} written to {output}.")
    if written.lost:
        desk.note(f"{plural(written.lost, 'file')} named in them could not be read any more.")
    return 0


def _kind(output: Path | None) -> str:
    if output is None:
        return "jsonl"
    kind = _SUFFIXES.get(output.suffix.lower())
    if kind is None:
        raise UsageError(
            f"The name {output.name} does not say which format is meant.",
            hint="Call it .jsonl, .json, .md or .html, or choose one: --format jsonl",
        )
    return kind


class _Written(Struct):
    sessions: int = 0
    lost: int = 0


async def _chosen(store: SqliteStore, desk: Desk) -> list[Session]:
    """Without their prompts, which are long; the oldest first, so that parents come first."""
    archive = store.seen_by(OWNER)
    if desk.args.sessions:
        found = [await archive.find(name) for name in desk.args.sessions]
    else:
        wanted = selection(desk.args, desk.clock.now(), reviews=True)
        found = [digest.session async for digest in matching(archive, wanted)][::-1]
    unique = {session.id: structs.replace(session, system="") for session in found}
    return list(unique.values())


class _Writer:
    """One session after the other, so that only one is ever in memory."""

    def __init__(
        self, store: SqliteStore, blobs: Blobs, kind: str, out: Callable[[bytes], object]
    ) -> None:
        self._store = store
        self._blobs = blobs
        self._kind = kind
        self._out = out
        self._written = _Written()

    async def run(self, sessions: Sequence[Session]) -> _Written:
        if self._kind == "html":
            self._out(_lines(html.opening(sessions)))
        for session in sessions:
            try:
                copy = await fetch(self._store, session.id)
            except NotFound:
                # Deleted by somebody else since we looked: what is gone cannot be exported.
                continue
            if self._kind != "md":
                copy = structs.replace(copy, files=await self._files(copy))
            self._out(_rendered(copy, self._kind))
            self._written.sessions += 1
        if self._kind == "html":
            self._out(_lines([html.CLOSING]))
        return self._written

    async def _files(self, copy: Copy) -> dict[str, bytes]:
        files: dict[str, bytes] = {}
        for digest in copy.digests:
            try:
                files[digest] = await self._blobs.read(digest)
            except StoreError:
                self._written.lost += 1
        return files


def _rendered(copy: Copy, kind: str) -> bytes:
    if kind in {"jsonl", _JSON}:
        return encode(copy)
    return _lines(html.render(copy) if kind == "html" else markdown.render(copy))


def _lines(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


@contextmanager
def _destination(desk: Desk, output: Path | None) -> Generator[Callable[[bytes], object]]:
    if output is None:
        yield desk.paper.data
        return
    try:
        if output.exists() and not output.is_file():
            with output.open("wb") as file:
                yield file.write
            return
        with _whole(output) as give:
            yield give
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror or error}.") from error


@contextmanager
def _whole(output: Path) -> Generator[Callable[[bytes], object]]:
    """A private file beside the target, which takes its place once it is complete."""
    target = output.resolve()
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file.write
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
