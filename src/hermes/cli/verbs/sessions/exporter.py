"""`sessions export`: write sessions atomically to a file, or to stdout."""

import os
import tempfile
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct, structs

from hermes.app.session_documents import (
    PAGE_END,
    page_start,
    render_html,
    render_markdown,
)
from hermes.app.session_export import SessionExport, encode, load_session
from hermes.app.storage import open_blobs
from hermes.cli.verbs.sessions import SessionsAction
from hermes.cli.verbs.sessions.session_list import matching_sessions, selection_from
from hermes.kit.text import plural
from hermes.ports.store import Blobs, Store
from hermes.schema.errors import NotFound, StoreError, UsageError
from hermes.schema.scope import OWNER
from hermes.schema.sessions import Session

_SINGLE_JSON = "json"
"""Like `jsonl`, for a single session."""
_SUFFIXES = {
    "": "jsonl",
    ".jsonl": "jsonl",
    ".json": _SINGLE_JSON,
    ".md": "md",
    ".markdown": "md",
    ".html": "html",
    ".htm": "html",
}


def export(action: SessionsAction) -> int:
    args = action.args
    wanted = selection_from(args, action.clock.now(), reviews=True)
    if bool(args.sessions) == (args.all or not wanted.everything):
        raise UsageError(
            "Name the sessions to export, or select them with --all or filters, not both.",
            hint="For example: hermes sessions export --all -o sessions.jsonl",
        )
    action.require_sessions()
    output = Path(args.output).expanduser() if args.output not in {None, "-"} else None
    kind: str = args.format or _format_of(output)

    async def write(store: Store) -> _ExportCounts:
        sessions = await _selected_sessions(store, action)
        if not sessions:
            raise NotFound("No matching sessions.", hint="List all sessions: hermes sessions list")
        if kind == _SINGLE_JSON and len(sessions) > 1:
            raise UsageError(
                f"A .json file holds one session; {len(sessions)} are selected.",
                hint=f"Use one line per session: -o {Path(args.output).with_suffix('.jsonl')}",
            )
        with _destination(action, output) as out:
            return await _Writer(store, open_blobs(action.context.home()), kind, out).run(sessions)

    written = action.with_store(write)
    if output is not None:
        action.note(f"{plural(written.sessions, 'session')} written to {output}.")
    if written.unreadable:
        action.note(f"{plural(written.unreadable, 'file')} mentioned in them could not be read.")
    return 0


def _format_of(output: Path | None) -> str:
    if output is None:
        return "jsonl"
    kind = _SUFFIXES.get(output.suffix.lower())
    if kind is None:
        raise UsageError(
            f"Cannot tell the format from the name {output.name}.",
            hint="Use .jsonl, .json, .md or .html, or choose one: --format jsonl",
        )
    return kind


class _ExportCounts(Struct):
    sessions: int = 0
    unreadable: int = 0


async def _selected_sessions(store: Store, action: SessionsAction) -> list[Session]:
    """The sessions without system prompts, oldest first, so that parents come first."""
    archive = store.archive_for(OWNER)
    if action.args.sessions:
        found = [await archive.find(name) for name in action.args.sessions]
    else:
        wanted = selection_from(action.args, action.clock.now(), reviews=True)
        found = [summary.session async for summary in matching_sessions(archive, wanted)][::-1]
    return list({session.id: structs.replace(session, system="") for session in found}.values())


class _Writer:
    """Writes one session at a time, so that only one is in memory."""

    def __init__(
        self, store: Store, blobs: Blobs, kind: str, out: Callable[[bytes], object]
    ) -> None:
        self._store = store
        self._blobs = blobs
        self._kind = kind
        self._out = out
        self._written = _ExportCounts()

    async def run(self, sessions: Sequence[Session]) -> _ExportCounts:
        if self._kind == "html":
            self._out(_lines(page_start(sessions)))
        for session in sessions:
            try:
                copy = await load_session(self._store, session.id)
            except NotFound:
                # Deleted by another process in the meantime.
                continue
            if self._kind != "md":
                copy = structs.replace(copy, files=await self._files(copy))
            self._out(_render(copy, self._kind))
            self._written.sessions += 1
        if self._kind == "html":
            self._out(_lines([PAGE_END]))
        return self._written

    async def _files(self, copy: SessionExport) -> dict[str, bytes]:
        files: dict[str, bytes] = {}
        for digest in copy.digests:
            try:
                files[digest] = await self._blobs.read(digest)
            except StoreError:
                self._written.unreadable += 1
        return files


def _render(copy: SessionExport, kind: str) -> bytes:
    if kind in {"jsonl", _SINGLE_JSON}:
        return encode(copy)
    return _lines((render_html if kind == "html" else render_markdown)(copy))


def _lines(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


@contextmanager
def _destination(
    action: SessionsAction, output: Path | None
) -> Generator[Callable[[bytes], object]]:
    if output is None:
        yield action.printer.data
        return
    try:
        if output.exists() and not output.is_file():
            with output.open("wb") as file:
                yield file.write
            return
        with _atomic_file(output) as write:
            yield write
    except OSError as error:
        raise UsageError(f"Cannot write {output}: {error.strerror or error}.") from error


@contextmanager
def _atomic_file(output: Path) -> Generator[Callable[[bytes], object]]:
    """Write a temporary file that replaces the target once it is complete."""
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
