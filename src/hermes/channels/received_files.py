"""Fetch and store the files that people send, and describe them for the model."""

import logging
import mimetypes
import re
from collections.abc import Awaitable, Callable
from pathlib import Path, PurePosixPath
from typing import Literal, TypeAlias

import anyio
from msgspec import Struct, structs

from hermes.kit.clock import Clock
from hermes.kit.retry import Backoff
from hermes.ports.channel import (
    ChannelDeps,
    Inbound,
    NotSent,
    Offline,
    Recording,
    Throttled,
    UnknownOutcome,
)
from hermes.ports.store import Blobs
from hermes.schema.messages import Media, Text, sent_file_text

log = logging.getLogger(__name__)

INLINE_LIMIT = 100_000
"""Text files up to this size are shown to the model in the message."""
ATTEMPTS = 3
MAX_NAME = 200
VOICE_KINDS = frozenset({"voice note", "voice message"})
NOT_FETCHED = Text(
    "(Files came with this message before its sender was admitted: send them again.)"
)
NOT_SET_UP = "was not transcribed, because no speech recognition is set up"
_TEXT_TYPES = frozenset({"application/json", "application/xml", "application/toml"})
_TEXT_NAMES = re.compile(r"\.(md|txt|csv|log|json|xml|ya?ml|toml|ini|cfg|ts|py|sh)", re.IGNORECASE)
_UNSAFE = re.compile(r"[^\w.\- ]+")
_TOO_LARGE = re.compile(r"too (big|large)")

RecordingKind: TypeAlias = Literal["", "audio", "video"]


class AttachedFile(Struct, frozen=True, kw_only=True):
    """A file of a message that is not downloaded yet.

    `kind` is the word for people: a file, photo, video, or a recording such as a voice note.
    """

    name: str
    media_type: str
    kind: str = "file"
    size: int = 0
    seconds: float = 0.0
    recording: RecordingKind = ""

    @property
    def is_voice(self) -> bool:
        """Whether it is the sender's speech rather than a file."""
        return self.kind in VOICE_KINDS


class ReceivedFiles:
    """Files go into the blob store; documents are also stored in `folder` for the tools.

    `max_bytes` is the maximum size of a file. `admits` tells whether the gateway admits a sender.
    """

    def __init__(
        self,
        blobs: Blobs,
        clock: Clock,
        *,
        folder: Path,
        max_bytes: int,
        admits: Callable[[Inbound], Awaitable[bool]],
    ) -> None:
        self._blobs = blobs
        self._clock = clock
        self._folder = folder
        self._max_bytes = max_bytes
        self._admits = admits
        self._backoff = Backoff(base=1.0, cap=10.0)

    @property
    def _too_large(self) -> str:
        return f"it is larger than {self._max_bytes // 1_000_000} MB"

    async def refused(self, update: Inbound) -> Inbound | None:
        """The update without its files if its sender is not admitted; None if they may be fetched.

        Otherwise anyone could fill the disk.
        """
        return None if await self._admits(update) else structs.replace(update, parts=(NOT_FETCHED,))

    async def fetch(
        self, file: AttachedFile, download: Callable[[], Awaitable[bytes]]
    ) -> list[Text | Media]:
        """Fetch a file and return its parts of the message; a note if it cannot be fetched."""
        if file.size > self._max_bytes:
            return [_missing(file, self._too_large)]
        try:
            data = await self._with_retries(download)
        except (NotSent, UnknownOutcome) as error:
            log.warning("a %s could not be downloaded: %s", file.kind, error)
            too_large = _TOO_LARGE.search(str(error)) is not None
            return [_missing(file, "it is too large" if too_large else "the download failed")]
        if len(data) > self._max_bytes:
            return [_missing(file, self._too_large)]
        if not file.recording:
            return await self.add(file.name, file.media_type, data)
        return await self.add_recording(file, data)

    async def add_recording(self, file: AttachedFile, data: bytes) -> list[Text | Media]:
        """Store a recording, to be transcribed for admitted senders only, as that costs money."""
        media = await self._blobs.put(data, file.media_type, file.name)
        described = f"{file.kind} of {file.seconds:.0f} seconds" if file.seconds else file.kind
        if file.recording == "video":
            return [media, Text(f"({described}, {file.name}. You cannot watch it.)")]
        note = f"({described}, {file.name}. It {NOT_SET_UP}: say that you cannot hear it.)"
        return [media, Recording(note, media=media, described=described, spoken=file.is_voice)]

    async def add(self, name: str, media_type: str, data: bytes) -> list[Text | Media]:
        """Store a file whose content is known and return its parts of the message."""
        media = await self._blobs.put(data, media_type, name)
        if media_type.startswith("image/"):
            return [media]
        if (text := _readable_text(name, media_type, data)) is not None:
            return [Text(sent_file_text(name, text))]
        path = await self._stored(media, data)
        return [media, Text(sent_file_text(name, "", path=str(path)))]

    async def _with_retries(self, download: Callable[[], Awaitable[bytes]]) -> bytes:
        for attempt in range(1, ATTEMPTS):
            try:
                return await download()
            except Throttled as error:
                await self._clock.sleep(error.wait)
            except (Offline, UnknownOutcome):
                await self._clock.sleep(self._backoff.delay(attempt))
        return await download()

    async def _stored(self, media: Media, data: bytes) -> Path:
        name = _UNSAFE.sub("_", PurePosixPath(media.name).name).strip(". ") or "file"
        # File systems limit a name in bytes, not in characters.
        end = name.encode()[-MAX_NAME:].decode("utf-8", "ignore")
        path = self._folder / f"{media.digest[:12]}-{end}"
        folder = anyio.Path(self._folder)
        await folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        await anyio.Path(path).write_bytes(data)
        return path


def received_files(deps: ChannelDeps, max_bytes: int) -> ReceivedFiles:
    """Return the store for files that people send to this account."""
    folder = deps.home / "cache" / "blobs" / "received"
    most = min(max_bytes, deps.max_file or max_bytes)
    return ReceivedFiles(deps.blobs, deps.clock, folder=folder, max_bytes=most, admits=deps.admits)


def media_type_of(name: str, declared: str = "") -> str:
    """Return the type that the platform gave, otherwise one guessed from the name."""
    bare = declared.partition(";")[0].strip()
    return bare or mimetypes.guess_type(name)[0] or "application/octet-stream"


def is_text_file(name: str, media_type: str) -> bool:
    """Whether the type or the name is that of a text file."""
    kind = media_type.partition(";")[0]
    return (
        kind.startswith("text/")
        or kind in _TEXT_TYPES
        or _TEXT_NAMES.fullmatch(PurePosixPath(name).suffix) is not None
    )


def _missing(file: AttachedFile, why: str) -> Text:
    return Text(f"({file.kind} {file.name} is not attached: {why}.)")


def _readable_text(name: str, media_type: str, data: bytes) -> str | None:
    if not is_text_file(name, media_type) or len(data) > INLINE_LIMIT:
        return None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
