"""Fetch the files of a message and describe them for the model."""

from functools import partial

from hermes.channels.received_files import AttachedFile, ReceivedFiles, media_type_of
from hermes.channels.slack.objects import File
from hermes.channels.slack.web_api import MissingScope, WebApi
from hermes.ports.channel import NotSent
from hermes.schema.messages import Media, Text

_SHARED_ELSEWHERE = "check_file_info"
_GONE = frozenset({"tombstone", "hidden_by_limit"})
NO_SCOPE = "the app may not read files, the scope files:read is missing"


class FileReader:
    """Reads the files of messages."""

    def __init__(self, received: ReceivedFiles, *, max_bytes: int) -> None:
        self.received = received
        self._max_bytes = max_bytes

    async def parts(self, api: WebApi, files: tuple[File, ...]) -> list[Text | Media]:
        """Return the files of a message, with a note for each one that cannot be fetched."""
        return [part for file in files for part in await self._read(api, file)]

    async def _read(self, api: WebApi, file: File) -> list[Text | Media]:
        if file.mode in _GONE:
            return [_missing(file, "it was deleted")]
        if file.file_access == _SHARED_ELSEWHERE:
            try:
                file = await api.file(file.id)
            except NotSent as error:
                return [_missing(file, str(error))]
        refused: list[MissingScope] = []
        download = partial(self._download, api, file, refused)
        parts = await self.received.fetch(_attached_file(file), download)
        return [_missing(file, NO_SCOPE)] if refused else parts

    async def _download(self, api: WebApi, file: File, refused: list[MissingScope]) -> bytes:
        url = file.url_private_download or file.url_private
        try:
            return await api.download(
                url, max_bytes=self._max_bytes, is_page=file.mimetype == "text/html"
            )
        except MissingScope as error:
            refused.append(error)
            raise


def _attached_file(file: File) -> AttachedFile:
    name = file.name or "file"
    media_type = media_type_of(name, file.mimetype)
    is_clip = file.subtype == "slack_audio"
    is_audio = is_clip or media_type.startswith("audio/")
    is_video = not is_audio and media_type.startswith("video/")
    audio = "voice message" if is_clip else "audio file"
    return AttachedFile(
        name=name,
        media_type=media_type,
        kind=audio if is_audio else "video" if is_video else "file",
        size=file.size,
        seconds=file.duration_ms / 1000,
        recording="audio" if is_audio else "video" if is_video else "",
    )


def _missing(file: File, why: str) -> Text:
    return Text(f"(file {file.name or file.id} is not attached: {why}.)")
