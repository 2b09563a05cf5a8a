"""Which settings choose what transcribes voice notes, and which key it gets."""

from pathlib import Path

import pytest
from msgspec import structs

from hermes.app.transcription import PROVIDERS, configured_transcriber
from support.app_profile import open_profile
from support.speech import serve_speech


@pytest.mark.parametrize(
    "settings",
    ["", "stt: {provider: groq}", "stt: {enabled: false, provider: openai}"],
    ids=["local without a program", "provider without a key", "disabled"],
)
async def test_nothing_transcribes_unless_it_is_set_up(tmp_path: Path, settings: str) -> None:
    async with open_profile(tmp_path, settings) as app:
        assert configured_transcriber(app) is None


async def test_key_of_the_provider_is_enough(tmp_path: Path) -> None:
    async with open_profile(tmp_path, "stt: {provider: openai}") as app:
        assert configured_transcriber(app) is not None


async def test_other_server_does_not_get_the_key_of_the_provider(tmp_path: Path) -> None:
    async with serve_speech("hello") as speech:
        settings = f"stt: {{provider: openai, openai: {{base_url: '{speech.url}'}}}}"
        async with open_profile(tmp_path, settings) as app:
            transcriber = configured_transcriber(app)
            assert transcriber is not None
            assert await transcriber.transcribe(b"OggS", "a.ogg", "audio/ogg") == "hello"
    (call,) = speech.calls
    assert call.authorization == ""


KEYS = {
    "openai": ("VOICE_TOOLS_OPENAI_KEY", "OPENAI_API_KEY"),
    "groq": ("GROQ_API_KEY",),
    "mistral": ("MISTRAL_API_KEY",),
    "deepinfra": ("DEEPINFRA_API_KEY",),
    "elevenlabs": ("ELEVENLABS_API_KEY",),
}
EVERY_KEY = {name: f"key-of-{name}" for names in KEYS.values() for name in names}


@pytest.mark.parametrize("provider", KEYS)
async def test_provider_gets_only_its_own_key(tmp_path: Path, provider: str) -> None:
    async with serve_speech("hello") as speech:
        here = {name: structs.replace(one, url=speech.url) for name, one in PROVIDERS.items()}
        async with open_profile(tmp_path, f"stt: {{provider: {provider}}}", env=EVERY_KEY) as app:
            transcriber = configured_transcriber(app, here)
            assert transcriber is not None
            assert await transcriber.transcribe(b"OggS", "a.ogg", "audio/ogg") == "hello"
    (call,) = speech.calls
    header_values = "\n".join(call.headers.values())
    assert {name for name, key in EVERY_KEY.items() if key in header_values} == {KEYS[provider][0]}
