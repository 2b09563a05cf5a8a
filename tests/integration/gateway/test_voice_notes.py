"""A voice note becomes a message of its sender, through a whole gateway process."""

from pathlib import Path

import anyio
import pytest

from emulators.discord.check import discord_home
from emulators.discord.server import serve_discord
from emulators.telegram.check import telegram_home
from emulators.telegram.server import TelegramServer, serve_telegram
from support import discord as discord_support
from support import telegram as telegram_support
from support.preloaded_gateway import running_gateway
from support.speech import SpeechServer, serve_speech
from support.telegram import ANN

pytestmark = pytest.mark.slow

TIMEOUT = 60.0
EVE = 1002
VOICE_MESSAGE = 1 << 13


def settings(speech: SpeechServer) -> dict[str, object]:
    server = {"base_url": speech.url, "api_key": "sk-voice"}
    return {"stt": {"provider": "openai", "openai": server}}


async def answer_on_telegram(folder: Path, speech: SpeechServer) -> str:
    """The answer to a voice note."""
    telegram = telegram_support.emulator()
    async with serve_telegram(telegram) as server:
        spec = telegram_home(folder, server.url, telegram_support.TOKEN, [ANN], settings(speech))
        async with running_gateway(spec):
            voice = telegram.document(b"OggS", "", "audio/ogg", duration=7)
            telegram.say(ANN, more={"voice": voice})
            answer = await first_answer(server)
            if speech.status == 200:
                shown = [one.text for one in telegram.posts(ANN)]
                assert any(speech.text in one and not one.startswith("re: ") for one in shown)
            return answer


async def first_answer(server: TelegramServer) -> str:
    def answers() -> list[str]:
        posts = server.telegram.posts(ANN)
        return [one.text for one in posts if one.text.startswith("re: ")]

    with anyio.fail_after(TIMEOUT):
        await server.until(lambda: bool(answers()))
    return answers()[0]


async def test_voice_note_on_telegram_is_answered(tmp_path: Path) -> None:
    async with serve_speech("What is the time?") as speech:
        answer = await answer_on_telegram(tmp_path, speech)
    assert "voice note of 7 seconds, transcribed by speech recognition" in answer
    assert "What is the time?" in answer
    (call,) = speech.calls
    assert call.data == b"OggS"
    assert call.authorization == "Bearer sk-voice", "the key of the model goes to its own server"


async def test_voice_note_that_is_not_transcribed_is_said_to_be_so(tmp_path: Path) -> None:
    async with serve_speech("") as speech:
        speech.status = 500
        answer = await answer_on_telegram(tmp_path, speech)
    assert "could not be transcribed (The transcription server answered 500)" in answer


async def test_voice_note_of_an_unknown_sender_is_not_transcribed(tmp_path: Path) -> None:
    telegram = telegram_support.emulator()
    async with serve_speech("Hello") as speech, serve_telegram(telegram) as server:
        spec = telegram_home(tmp_path, server.url, telegram_support.TOKEN, [ANN], settings(speech))
        async with running_gateway(spec):
            telegram.say(EVE, more={"voice": telegram.document(b"Eve", "", "audio/ogg")})
            telegram.say(ANN, more={"voice": telegram.document(b"Ann", "", "audio/ogg")})
            assert "Hello" in await first_answer(server)
    assert [call.data for call in speech.calls] == [b"Ann"]


async def test_voice_message_on_discord_is_answered(tmp_path: Path) -> None:
    discord, ann = discord_support.emulator(), discord_support.ANN
    async with serve_speech("What is the time?") as speech, serve_discord(discord) as server:
        spec = discord_home(
            tmp_path, server.url, server.api_url, discord_support.TOKEN, [ann], settings(speech)
        )
        chat = discord.direct(ann)
        async with running_gateway(spec):
            sessions = server.gateway.sessions
            await server.until(lambda: any(one.connection for one in sessions.values()))
            files = {"voice-message.ogg": (b"OggS", "audio/ogg")}
            discord.say(chat, person=ann, files=files, flags=VOICE_MESSAGE)
            with anyio.fail_after(TIMEOUT):
                await server.until(
                    lambda: any("What is the time?" in one.text for one in discord.posts(chat))
                )
    assert [call.name for call in speech.calls] == ["voice-message.ogg"]
