"""`sessions export`: chosen sessions to a file that appears whole, or to stdout as they come."""

import os
import tempfile
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct, structs

from hermes.app.archive import open_blobs
from hermes.cli.verbs.sessions.actions import SessionsAction
from hermes.cli.verbs.sessions.formats import html, markdown
from hermes.cli.verbs.sessions.formats.jsonl import SessionExport, encode
from hermes.cli.verbs.sessions.session_list import matching_sessions, selection_from
from hermes.cli.verbs.sessions.transcript import load_session
from hermes.kit.text import plural
from hermes.ports.blobs import Blobs
from hermes.schema.errors import NotFound, StoreError, UsageError
from hermes.schema.scope import OWNER
from hermes.schema.sessions import Session
from hermes.store.sqlite import SqliteStore

_SINGLE_JSON = "json"
"""As `jsonl`, for a single session."""
_SUFFIXES = {
    "": "jsonl",
    ".jsonl": "jsonl",
    ".json": _SINGLE_JSON,
    ".md": "md",
    ".markdown": "md",
    ".html": "html",
    ".htm": "html",
}


def export(desk: SessionsAction) -> int:
    args = desk.args
    wanted = selection_from(args, desk.clock.now(), reviews=True)
    if bool(args.sessions) == (args.all or not wanted.everything):
        raise UsageError(
            "Name the sessions to export, or choose them with --all and marks; not both.",
            hint="For example: hermes sessions export --all -o sessions.jsonl",
        )
    desk.require_sessions()
    output = Path(args.output).expanduser() if args.output not in {None, "-"} else None
    kind: str = args.format or _format_of(output)

    async def write(store: SqliteStore) -> _ExportCounts:
        sessions = await _selected_sessions(store, desk)
        if not sessions:
            raise NotFound("No session fits.", hint="`hermes sessions list` shows all there are.")
        if kind == _SINGLE_JSON and len(sessions) > 1:
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


def _format_of(output: Path | None) -> str:
    if output is None:
        return "jsonl"
    kind = _SUFFIXES.get(output.suffix.lower())
    if kind is None:
        raise UsageError(
            f"The name {output.name} does not say which format is meant.",
            hint="Call it .jsonl, .json, .md or .html, or choose one: --format jsonl",
        )
    return kind


class _ExportCounts(Struct):
    sessions: int = 0
    lost: int = 0


async def _selected_sessions(store: SqliteStore, desk: SessionsAction) -> list[Session]:
    """Without their prompts, which are long; the oldest first, so that parents come first."""
    archive = store.archive_for(OWNER)
    if desk.args.sessions:
        found = [await archive.find(name) for name in desk.args.sessions]
    else:
        wanted = selection_from(desk.args, desk.clock.now(), reviews=True)
        found = [digest.session async for digest in matching_sessions(archive, wanted)][::-1]
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
        self._written = _ExportCounts()

    async def run(self, sessions: Sequence[Session]) -> _ExportCounts:
        if self._kind == "html":
            self._out(_lines(html.page_start(sessions)))
        for session in sessions:
            try:
                copy = await load_session(self._store, session.id)
            except NotFound:
                # Deleted by somebody else since we looked: what is gone cannot be exported.
                continue
            if self._kind != "md":
                copy = structs.replace(copy, files=await self._files(copy))
            self._out(_render(copy, self._kind))
            self._written.sessions += 1
        if self._kind == "html":
            self._out(_lines([html.PAGE_END]))
        return self._written

    async def _files(self, copy: SessionExport) -> dict[str, bytes]:
        files: dict[str, bytes] = {}
        for digest in copy.digests:
            try:
                files[digest] = await self._blobs.read(digest)
            except StoreError:
                self._written.lost += 1
        return files


def _render(copy: SessionExport, kind: str) -> bytes:
    if kind in {"jsonl", _SINGLE_JSON}:
        return encode(copy)
    return _lines(html.render(copy) if kind == "html" else markdown.render(copy))


def _lines(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


@contextmanager
def _destination(desk: SessionsAction, output: Path | None) -> Generator[Callable[[bytes], object]]:
    if output is None:
        yield desk.printer.data
        return
    try:
        if output.exists() and not output.is_file():
            with output.open("wb") as file:
                yield file.write
            return
        with _atomic_file(output) as give:
            yield give
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror or error}.") from error


@contextmanager
def _atomic_file(output: Path) -> Generator[Callable[[bytes], object]]:
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
