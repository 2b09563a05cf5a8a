"""Transcribe recordings: with a server (OpenAI's interface or ElevenLabs), or with a program."""

import asyncio
import logging
import re
import shlex
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath

import msgspec
from anyio.to_thread import run_sync
from msgspec import Struct

from hermes.kit.ids import new_id
from hermes.kit.json_errors import JSON_ERRORS
from hermes.kit.text import one_line
from hermes.models.endpoint import read_all
from hermes.models.error_body import redacted_message
from hermes.models.http_client import HttpClient, default_tls
from hermes.ports.sandbox import ProcessSpec, Sandbox
from hermes.ports.transcription import TranscriptionFailed
from hermes.schema.errors import SandboxError

log = logging.getLogger(__name__)

SECONDS = 60.0
CONNECT_SECONDS = 10.0
MAX_RECORDING = 25 * 1024 * 1024
"""The limit of OpenAI's own server."""
MAX_ANSWER = 1024 * 1024
MAX_TRANSCRIPT = 50_000
_SUFFIX = re.compile(r"\.[A-Za-z0-9]+")


class _Answer(Struct, frozen=True):
    text: str = ""


class SpeechApi(Struct, frozen=True, kw_only=True):
    """How a kind of server is called: its path, fields, and header for the key."""

    path: str
    model: str
    language: str
    more: Mapping[str, str] = {}
    key_header: str
    key_prefix: str = ""


OPENAI_API = SpeechApi(
    path="/audio/transcriptions",
    model="model",
    language="language",
    more={"response_format": "json"},
    key_header="Authorization",
    key_prefix="Bearer ",
)
ELEVENLABS_API = SpeechApi(
    path="/speech-to-text",
    model="model_id",
    language="language_code",
    # Otherwise the text would also note laughter or coughs.
    more={"tag_audio_events": "false"},
    key_header="xi-api-key",
)


class TranscriptionServer:
    """`url` is the address before the path of the `api`; `key` is sent nowhere else."""

    def __init__(
        self,
        *,
        url: str,
        key: str,
        model: str,
        language: str = "",
        seconds: float = SECONDS,
        api: SpeechApi = OPENAI_API,
    ) -> None:
        self._url = f"{url.rstrip('/')}{api.path}"
        self._key_header = {api.key_header: f"{api.key_prefix}{key}"} if key else {}
        self._seconds = seconds
        self._fields = {api.model: model, api.language: language, **api.more}

    async def transcribe(self, data: bytes, name: str, media_type: str) -> str:
        _check_size(data)
        content_type, body = _form(self._fields, data, name, media_type)
        headers = {
            "Content-Type": content_type,
            "Accept": "application/json",
            **self._key_header,
        }
        client = HttpClient(connect=CONNECT_SECONDS, tls=default_tls)
        try:
            async with asyncio.timeout(self._seconds):
                response = await client.send("POST", self._url, headers, body, idle=SECONDS)
                answer = await read_all(response, MAX_ANSWER, SECONDS)
        except TimeoutError as error:
            raise TranscriptionFailed("The transcription server took too long.") from error
        except (OSError, ValueError) as error:
            log.warning("the transcription server cannot be used: %s", error)
            raise TranscriptionFailed("The transcription server cannot be reached.") from error
        finally:
            await client.aclose()
        if response.status != 200:
            shown = redacted_message(answer[:2000].decode("utf-8", "replace"))
            log.warning("the transcription server refused: %d %s", response.status, shown)
            raise TranscriptionFailed(f"The transcription server answered {response.status}.")
        try:
            return _cleaned(msgspec.json.decode(answer, type=_Answer).text)
        except JSON_ERRORS as error:
            raise TranscriptionFailed("The transcription server returned no text.") from error


class TranscriptionCommand:
    """Runs the owner's program on a file.

    In `command`, {input_path} is the recording and {output_dir} a folder for a .txt file; without
    such a file, the program's output is the text.
    """

    def __init__(
        self,
        command: str,
        *,
        sandbox: Sandbox,
        env: Callable[[], Mapping[str, str]],
        model: str,
        language: str,
    ) -> None:
        self._command = command
        self._sandbox = sandbox
        self._env = env
        self._model = model
        self._language = language

    async def transcribe(self, data: bytes, name: str, media_type: str) -> str:
        _check_size(data)
        try:
            with tempfile.TemporaryDirectory(prefix="hermes-voice-") as folder:
                path = Path(folder) / _file_name(name)
                await run_sync(path.write_bytes, data)
                output = await self._run(path, folder)
                return _cleaned(await run_sync(_written_text, Path(folder), output))
        except (OSError, ValueError) as error:
            log.warning("a recording cannot be stored for transcription: %s", error)
            raise TranscriptionFailed("The recording could not be stored.") from error

    async def _run(self, path: Path, folder: str) -> bytes:
        """Return the program's output."""
        try:
            spec = ProcessSpec(
                argv=self._argv(path, folder),
                cwd=folder,
                env=self._env(),
                timeout=SECONDS,
                separate_stderr=True,
            )
            result = await self._sandbox.run(spec)
        except (SandboxError, ValueError) as error:
            log.warning("the transcription program cannot be run: %s", error)
            raise TranscriptionFailed("The transcription program cannot be run.") from error
        if result.timed_out:
            raise TranscriptionFailed("The transcription program took too long.")
        if result.exit_code:
            shown = one_line(result.output.decode("utf-8", "replace"), 300)
            log.warning("the transcription program ended with %d: %s", result.exit_code, shown)
            raise TranscriptionFailed("The transcription program failed.")
        return result.output

    def _argv(self, path: Path, folder: str) -> tuple[str, ...]:
        values = {
            "{input_path}": str(path), "{output_dir}": folder,
            "{model}": self._model, "{language}": self._language,
        }  # fmt: skip
        words = shlex.split(self._command)
        if not any("{input_path}" in word for word in words):
            words.append("{input_path}")
        for name, value in values.items():
            words = [word.replace(name, value) for word in words]
        return tuple(words)


def _file_name(name: str) -> str:
    """Return a file name whose suffix tells the format; .txt would be mistaken for the text."""
    suffix = PurePosixPath(name).suffix[:8]
    is_plain = _SUFFIX.fullmatch(suffix) and suffix.lower() != ".txt"
    return f"recording{suffix}" if is_plain else "recording"


def _written_text(folder: Path, output: bytes) -> str:
    files = sorted(folder.glob("*.txt"))
    data = files[0].read_bytes()[:MAX_ANSWER] if files else output
    return data.decode("utf-8", "replace")


def _check_size(data: bytes) -> None:
    if len(data) > MAX_RECORDING:
        raise TranscriptionFailed(f"It is larger than {MAX_RECORDING // 1024**2} MB.")


def _cleaned(text: str) -> str:
    if not (text := text.strip()[:MAX_TRANSCRIPT]):
        raise TranscriptionFailed("No speech was recognized.")
    return text


def _form(
    fields: Mapping[str, str], data: bytes, name: str, media_type: str
) -> tuple[str, list[bytes]]:
    """A multipart form, and its content type."""
    boundary = new_id("form")
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{field}"\r\n\r\n{value}\r\n'
        for field, value in fields.items()
        if value
    ]
    # Servers recognize the format by the name.
    safe = "".join(one if one.isalnum() or one in "._-" else "_" for one in name) or "recording"
    kind = media_type if media_type.isprintable() else "application/octet-stream"
    head = (
        f'{"".join(parts)}--{boundary}\r\nContent-Disposition: form-data; name="file"; '
        f'filename="{safe}"\r\nContent-Type: {kind}\r\n\r\n'
    )
    body = [head.encode(), data, f"\r\n--{boundary}--\r\n".encode()]
    return f"multipart/form-data; boundary={boundary}", body
