"""The `read_file` tool: numbered lines of a text or document, or an image.

A file is always read again: the tool cannot know what is still in the model's context, and a
placeholder would cost more turns than it saves tokens.
"""

import os
from collections.abc import Callable
from functools import partial
from io import BufferedReader, BytesIO, FileIO
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated, BinaryIO

import anyio
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, structs

from hermes.kit.files import MAX_IMAGE_BYTES, document_type, image_type
from hermes.kit.text import plural
from hermes.ports.approvals import ApprovalRequest, Isolation
from hermes.ports.store import Blobs
from hermes.ports.tool import Tool, ToolContext, ToolOutput
from hermes.schema.errors import ToolError
from hermes.schema.messages import Text
from hermes.schema.scope import Scope
from hermes.schema.tools import Effect
from hermes.tools.collaborators import ToolCollaborators
from hermes.tools.files.documents import MAX_DOCUMENT, DocumentReader
from hermes.tools.files.editor import SeenFiles
from hermes.tools.files.pages import Page, read_page, wide_encoding
from hermes.tools.files.path_suggestions import list_folder, suggest_path
from hermes.tools.files.safe_open import Forbids, PathBlocked, open_folder
from hermes.tools.paths import BlockedPaths, SessionPaths
from hermes.tools.provenance.file_provenance import FileProvenance
from hermes.tools.thread_runner import ThreadRunner
from hermes.tools.tool_io import (
    DEFAULT_LIMITS,
    Arguments,
    OutputLimits,
    encode_result,
)

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MAX_FILE = 4 << 30
MAX_UNSIZED = 16 << 20
"""Bytes of a file without a size, as in some virtual file systems."""
READ_TIMEOUT = 20.0
"""Seconds to wait for a file, for example on a dead network drive."""
_NUMBERED_FROM_END = "Too long to count its lines: they are numbered from the end."
_SECRETS_MASKED = "Secrets in this text are masked: do not write it back."


class ReadArgs(Struct, frozen=True, forbid_unknown_fields=True):
    path: str
    offset: Annotated[int, Meta(description="First line, from 1; negative: from the end")] = 1
    limit: Annotated[int, Meta(ge=1, description="Lines, default 500")] = 500


class ReadResult(Struct, frozen=True, kw_only=True):
    content: str
    total_lines: int | None
    file_size: int
    truncated: bool
    is_binary: bool = False
    is_image: bool = False
    encoding: str | UnsetType = UNSET
    note: str | UnsetType = UNSET


class ReadDeps(Struct, frozen=True, kw_only=True):
    paths: SessionPaths
    seen: SeenFiles
    blobs: Blobs
    redact: Callable[[str], str]
    threads: ThreadRunner
    documents: DocumentReader
    provenance: FileProvenance
    timeout: float = READ_TIMEOUT
    limits: OutputLimits = DEFAULT_LIMITS


class _FileData(Struct, frozen=True, kw_only=True):
    """What was read: the bytes of an image or document, or a page of text."""

    path: Path
    stat: os.stat_result
    media_type: str = ""
    document: str = ""
    data: bytes = b""
    page: Page | None = None


class ReadFile:
    def __init__(self, deps: ReadDeps) -> None:
        self._deps = deps
        self._arguments = Arguments("read_file", ReadArgs)
        self.spec = self._arguments.spec(__file__, Effect.READ, timeout=60.0, toolset="file")

    async def run(self, args: Raw, ctx: ToolContext) -> ToolOutput:
        arguments = self._arguments.decode(args)
        places = self._deps.paths
        path = places.resolve(ctx.scope, arguments.path)
        try:
            found = await self._find(path, arguments, places.blocked_for(ctx.scope, private=True))
        except PathBlocked:
            blocked = places.blocked_for(ctx.scope)
            await _require_approval(ctx, places.guard(path, blocked))
            found = await self._find(path, arguments, blocked)
        output = await self._output(found, arguments, ctx)
        judge = partial(self._provenance_of, ctx.scope, found.path)
        foreign, unverified = await self._deps.threads.run(judge)
        return structs.replace(output, foreign=foreign, unverified=unverified)

    async def _output(self, found: _FileData, arguments: ReadArgs, ctx: ToolContext) -> ToolOutput:
        if found.media_type:
            return await self._image(found)
        self._deps.seen.note(ctx.scope.session, found.path, found.stat)
        if found.page is not None:
            return self._text(found.page, found.stat.st_size, arguments)
        return await self._document(found, arguments)

    def _provenance_of(self, scope: Scope, path: Path) -> tuple[bool, bool]:
        """Whether the file is untrusted, and whether others may have written it."""
        origins = self._deps.provenance
        foreign = origins.is_foreign(scope, path)
        return foreign, foreign or origins.is_unverified(scope, path)

    async def _find(self, path: Path, arguments: ReadArgs, blocked: BlockedPaths) -> _FileData:
        gone = Event()
        try:
            with anyio.fail_after(self._deps.timeout):
                return await self._deps.threads.run(
                    partial(self._read, path, arguments, blocked, gone)
                )
        except TimeoutError as error:
            raise ToolError(
                f"read_file: {path} did not respond within {self._deps.timeout:g} s.",
                hint="Try again in the terminal, with a timeout.",
            ) from error
        except OSError as error:
            raise ToolError(f"read_file: {path}: {error.strerror}.") from error
        finally:
            gone.set()

    def _read(
        self, path: Path, arguments: ReadArgs, blocked: BlockedPaths, gone: Event
    ) -> _FileData:
        real = self._deps.paths.guard(path, blocked)
        with _open_file(real, blocked.forbids, gone) as file:
            stat = os.fstat(file.fileno())
            head = os.read(file.fileno(), 8_192)
            if media_type := image_type(head):
                data = _read_whole(file, real, MAX_IMAGE_BYTES, "image")
                return _FileData(path=real, stat=stat, media_type=media_type, data=data)
            if kind := document_type(real, head):
                data = _read_whole(file, real, MAX_DOCUMENT, "document")
                return _FileData(path=real, stat=stat, document=kind, data=data)
            _reject_binary(real, head, stat.st_size)
            source: BinaryIO = (
                file if stat.st_size else BytesIO(head + (file.read(MAX_UNSIZED) or b""))
            )
            page = self._page(source, stat.st_size or MAX_UNSIZED, arguments)
            return _FileData(path=real, stat=stat, page=page)

    def _page(self, source: BinaryIO, size: int, arguments: ReadArgs) -> Page:
        limits = self._deps.limits
        caps = structs.replace(limits, lines=min(arguments.limit, limits.lines))
        return read_page(source, size, arguments.offset, caps, self._deps.redact)

    async def _document(self, found: _FileData, arguments: ReadArgs) -> ToolOutput:
        stat = found.stat
        stamp = (stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size)
        extract = await self._deps.documents.text(found.document, found.data, found.path, stamp)
        text = extract.text.encode("utf-8", "replace")
        page = await self._deps.threads.run(
            partial(self._page, BytesIO(text), len(text), arguments)
        )
        return self._text(page, stat.st_size, arguments, extract.note)

    def _text(self, page: Page, size: int, arguments: ReadArgs, note: str = "") -> ToolOutput:
        if page.total and not page.lines:
            raise ToolError(f"read_file: the file has {page.total} lines; `offset` is too large.")
        plain = "\n".join(f"{n}|{line}" for n, line in enumerate(page.lines, page.first))
        content = self._deps.redact(plain)
        notes: list[str] = [note] if note else []
        if page.total is None:
            notes.append(_NUMBERED_FROM_END)
        if page.remaining > 0:
            notes.append(
                f"{plural(page.remaining, 'line')} left; continue with offset={page.next_line}."
            )
        if page.masked or content != plain:
            notes.append(_SECRETS_MASKED)
        answer = ReadResult(
            content=content,
            total_lines=page.total,
            file_size=size,
            truncated=page.remaining > 0,
            encoding=page.encoding if page.encoding != "utf-8" else UNSET,
            note=" ".join(notes) or UNSET,
        )
        return ToolOutput.text(
            encode_result(answer), shown=f"{arguments.path}: {plural(len(page.lines), 'line')}"
        )

    async def _image(self, found: _FileData) -> ToolOutput:
        name = found.path.name
        media = await self._deps.blobs.put(found.data, found.media_type, name)
        answer = ReadResult(
            content="",
            total_lines=0,
            file_size=len(found.data),
            truncated=False,
            is_image=True,
        )
        return ToolOutput(
            (Text(encode_result(answer)), media), shown=f"{name} ({found.media_type})"
        )


async def _require_approval(ctx: ToolContext, real: Path) -> None:
    """Ask to read one of the user's private files. Raises `ToolError` if it is denied."""
    request = ApprovalRequest(
        tool="read_file",
        action=str(real),
        reaching=Isolation.BEYOND,
        folder=str(real.parent),
        foreign=ctx.foreign,
    )
    decision = await ctx.request_approval(request)
    if not decision.allowed:
        raise ToolError(
            f"{real} is one of the user's private files and was not read. {decision.why}".strip()
        )


def _read_whole(file: BinaryIO, path: Path, limit: int, what: str) -> bytes:
    size = os.fstat(file.fileno()).st_size
    if size > limit:
        raise ToolError(
            f"read_file: the {what} {path} has {size:,} bytes; {limit:,} are allowed.",
            hint="Make a smaller copy with the terminal first.",
        )
    file.seek(0)
    return file.read(limit)


class _Abandoned(Exception):
    """The read was cancelled."""


class _CancellableFile(FileIO):
    """A file that stops reading once the caller is gone."""

    def __init__(self, handle: int, gone: Event) -> None:
        super().__init__(handle, "rb")
        self._gone = gone

    def readinto(self, buffer: "WriteableBuffer", /) -> int | None:
        if self._gone.is_set():
            raise _Abandoned
        return super().readinto(buffer)


def _open_file(real: Path, forbids: Forbids, gone: Event) -> BinaryIO:
    """Open a regular file; explain anything else."""
    try:
        with open_folder(real.parent, forbids) as folder:
            handle = folder.open(real.name)
    except (FileNotFoundError, NotADirectoryError):
        raise ToolError(f"read_file: {real} does not exist. {suggest_path(real)}") from None
    except IsADirectoryError:
        raise ToolError(f"read_file: {real} is a folder with: {list_folder(real)}") from None
    size = os.fstat(handle).st_size
    if size > MAX_FILE:
        os.close(handle)
        raise ToolError(
            f"read_file: {real} has {size:,} bytes; the limit is {MAX_FILE:,}.",
            hint="Read a part of it with head, tail or sed in the terminal.",
        )
    return BufferedReader(_CancellableFile(handle, gone))


def _reject_binary(path: Path, head: bytes, size: int) -> None:
    if b"\0" in head and wide_encoding(head) is None:
        raise ToolError(
            f"read_file: {path} is a binary file of {size:,} bytes.",
            hint="Inspect it with file, strings or xxd in the terminal.",
        )


def build_read_file(deps: ToolCollaborators) -> Tool:
    return deps.with_instructions(
        ReadFile(
            ReadDeps(
                paths=deps.paths,
                seen=deps.seen_files,
                blobs=deps.blobs,
                redact=deps.file_redactor,
                threads=deps.threads,
                documents=DocumentReader(deps.files_sandbox),
                provenance=deps.provenance,
                limits=deps.output_limits,
            )
        )
    )
