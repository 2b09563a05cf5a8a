"""Read files that the agent sends to a chat, subject to the rules for reading files."""

import mimetypes
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct

from hermes.ports.approvals import ApprovalRequest, Isolation
from hermes.ports.channel import Attachment
from hermes.ports.store import Blobs
from hermes.ports.tool import ToolContext
from hermes.schema.errors import ToolError
from hermes.tools.files.safe_open import PathBlocked, open_folder
from hermes.tools.paths import BlockedPaths, SessionPaths
from hermes.tools.provenance.file_provenance import FileProvenance
from hermes.tools.thread_runner import ThreadRunner
from hermes.tools.tool_io import require_approval

MAX_FILES = 10
MAX_BYTES = 50_000_000
_VOICE = "audio/ogg"


class SentFiles(Struct, frozen=True):
    """The files, and whether any of them is untrusted content."""

    attachments: tuple[Attachment, ...] = ()
    names: tuple[str, ...] = ()
    foreign: bool = False


class SentFileReader:
    def __init__(
        self,
        *,
        paths: SessionPaths,
        blobs: Blobs,
        threads: ThreadRunner,
        provenance: FileProvenance,
    ) -> None:
        self._paths = paths
        self._blobs = blobs
        self._threads = threads
        self._provenance = provenance

    async def read(self, ctx: ToolContext, names: Sequence[str]) -> SentFiles:
        """Store the files for delivery. Raises `ToolError` if one cannot be sent."""
        _check_count(names)
        attachments: list[Attachment] = []
        real_names: list[str] = []
        foreign = False
        for name in names:
            path = self._paths.resolve(ctx.scope, name)
            real, data = await self._content(ctx, path)
            media_type = mimetypes.guess_type(real.name)[0] or "application/octet-stream"
            media = await self._blobs.put(data, media_type, real.name)
            attachments.append(Attachment(media, len(data), voice=media_type == _VOICE))
            real_names.append(str(real))
            judge = partial(self._provenance.is_foreign, ctx.scope, real)
            foreign |= await self._threads.run(judge)
        return SentFiles(tuple(attachments), tuple(real_names), foreign)

    async def check(self, ctx: ToolContext, names: Sequence[str]) -> list[str]:
        """The real paths of files that the dashboard may offer. Raises `ToolError` if not."""
        _check_count(names)
        blocked = self._paths.blocked_for(ctx.scope, private=True)
        found: list[str] = []
        for name in names:
            path = self._paths.resolve(ctx.scope, name)
            read = partial(read_sent_file, self._paths, path, blocked)
            found.append(str((await self._threads.run(read))[0]))
        return found

    async def _content(self, ctx: ToolContext, path: Path) -> tuple[Path, bytes]:
        try:
            blocked = self._paths.blocked_for(ctx.scope, private=True)
            return await self._threads.run(partial(read_sent_file, self._paths, path, blocked))
        except PathBlocked:
            blocked = self._paths.blocked_for(ctx.scope)
            request = ApprovalRequest(
                tool="send_message",
                action=f"send the file {self._paths.guard(path, blocked)}",
                reaching=Isolation.BEYOND,
                foreign=ctx.foreign,
            )
            await require_approval(ctx, request)
            return await self._threads.run(partial(read_sent_file, self._paths, path, blocked))


def _check_count(names: Sequence[str]) -> None:
    if len(names) > MAX_FILES:
        raise ToolError(f"send_message: at most {MAX_FILES} files at a time.")


def read_sent_file(paths: SessionPaths, path: Path, blocked: BlockedPaths) -> tuple[Path, bytes]:
    """The real path and the content. Raises `ToolError`."""
    real = paths.guard(path, blocked)
    try:
        with open_folder(real.parent, blocked.forbids) as folder:
            handle = folder.open(real.name)
        with os.fdopen(handle, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            data = file.read(MAX_BYTES + 1) if size <= MAX_BYTES else b""
    except OSError as error:
        raise ToolError(f"{real}: {error.strerror}.") from error
    if size > MAX_BYTES or len(data) > MAX_BYTES:
        raise ToolError(f"{real} has more than {MAX_BYTES:,} bytes.")
    if not data:
        raise ToolError(f"{real} is empty.")
    return real, data
