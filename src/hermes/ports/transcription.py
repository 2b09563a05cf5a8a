"""Turn recordings of speech into text."""

from typing import Protocol

from hermes.schema.errors import HermesError


class TranscriptionFailed(HermesError):
    """The recording could not be transcribed; the text says why."""

    code = "transcription_failed"


class Transcriber(Protocol):
    async def transcribe(self, data: bytes, name: str, media_type: str) -> str:
        """Return what was said. Raises `TranscriptionFailed`, also if it takes too long."""
        ...
