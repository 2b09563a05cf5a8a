"""The `read_file` tool: numbered lines of a text file, or an image for the model to see.

A file that was read before is read again: the tool cannot know what is still in the model's
context, and a stub in place of text costs more turns than it saves tokens.
"""

import os
import stat as modes
from collections.abc import Callable
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Annotated, BinaryIO

import anyio
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from hermes.kit.pictures import MAX_PICTURE, picture_kind
from hermes.ports.blobs import Blobs
from hermes.ports.tool import Output, ToolContext
from hermes.schema.errors import ToolError
from hermes.schema.messages import Text
from hermes.schema.tools import Effect, ToolSpec
from hermes.tools.arguments import Arguments, description, result
from hermes.tools.aside import Aside
from hermes.tools.files.nearby import listing, suggestion
from hermes.tools.files.paging import Page, read_page, wide_encoding
from hermes.tools.files.seen import Seen
from hermes.tools.places import Places

MAX_LINES = 2_000
MAX_FILE = 4 << 30
UNSIZED = 16 << 20
"""Bytes of a file that has no size of its own, as those of /proc, some of which have no end."""
PATIENCE = 20.0
"""Seconds for a file that does not answer: a dead network drive, a page of /proc."""
_MASKED = "Secrets in this text are masked: do not write it back."


class ReadArgs(Struct, frozen=True, forbid_unknown_fields=True):
    path: str
    offset: Annotated[int, Meta(description="First line, from 1; negative: from the end")] = 1
    limit: Annotated[int, Meta(ge=1, description="Lines, default 500")] = 500


class ReadResult(Struct, frozen=True, kw_only=True):
    content: str
    total_lines: int
    file_size: int
    truncated: bool
    is_binary: bool = False
    is_image: bool = False
    encoding: str | UnsetType = UNSET
    note: str | UnsetType = UNSET


class ReadParts(Struct, frozen=True, kw_only=True):
    places: Places
    seen: Seen
    blobs: Blobs
    redact: Callable[[str], str]
    aside: Aside
    patience: float = PATIENCE


class _Found(Struct, frozen=True, kw_only=True):
    """What was read: an image's bytes, or else a page of text."""

    stat: os.stat_result
    media_type: str = ""
    picture: bytes = b""
    page: Page | None = None


class ReadFile:
    def __init__(self, parts: ReadParts) -> None:
        self._parts = parts
        self._arguments = Arguments("read_file", ReadArgs)
        self.spec = ToolSpec(
            "read_file",
            description(__file__),
            self._arguments.schema,
            Effect.READ,
            timeout=60.0,
            toolset="file",
        )

    async def run(self, args: Raw, ctx: ToolContext) -> Output:
        asked = self._arguments.decode(args)
        path = self._parts.places.find(ctx.scope, asked.path)
        try:
            with anyio.fail_after(self._parts.patience):
                found = await self._parts.aside.run(partial(self._read, path, asked))
        except TimeoutError as error:
            raise ToolError(
                f"read_file: {path} did not answer within {self._parts.patience:g} s.",
                hint="Try it in the terminal, with timeout.",
            ) from error
        except OSError as error:
            raise ToolError(f"read_file: {path}: {error.strerror}") from error
        if found.page is None:
            return await self._picture(path, found)
        self._parts.seen.note(ctx.scope.session, path, found.stat)
        return self._text(found.page, found.stat.st_size, asked)

    def _read(self, path: Path, asked: ReadArgs) -> _Found:
        with _opened(self._parts.places.guard(path)) as file:
            stat = os.fstat(file.fileno())
            head = os.read(file.fileno(), 8_192)
            if media_type := picture_kind(head):
                return _Found(stat=stat, media_type=media_type, picture=_picture(file, path))
            _refuse_binary(path, head, stat.st_size)
            source: BinaryIO = file if stat.st_size else BytesIO(head + (file.read(UNSIZED) or b""))
            page = read_page(
                source,
                stat.st_size or UNSIZED,
                asked.offset,
                min(asked.limit, MAX_LINES),
                self._parts.redact,
            )
            return _Found(stat=stat, page=page)

    def _text(self, page: Page, size: int, asked: ReadArgs) -> Output:
        if page.total and not page.lines:
            raise ToolError(f"read_file: the file has {page.total} lines; `offset` is beyond them")
        plain = "\n".join(f"{n}|{line}" for n, line in enumerate(page.lines, page.first))
        content = self._parts.redact(plain)
        beyond = page.first + len(page.lines)
        notes: list[str] = []
        if beyond <= page.total:
            notes.append(f"{page.total - beyond + 1:,} lines follow; go on with offset={beyond}.")
        if page.masked or content != plain:
            notes.append(_MASKED)
        answer = ReadResult(
            content=content,
            total_lines=page.total,
            file_size=size,
            truncated=beyond <= page.total,
            encoding=page.encoding if page.encoding != "utf-8" else UNSET,
            note=" ".join(notes) or UNSET,
        )
        return Output.text(result(answer), shown=f"{asked.path}: {len(page.lines)} lines")

    async def _picture(self, path: Path, found: _Found) -> Output:
        media = await self._parts.blobs.put(found.picture, found.media_type, path.name)
        answer = ReadResult(
            content="",
            total_lines=0,
            file_size=len(found.picture),
            truncated=False,
            is_image=True,
        )
        return Output((Text(result(answer)), media), shown=f"{path.name} ({found.media_type})")


def _picture(file: BinaryIO, path: Path) -> bytes:
    size = os.fstat(file.fileno()).st_size
    if size > MAX_PICTURE:
        raise ToolError(
            f"read_file: the image {path} has {size:,} bytes; {MAX_PICTURE:,} are allowed.",
            hint="Make a smaller copy of it with the terminal first.",
        )
    file.seek(0)
    return file.read(MAX_PICTURE)


def _opened(path: Path) -> BinaryIO:
    """A regular file, open; anything else is explained.

    It is looked at before it is opened, because opening a device may already do something, and
    again afterwards, because it may have become another; without waiting, because even a
    regular file of /proc may have nothing to say.
    """
    try:
        _check(path, path.stat())
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        raise ToolError(f"read_file: {path} does not exist. {suggestion(path)}") from None
    file = os.fdopen(handle, "rb")
    try:
        _check(path, os.fstat(handle))
    except ToolError:
        file.close()
        raise
    return file


def _check(path: Path, stat: os.stat_result) -> None:
    if modes.S_ISDIR(stat.st_mode):
        raise ToolError(f"read_file: {path} is a folder with: {listing(path)}")
    if not modes.S_ISREG(stat.st_mode):
        raise ToolError(f"read_file: {path} is a device, pipe or socket, not a file")
    if stat.st_size > MAX_FILE:
        raise ToolError(
            f"read_file: {path} has {stat.st_size:,} bytes; at most {MAX_FILE:,} are read.",
            hint="Take a part of it with head, tail or sed in the terminal.",
        )


def _refuse_binary(path: Path, head: bytes, size: int) -> None:
    if b"\0" in head and wide_encoding(head) is None:
        raise ToolError(
            f"read_file: {path} is a binary file of {size:,} bytes.",
            hint="Inspect it with file, strings or xxd in the terminal.",
        )
