"""Recordings are transcribed for admitted senders only, after the message is stored."""

from pathlib import Path

import anyio
import pytest
from msgspec import structs

from hermes.gateway.command_queue import AFTER_COMMANDS
from hermes.gateway.messages import Admitted, BusyMode, Rejected
from hermes.gateway.transcripts import MAX_RECORDINGS, Transcripts
from hermes.ports.channel import Inbound, Recording
from hermes.ports.transcription import TranscriptionFailed
from hermes.schema.messages import Media, Text
from hermes.store.blobs import FileBlobs
from support.gateway import gateway_harness, gateway_rules, make_inbound, wait_until

QUEUE = gateway_rules(BusyMode.QUEUE)
HEARD = "re: (voice note of 7 seconds, transcribed by speech recognition:)\nsaid OggS"


class SlowTranscriber:
    """Calls from `slow_from` on wait until it is released; raises `error`, if any."""

    def __init__(self, *, slow_from: int = 1000, error: Exception | None = None) -> None:
        self.released = anyio.Event()
        self.slow_from = slow_from
        self.error = error
        self.calls: list[str] = []

    async def transcribe(self, data: bytes, name: str, media_type: str) -> str:
        self.calls.append(name)
        if len(self.calls) > self.slow_from:
            await self.released.wait()
        if self.error is not None:
            raise self.error
        return f"said {data.decode()}"


@pytest.fixture
def blobs(tmp_path: Path) -> FileBlobs:
    return FileBlobs(tmp_path / "blobs")


async def note(blobs: FileBlobs, key: str = "v1", *, count: int = 1, chat: str = "1") -> Inbound:
    media = await blobs.put(b"OggS", "audio/ogg", "voice.ogg")
    recording = Recording(
        "(not set up)", media=media, described="voice note of 7 seconds", spoken=True
    )
    parts: tuple[Text | Media | Recording, ...] = (media, recording) * count
    return structs.replace(make_inbound("", key, chat=chat), parts=parts)


async def reject(inbound: Inbound) -> Admitted | Rejected:
    return Rejected("I don't know you yet.")


async def test_note_of_an_unknown_sender_is_not_transcribed(
    tmp_path: Path, blobs: FileBlobs
) -> None:
    speech = SlowTranscriber()
    async with gateway_harness(
        tmp_path, authorize=reject, transcripts=Transcripts(speech, blobs)
    ) as harness:
        await harness.channel.type(await note(blobs))
        await harness.wait_for_posts("I don't know you yet.")
        assert harness.gateway.command_queue.count == 0
    assert speech.calls == []


async def test_nothing_but_its_own_chat_waits_for_a_note(tmp_path: Path, blobs: FileBlobs) -> None:
    speech = SlowTranscriber(slow_from=0)
    async with gateway_harness(
        tmp_path, rules=QUEUE, transcripts=Transcripts(speech, blobs)
    ) as harness:
        await harness.channel.type(await note(blobs))
        assert harness.channel.acknowledged == ["v1"]
        await harness.channel.type(make_inbound("after", "u1"))
        await harness.channel.type(await note(blobs))
        assert await harness.open_rows(AFTER_COMMANDS) == ["fake:v1", "fake:u1"]
        await harness.channel.say("hello", chat="2")
        await harness.wait_for_posts("re: hello", chat="2")
        speech.released.set()
        await harness.wait_for_posts(HEARD, "re: after")
    assert speech.calls == ["voice.ogg"]


async def test_transcript_is_shown_before_the_answer(tmp_path: Path, blobs: FileBlobs) -> None:
    transcripts = Transcripts(SlowTranscriber(), blobs, echo=True)
    async with gateway_harness(tmp_path, rules=QUEUE, transcripts=transcripts) as harness:
        await harness.channel.type(await note(blobs))
        await harness.wait_for_posts("🎙️\n> said OggS", HEARD)
        await harness.channel.say("hello")
        await harness.wait_for_posts("🎙️\n> said OggS", HEARD, "re: hello")


async def test_recording_that_was_not_understood_is_not_shown(
    tmp_path: Path, blobs: FileBlobs
) -> None:
    failing = SlowTranscriber(error=TranscriptionFailed("Too slow."))
    transcripts = Transcripts(failing, blobs, echo=True)
    async with gateway_harness(tmp_path, transcripts=transcripts) as harness:
        await harness.channel.type(await note(blobs))
        await wait_until(lambda: bool(harness.channel.texts_in("1")))
        (text,) = harness.channel.texts_in("1")
    assert "could not be transcribed" in text


async def test_note_is_transcribed_after_a_crash(tmp_path: Path, blobs: FileBlobs) -> None:
    cut, speech = SlowTranscriber(slow_from=0), SlowTranscriber()
    async with gateway_harness(
        tmp_path, rules=QUEUE, transcripts=Transcripts(cut, blobs)
    ) as harness:
        await harness.channel.type(await note(blobs))
        await harness.channel.type(make_inbound("after", "u1"))
        await wait_until(lambda: bool(cut.calls))
    async with gateway_harness(
        tmp_path, rules=QUEUE, transcripts=Transcripts(speech, blobs)
    ) as two:
        await two.wait_for_posts(HEARD, "re: after")
        await two.channel.type(await note(blobs))
        await two.wait_until_idle()
        assert two.channel.texts_in("1") == [HEARD, "re: after"]
        assert await two.open_rows(AFTER_COMMANDS) == []
    async with gateway_harness(tmp_path, transcripts=Transcripts(speech, blobs)) as three:
        await three.wait_until_idle()
    assert speech.calls == ["voice.ogg"]


async def test_transcript_is_not_paid_again_after_a_crash(tmp_path: Path, blobs: FileBlobs) -> None:
    cut, speech = SlowTranscriber(slow_from=2), SlowTranscriber()
    async with gateway_harness(tmp_path, transcripts=Transcripts(cut, blobs)) as harness:
        await harness.channel.type(await note(blobs, count=3))
        await wait_until(lambda: len(cut.calls) == 3)
    async with gateway_harness(tmp_path, transcripts=Transcripts(speech, blobs)) as two:
        await wait_until(lambda: bool(two.channel.texts_in("1")))
        (text,) = two.channel.texts_in("1")
    assert text.count("said OggS") == 3
    assert len(speech.calls) == 1


@pytest.mark.parametrize(
    ("error", "reason"),
    [(TranscriptionFailed("Too slow."), "Too slow"), (KeyError("x"), "an internal error")],
)
async def test_message_is_answered_if_transcription_fails(
    tmp_path: Path, blobs: FileBlobs, error: Exception, reason: str
) -> None:
    transcripts = Transcripts(SlowTranscriber(error=error), blobs)
    async with gateway_harness(tmp_path, transcripts=transcripts) as harness:
        await harness.channel.type(await note(blobs))
        await harness.wait_for_posts(
            f"re: (voice note of 7 seconds, voice.ogg. It could not be transcribed ({reason}): "
            "say that you cannot hear it.)"
        )


async def test_lost_recording_and_missing_set_up_are_said(tmp_path: Path, blobs: FileBlobs) -> None:
    inbound = await note(blobs)
    gone = Transcripts(SlowTranscriber(), FileBlobs(tmp_path / "empty"))
    async with gateway_harness(tmp_path / "a", transcripts=gone) as harness:
        await harness.channel.type(inbound)
        await wait_until(lambda: "cannot be read" in "".join(harness.channel.texts_in("1")))
    async with gateway_harness(tmp_path / "b", transcripts=Transcripts(None, blobs)) as harness:
        await harness.channel.type(inbound)
        await harness.wait_for_posts("re: (not set up)")


async def test_only_some_recordings_of_a_message_are_transcribed(
    tmp_path: Path, blobs: FileBlobs
) -> None:
    speech = SlowTranscriber()
    async with gateway_harness(tmp_path, transcripts=Transcripts(speech, blobs)) as harness:
        await harness.channel.type(await note(blobs, count=MAX_RECORDINGS + 2))
        await wait_until(lambda: bool(harness.channel.texts_in("1")))
        (text,) = harness.channel.texts_in("1")
    assert len(speech.calls) == text.count("said OggS") == MAX_RECORDINGS
    assert text.count("only the first") == 2


async def test_time_before_the_text_is_kept(tmp_path: Path, blobs: FileBlobs) -> None:
    rules = structs.replace(QUEUE, timestamps=True)
    async with gateway_harness(
        tmp_path, rules=rules, transcripts=Transcripts(SlowTranscriber(), blobs)
    ) as harness:
        inbound = await note(blobs)
        await harness.channel.type(structs.replace(inbound, parts=inbound.parts[1:]))
        await wait_until(lambda: bool(harness.channel.texts_in("1")))
        (text,) = harness.channel.texts_in("1")
    assert text.startswith("re: [")
    assert text.endswith(HEARD.removeprefix("re: "))
