"""Transcribe the recordings of messages whose sender is admitted, after they are stored."""

import logging
from collections.abc import Sequence

from msgspec import structs

from hermes.gateway.messages import InboxKind, InboxMessage
from hermes.ports.channel import Recording
from hermes.ports.store import Blobs
from hermes.ports.transcription import Transcriber, TranscriptionFailed
from hermes.schema.errors import NotFound
from hermes.schema.messages import Media, Text, sent_file_text

log = logging.getLogger(__name__)

MAX_RECORDINGS = 5
"""Further recordings in a message are not transcribed."""


MAX_ECHO = 1_000
"""Characters of a transcript that are shown in the chat."""
_TRANSCRIBED = ", transcribed by speech recognition:)\n"


class Transcripts:
    """Without a `transcriber`, a note in the message says so.

    With `echo`, the chat shows what was understood.
    """

    def __init__(
        self, transcriber: Transcriber | None, blobs: Blobs, *, echo: bool = False
    ) -> None:
        self._transcriber = transcriber
        self._blobs = blobs
        self._echo = echo

    def split(
        self, parts: Sequence[Text | Media | Recording]
    ) -> tuple[tuple[Text | Media, ...], tuple[Recording, ...]]:
        """Return the parts to store, and the recordings still to be transcribed."""
        stored: list[Text | Media] = []
        due: list[Recording] = []
        for part in parts:
            if not isinstance(part, Recording):
                stored.append(part)
            elif self._transcriber is None:
                stored.append(Text(part.text))
            elif len(due) == MAX_RECORDINGS:
                reason = f"only the first {MAX_RECORDINGS} of a message are"
                stored.append(Text(_failed(part, reason)))
            else:
                stored.append(Text(_pending(part)))
                due.append(part)
        return tuple(stored), tuple(due)

    async def add_next(self, message: InboxMessage) -> InboxMessage:
        """Transcribe the next recording and return the message with its text."""
        recording, *rest = message.recordings
        pending, text = _pending(recording), await self._text(recording)
        parts = list(message.user.parts)
        for index, part in enumerate(parts):
            # A timestamp may precede it.
            if isinstance(part, Text) and part.text.endswith(pending):
                parts[index] = Text(part.text.removesuffix(pending) + text)
                break
        user = structs.replace(message.user, parts=tuple(parts))
        return structs.replace(message, user=user, recordings=tuple(rest))

    def echo(self, message: InboxMessage) -> str:
        """Return the text that shows a chat the transcripts of its recordings."""
        if not self._echo or message.kind is InboxKind.EDIT:
            return ""
        texts = (part.text for part in message.user.parts if isinstance(part, Text))
        transcripts = [text.partition(_TRANSCRIBED)[2] for text in texts if _TRANSCRIBED in text]
        return "\n\n".join(f"🎙️\n{_quoted(text)}" for text in transcripts)

    async def _text(self, recording: Recording) -> str:
        try:
            text = await self._transcribed(recording)
        except TranscriptionFailed as error:
            reason = str(error).removesuffix(".")
        except Exception:
            # A failure must not lose the rest of the message.
            log.exception("a %s was not transcribed", recording.described)
            reason = "an internal error"
        else:
            if recording.spoken:
                return f"({recording.described}{_TRANSCRIBED}{text}"
            return sent_file_text(f"{recording.media.name} (transcript)", text)
        log.warning("a %s was not transcribed: %s", recording.described, reason)
        return _failed(recording, reason)

    async def _transcribed(self, recording: Recording) -> str:
        media = recording.media
        if self._transcriber is None:
            raise TranscriptionFailed("No speech recognition is set up.")
        try:
            data = await self._blobs.read(media.digest)
        except (NotFound, OSError) as error:
            raise TranscriptionFailed("The recording cannot be read.") from error
        return await self._transcriber.transcribe(data, media.name, media.media_type)


def _quoted(text: str) -> str:
    shown = text if len(text) <= MAX_ECHO else f"{text[:MAX_ECHO]}…"
    return "\n".join(f"> {line}" for line in shown.splitlines())


def _failed(recording: Recording, reason: str) -> str:
    what = f"{recording.described}, {recording.media.name}"
    return f"({what}. It could not be transcribed ({reason}): say that you cannot hear it.)"


def _pending(recording: Recording) -> str:
    return f"({recording.described}, {recording.media.name})"
