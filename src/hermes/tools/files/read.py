"""The `read_file` tool: numbered lines of a text file, or an image for the model to see.

A file that was read before is read again: the tool cannot know what is still in the model's
context, and a stub in place of text costs more turns than it saves tokens.
"""

import stat as modes
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import anyio
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from hermes.kit.pictures import MAX_PICTURE, picture_kind
from hermes.ports.blobs import Blobs
from hermes.ports.tool import Output, ToolContext
from hermes.schema.errors import ToolError
from hermes.schema.messages import Text
from hermes.schema.tools import Effect, ToolSpec
from hermes.tools.arguments import Arguments, description, result
from hermes.tools.files.nearby import listing, suggestion
from hermes.tools.files.paging import Page, read_page, wide_encoding
from hermes.tools.files.seen import Seen
from hermes.tools.places import Places

MAX_LINES = 2_000
INLINE = 256_000
"""Bytes that are read without a thread."""
MAX_FILE = 4 << 30
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
        path = self._parts.places.guard(self._parts.places.find(ctx.scope, asked.path))
        try:
            size, head = _look(path)
            media_type = picture_kind(head)
            if media_type is not None:
                return await self._picture(path, media_type, size)
            _refuse_binary(path, head, size)
            page = await _page(path, asked, size)
        except OSError as error:
            raise ToolError(f"read_file: {path}: {error.strerror}") from error
        self._parts.seen.note(ctx.scope.session, path, page.stat)
        return self._text(page, asked)

    def _text(self, page: Page, asked: ReadArgs) -> Output:
        if page.total and not page.lines:
            raise ToolError(f"read_file: the file has {page.total} lines; `offset` is beyond them")
        plain = "\n".join(f"{n}|{line}" for n, line in enumerate(page.lines, page.first))
        content = self._parts.redact(plain)
        beyond = page.first + len(page.lines)
        notes: list[str] = []
        if beyond <= page.total:
            notes.append(f"{page.total - beyond + 1:,} lines follow; go on with offset={beyond}.")
        if content != plain:
            notes.append(_MASKED)
        answer = ReadResult(
            content=content,
            total_lines=page.total,
            file_size=page.stat.st_size,
            truncated=beyond <= page.total,
            encoding=page.encoding if page.encoding != "utf-8" else UNSET,
            note=" ".join(notes) or UNSET,
        )
        return Output.text(result(answer), shown=f"{asked.path}: {len(page.lines)} lines")

    async def _picture(self, path: Path, media_type: str, size: int) -> Output:
        if size > MAX_PICTURE:
            raise ToolError(
                f"read_file: the image {path} has {size:,} bytes; {MAX_PICTURE:,} are allowed.",
                hint="Make a smaller copy of it with the terminal first.",
            )
        data = await anyio.to_thread.run_sync(path.read_bytes)
        media = await self._parts.blobs.put(data, media_type, path.name)
        answer = ReadResult(
            content="", total_lines=0, file_size=size, truncated=False, is_image=True
        )
        return Output((Text(result(answer)), media), shown=f"{path.name} ({media_type})")


async def _page(path: Path, asked: ReadArgs, size: int) -> Page:
    limit = min(asked.limit, MAX_LINES)
    if size <= INLINE:
        return read_page(path, asked.offset, limit)
    return await anyio.to_thread.run_sync(read_page, path, asked.offset, limit)


def _look(path: Path) -> tuple[int, bytes]:
    """Size and first bytes of a regular file; anything else is explained."""
    try:
        stat = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise ToolError(f"read_file: {path} does not exist. {suggestion(path)}") from None
    if modes.S_ISDIR(stat.st_mode):
        raise ToolError(f"read_file: {path} is a folder with: {listing(path)}")
    if not modes.S_ISREG(stat.st_mode):
        raise ToolError(f"read_file: {path} is a device, pipe or socket, not a file")
    if stat.st_size > MAX_FILE:
        raise ToolError(
            f"read_file: {path} has {stat.st_size:,} bytes; at most {MAX_FILE:,} are read.",
            hint="Take a part of it with head, tail or sed in the terminal.",
        )
    with path.open("rb") as file:
        return stat.st_size, file.read(8_192)


def _refuse_binary(path: Path, head: bytes, size: int) -> None:
    if b"\0" in head and wide_encoding(head) is None:
        raise ToolError(
            f"read_file: {path} is a binary file of {size:,} bytes.",
            hint="Inspect it with file, strings or xxd in the terminal.",
        )
