"""Recordings are transcribed by a server or a program, within limits."""

import os
import shlex
import sys
import tempfile
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest

from hermes.models.transcription import (
    ELEVENLABS_API,
    MAX_RECORDING,
    TranscriptionCommand,
    TranscriptionServer,
)
from hermes.ports.transcription import TranscriptionFailed
from hermes.sandbox.local import LocalSandbox
from hermes.sandbox.spawner import Spawner
from support.speech import SpeechServer, serve_speech


@pytest.fixture
async def speech() -> AsyncGenerator[SpeechServer]:
    async with serve_speech(" hello there \n") as server:
        yield server


def client(speech: SpeechServer, seconds: float = 60.0) -> TranscriptionServer:
    return TranscriptionServer(
        url=speech.url, key="sk-voice", model="whisper-1", language="de", seconds=seconds
    )


async def test_recording_is_sent_with_model_language_and_key(speech: SpeechServer) -> None:
    text = await client(speech).transcribe(b"OggS\r\n--x", 'a "b".ogg', "audio/ogg")
    assert text == "hello there"
    (call,) = speech.calls
    assert call.authorization == "Bearer sk-voice"
    assert call.fields == {"model": "whisper-1", "language": "de", "response_format": "json"}
    assert (call.name, call.media_type) == ("a__b_.ogg", "audio/ogg")
    assert call.data == b"OggS\r\n--x"


async def test_elevenlabs_has_its_own_path_fields_and_header(speech: SpeechServer) -> None:
    one = TranscriptionServer(
        url=speech.url, key="el-voice", model="scribe_v2", language="de", api=ELEVENLABS_API
    )
    assert await one.transcribe(b"OggS", "a.ogg", "audio/ogg") == "hello there"
    (call,) = speech.calls
    assert (call.path, call.authorization) == ("/v1/speech-to-text", "")
    assert call.headers["xi-api-key"] == "el-voice"
    assert call.fields == {
        "model_id": "scribe_v2",
        "language_code": "de",
        "tag_audio_events": "false",
    }


async def test_refusal_is_a_failure(speech: SpeechServer) -> None:
    speech.status = 401
    with pytest.raises(TranscriptionFailed, match="answered 401"):
        await client(speech).transcribe(b"OggS", "a.ogg", "audio/ogg")


@pytest.mark.parametrize("body", [b"{", b'{"text": 5}', b'{"text": "\xff"}', b"x" * 2_000_000])
async def test_answer_without_text_is_a_failure(speech: SpeechServer, body: bytes) -> None:
    speech.body = body
    with pytest.raises(TranscriptionFailed):
        await client(speech).transcribe(b"OggS", "a.ogg", "audio/ogg")


async def test_silence_is_a_failure(speech: SpeechServer) -> None:
    speech.text = "  "
    with pytest.raises(TranscriptionFailed, match="No speech"):
        await client(speech).transcribe(b"OggS", "a.ogg", "audio/ogg")


async def test_server_that_does_not_answer_is_given_up(speech: SpeechServer) -> None:
    speech.hangs = True
    with pytest.raises(TranscriptionFailed, match="took too long"):
        await client(speech, seconds=0.3).transcribe(b"OggS", "a.ogg", "audio/ogg")


async def test_unreachable_server_is_a_failure() -> None:
    one = TranscriptionServer(url="http://127.0.0.1:1/v1", key="", model="m")
    with pytest.raises(TranscriptionFailed, match="cannot be reached"):
        await one.transcribe(b"OggS", "a.ogg", "audio/ogg")


async def test_large_recording_is_not_sent(speech: SpeechServer) -> None:
    with pytest.raises(TranscriptionFailed, match="larger than 25 MB"):
        await client(speech).transcribe(bytes(MAX_RECORDING + 1), "a.ogg", "audio/ogg")
    assert speech.calls == []


@pytest.fixture
def sandbox() -> Generator[LocalSandbox]:
    with Spawner() as spawner:
        yield LocalSandbox(spawner)


def program(sandbox: LocalSandbox, folder: Path, code: str, words: str) -> TranscriptionCommand:
    script = folder / "speech.py"
    script.write_text(f"import sys\nfrom pathlib import Path\n{code}\n")
    return TranscriptionCommand(
        f"{shlex.quote(sys.executable)} {script} {words}",
        sandbox=sandbox,
        env=lambda: {"PATH": os.defpath},
        model="base",
        language="de",
    )


async def test_output_of_a_program_is_the_text(sandbox: LocalSandbox, tmp_path: Path) -> None:
    code = "print(sys.argv[1], Path(sys.argv[2]).read_bytes().decode(), file=sys.stdout)"
    one = program(
        sandbox, tmp_path, f"{code}\nprint('noise', file=sys.stderr)", "{model}-{language}"
    )
    assert await one.transcribe(b"hello", "a.ogg", "audio/ogg") == "base-de hello"


async def test_file_that_a_program_writes_is_the_text(
    sandbox: LocalSandbox, tmp_path: Path
) -> None:
    code = "print('progress')\nPath(sys.argv[2], 'x.txt').write_text(Path(sys.argv[1]).suffix)"
    one = program(sandbox, tmp_path, code, "{input_path} {output_dir}")
    assert await one.transcribe(b"hello", "a.ogg", "audio/ogg") == ".ogg"


@pytest.mark.parametrize("code", ["sys.exit(3)", "pass"])
async def test_program_without_a_result_is_a_failure(
    sandbox: LocalSandbox, tmp_path: Path, code: str
) -> None:
    with pytest.raises(TranscriptionFailed):
        await program(sandbox, tmp_path, code, "").transcribe(b"hello", "a.ogg", "audio/ogg")


async def test_missing_program_is_a_failure(sandbox: LocalSandbox) -> None:
    one = TranscriptionCommand("/nowhere/whisper", sandbox=sandbox, env=dict, model="", language="")
    with pytest.raises(TranscriptionFailed):
        await one.transcribe(b"hello", "a.ogg", "audio/ogg")


@pytest.mark.parametrize("name", ["a.o\0g", "a.\u00f6g", "a.txt", "a.TXT", "a"])
async def test_recording_with_a_strange_suffix_is_transcribed(
    sandbox: LocalSandbox, tmp_path: Path, name: str
) -> None:
    one = program(sandbox, tmp_path, "print(Path(sys.argv[1]).name)", "")
    assert await one.transcribe(b"hello", name, "audio/ogg") == "recording"


async def test_recording_that_cannot_be_stored_is_a_failure(
    sandbox: LocalSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = program(sandbox, tmp_path, "print('text')", "")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(TranscriptionFailed, match="could not be stored"):
        await one.transcribe(b"hello", "a.ogg", "audio/ogg")
