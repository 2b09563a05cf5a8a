"""Interface for transcribing recordings of speech."""

from typing import Protocol

from hermes.schema.errors import HermesError


class TranscriptionFailed(HermesError):
    """The recording could not be transcribed; the text says why."""

    code = "transcription_failed"


class Transcriber(Protocol):
    async def transcribe(self, data: bytes, name: str, media_type: str) -> str:
        """Return the spoken text. Raises `TranscriptionFailed`, also after a timeout."""
        ...
