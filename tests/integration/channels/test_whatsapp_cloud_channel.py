"""WhatsApp over the emulated Cloud API: the contract and the documented rules."""

from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

import aiohttp
import anyio
import pytest

from emulators.whatsapp_cloud.server import (
    NUMBER_ID,
    TOKEN,
    VERIFY,
    EmulatedWhatsApp,
    Json,
    ShownMessage,
)
from hermes.channels.account import BadToken, BotToken
from hermes.channels.whatsapp_cloud import WhatsAppOptions
from hermes.channels.whatsapp_cloud.channel import RELOAD_SECONDS
from hermes.channels.whatsapp_cloud.graph_api import open_graph_api
from hermes.channels.whatsapp_cloud.setup import check_account
from hermes.ports.channel import (
    Attachment,
    Choice,
    Choices,
    Inbound,
    NotSent,
    Outbound,
    TargetGone,
    Throttled,
)
from hermes.schema.errors import ConfigError
from hermes.schema.messages import Media, Text
from hermes.schema.scope import Address
from hermes.testing.clock import FakeClock
from hermes.testing.contracts.channel import (
    Admission,
    ChannelBench,
    ChannelContract,
    PlatformEvents,
    PlatformFaults,
    PlatformFiles,
    PlatformView,
    listening,
    text_of,
)
from support.whatsapp_cloud import ANN, HOME, VARIABLES, WhatsAppBench, whatsapp_bench


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncGenerator[WhatsAppBench]:
    async with whatsapp_bench(tmp_path) as one:
        yield one


def pressed(value: str) -> Json:
    reply = {"id": value, "title": "A"}
    return {"type": "button_reply", "button_reply": reply}


class People:
    """What Ann does; each returns once the channel has acknowledged it."""

    def __init__(self, one: WhatsAppBench) -> None:
        self._bench = one
        self._sent: list[Json] = []

    async def _post(self, **content: object) -> None:
        self._sent.append(self._bench.whatsapp.message(ANN, **content))
        await self.again()

    async def again(self) -> None:
        await self._bench.post(self._sent[-1])

    async def arrive(self, text: str) -> None:
        await self._post(type="text", text={"body": text})

    async def send_file(self, name: str, data: bytes) -> None:
        self._bench.whatsapp.files["77"] = ("image/png", data)
        image = {"id": "77", "mime_type": "image/png", "caption": "look"}
        await self._post(type="image", image=image)

    async def reply(self, message: str, text: str) -> None:
        await self._post(type="text", text={"body": text}, context={"id": message})

    async def unreadable(self) -> None:
        await self._bench.post({"id": "wamid.0", "from": ANN, "type": "text", "text": 5})

    async def react(self, message: str, emoji: str) -> None:
        await self._post(type="reaction", reaction={"message_id": message, "emoji": emoji})

    async def press(self, post: str, value: str) -> None:
        await self._post(type="interactive", interactive=pressed(value), context={"id": post})


class View:
    def __init__(self, whatsapp: EmulatedWhatsApp) -> None:
        self._whatsapp = whatsapp

    async def shown(self, address: Address) -> list[str]:
        return [post.text for post in self._whatsapp.posts(address.chat)]

    def _find(self, post: str) -> ShownMessage:
        return next(one for one in self._whatsapp.shown if one.id == post)

    def reactions(self) -> list[tuple[str, str]]:
        return self._whatsapp.reactions

    def buttons(self, post: str) -> Mapping[str, str]:
        return self._find(post).choices

    def files(self, post: str) -> Mapping[str, bytes]:
        document = self._find(post).fields["document"]
        assert isinstance(document, dict)
        return {document["filename"]: self._whatsapp.files[document["id"]][1]}  # pyright: ignore[reportUnknownVariableType]

    def quoted(self, post: str) -> str | None:
        context = self._find(post).fields.get("context")
        return context["message_id"] if isinstance(context, dict) else None  # pyright: ignore[reportUnknownVariableType]


def contract_bench(one: WhatsAppBench, admission: Admission, folder: Path) -> ChannelBench:
    people, view = People(one), View(one.whatsapp)

    def throttled() -> None:
        one.server.failing = 130429

    async def store(data: bytes, name: str) -> Media:
        return await one.blobs.put(data, "application/pdf", name)

    return ChannelBench(
        one.channel,
        HOME,
        people.arrive,
        view.shown,
        people.again,
        PlatformEvents(
            react=people.react,
            press=people.press,
            reply=people.reply,
            unreadable=people.unreadable,
        ),
        PlatformView(
            reactions=view.reactions, buttons=view.buttons, files=view.files, quoted=view.quoted
        ),
        PlatformFaults(unreachable=one.server.stop_listening, throttled=throttled),
        store,
        PlatformFiles(send=people.send_file, admission=admission, folder=folder),
    )


class TestWhatsAppChannel(ChannelContract):
    @pytest.fixture
    async def bench(self, tmp_path: Path) -> AsyncGenerator[ChannelBench]:
        admission = Admission()
        async with whatsapp_bench(tmp_path, admits=admission) as one:
            yield contract_bench(one, admission, tmp_path / "cache" / "blobs")


@pytest.mark.parametrize("count", [3, 4, 10])
@pytest.mark.parametrize("size", [1024, 4096])
async def test_choices_respect_the_limits_of_whatsapp(
    bench: WhatsAppBench, count: int, size: int
) -> None:
    choices = Choices(tuple(Choice(f"label {n}", f"q:{n}") for n in range(count)))
    await bench.channel.send(HOME, Outbound((Text("x" * size), choices)))
    assert len(bench.whatsapp.shown[0].choices) == count


@pytest.mark.parametrize(
    ("code", "error", "wait"),
    [
        (130429, Throttled, 5.0),
        (131056, Throttled, 6.0),
        (4, Throttled, 60.0),
        (131026, TargetGone, 0.0),
        (131047, TargetGone, 0.0),
        (131009, NotSent, 0.0),
        (190, BadToken, 0.0),
    ],
)
async def test_documented_errors(
    bench: WhatsAppBench, code: int, error: type[NotSent], wait: float
) -> None:
    bench.server.failing = code
    with pytest.raises(error) as caught:
        await bench.channel.send(HOME, Outbound((Text("hi"),)))
    if isinstance(caught.value, Throttled):
        assert caught.value.wait == wait
        assert caught.value.all_chats == (code != 131056)


async def test_webhook_is_confirmed_only_with_the_verify_token(bench: WhatsAppBench) -> None:
    async with listening(bench.channel), aiohttp.ClientSession() as session:
        for token, status, text in ((VERIFY, 200, "1158201444"), ("wrong", 403, None)):
            query = {
                "hub.mode": "subscribe", "hub.challenge": "1158201444", "hub.verify_token": token,
            }  # fmt: skip
            async with session.get(await bench.hook(), params=query) as response:
                assert response.status == status
                assert text is None or await response.text() == text


async def test_call_with_a_wrong_signature_is_refused(bench: WhatsAppBench) -> None:
    message = bench.whatsapp.message(ANN, type="text", text={"body": "let me in"})
    async with listening(bench.channel) as received:
        assert await bench.server.post(await bench.hook(), message, secret="other") == 403
    assert received == []


async def test_signature_with_invalid_bytes_is_rejected(
    bench: WhatsAppBench, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(bench.channel):
        await bench.hook()
        async with await anyio.connect_tcp("127.0.0.1", bench.channel.port) as stream:
            await stream.send(
                b"POST /whatsapp/webhook HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n"
                b"X-Hub-Signature-256: sha256=\xff\xfe\r\n\r\n"
            )
            assert (await stream.receive()).startswith(b"HTTP/1.1 403 ")
    assert "Traceback" not in caplog.text


async def test_call_of_three_megabytes_is_accepted(bench: WhatsAppBench) -> None:
    message = bench.whatsapp.message(ANN, type="text", text={"body": "hi"})
    async with listening(bench.channel) as received:
        hook = await bench.hook()
        assert await bench.server.post(hook, message, errors=["x" * 3_000_000]) == 200
    assert [text_of(update) for update in received] == ["hi"]


async def test_unreadable_message_does_not_refuse_its_neighbours(
    bench: WhatsAppBench, caplog: pytest.LogCaptureFixture
) -> None:
    bad = bench.whatsapp.message(ANN, type="text", text=["no object"])
    good = bench.whatsapp.message(ANN, type="text", text={"body": "hi"})
    async with listening(bench.channel) as received:
        status = await bench.server.post(await bench.hook(), bad, good, statuses=["no object"])
    assert status == 200
    assert [text_of(update) for update in received] == ["hi"]
    assert caplog.text.count("an update could not be read") == 2


async def test_call_for_another_number_or_about_a_status_is_only_logged(
    bench: WhatsAppBench, caplog: pytest.LogCaptureFixture
) -> None:
    hello = bench.whatsapp.message(ANN, type="text", text={"body": "hi"})
    failed = {"id": "wamid.1", "status": "failed", "errors": [{"code": 131047, "title": "Late"}]}
    async with listening(bench.channel) as received:
        other = {"phone_number_id": "other"}
        assert await bench.server.post(await bench.hook(), hello, metadata=other) == 200
        assert await bench.server.post(await bench.hook(), statuses=[failed]) == 200
    assert received == []
    assert "messages to the phone number ID other were dropped" in caplog.text
    assert "post wamid.1 was not delivered" in caplog.text


async def test_message_that_could_not_be_stored_is_asked_for_again(bench: WhatsAppBench) -> None:
    async def deliver(update: Inbound) -> None:
        raise OSError("The disk is full.")

    message = bench.whatsapp.message(ANN, type="text", text={"body": "hi"})
    async with anyio.create_task_group() as group:
        group.start_soon(bench.channel.run, deliver)
        assert await bench.server.post(await bench.hook(), message) == 503
        group.cancel_scope.cancel()


async def test_large_file_is_not_overtaken(bench: WhatsAppBench) -> None:
    bench.whatsapp.files["77"] = ("image/png", b"\x89PNG" * 100_000)
    picture = bench.whatsapp.message(
        ANN, type="image", image={"id": "77", "mime_type": "image/png", "caption": "look"}
    )
    text = bench.whatsapp.message(ANN, type="text", text={"body": "and?"})
    async with listening(bench.channel) as received:
        hook = await bench.hook()
        async with anyio.create_task_group() as group:
            group.start_soon(bench.server.post, hook, picture)
            await anyio.wait_all_tasks_blocked()
            group.start_soon(bench.server.post, hook, text)
    assert [text_of(update) for update in received] == ["look", "and?"]
    assert any(isinstance(part, Media) for part in received[0].parts)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            {"type": "location", "location": {"latitude": 1.5, "longitude": 2.5, "name": "Inn"}},
            "Inn",
        ),
        ({"type": "button", "button": {"payload": "p", "text": "Yes"}}, "Yes"),
        ({"type": "audio", "audio": {"id": "9", "mime_type": "audio/ogg", "voice": True}}, "voice"),
        ({"type": "order"}, "order"),
    ],
)
async def test_other_kinds_of_messages_are_described(
    bench: WhatsAppBench, content: Json, words: str
) -> None:
    bench.whatsapp.files["9"] = ("audio/ogg", b"OggS")
    async with listening(bench.channel) as received:
        await bench.post(bench.whatsapp.message(ANN, **content))
    assert words in text_of(received[0])


async def test_typing_is_shown_for_the_newest_message(bench: WhatsAppBench) -> None:
    await bench.channel.typing(HOME, True)
    async with listening(bench.channel) as received:
        await bench.say("hi")
    await bench.channel.typing(HOME, True)
    assert bench.whatsapp.typing == {received[0].message}


async def test_replaced_token_is_used(bench: WhatsAppBench) -> None:
    bench.whatsapp.tokens = {"new"}
    bench.env["WHATSAPP_CLOUD_ACCESS_TOKEN"] = "new"
    async with listening(bench.channel):
        await bench.server.until(lambda: "number" in bench.server.calls)
    await bench.channel.send(HOME, Outbound((Text("hi"),)))
    assert len(bench.whatsapp.shown) == 1


async def test_replaced_secrets_of_the_webhook_are_used_at_once(bench: WhatsAppBench) -> None:
    query = {"hub.mode": "subscribe", "hub.challenge": "1", "hub.verify_token": "new word"}
    message = bench.whatsapp.message(ANN, type="text", text={"body": "hi"})
    async with listening(bench.channel) as received, aiohttp.ClientSession() as session:
        hook = await bench.hook()
        bench.env["WHATSAPP_CLOUD_APP_SECRET"] = "new"
        bench.env["WHATSAPP_CLOUD_VERIFY_TOKEN"] = "new word"
        async with session.get(hook, params=query) as response:
            assert response.status == 200
        assert await bench.server.post(hook, message, secret="new") == 200
        assert await bench.server.post(hook, message) == 403
    assert len(received) == 1


async def test_wrong_signatures_rarely_cause_a_read_of_the_settings(tmp_path: Path) -> None:
    clock = FakeClock()
    async with whatsapp_bench(tmp_path, clock=clock) as bench, listening(bench.channel):
        hook = await bench.hook()
        await bench.server.until(lambda: "number" in bench.server.calls)
        message = bench.whatsapp.message(ANN, type="text", text={"body": "hi"})
        assert await bench.server.post(hook, message, secret="wrong") == 403
        bench.env["WHATSAPP_CLOUD_APP_SECRET"] = "new"
        assert await bench.server.post(hook, message, secret="new") == 403
        await clock.advance(RELOAD_SECONDS)
        assert await bench.server.post(hook, message, secret="new") == 200


async def test_posts_begin_with_the_prefix(tmp_path: Path) -> None:
    env = {"WHATSAPP_CLOUD_REPLY_PREFIX": "*Hermes*"}
    async with whatsapp_bench(tmp_path, env) as bench:
        longest = "x" * bench.channel.caps.max_text
        media = await bench.blobs.put(b"PNG", "image/png", "a.png")
        for block in (Text(longest), Attachment(media, 3, "a cat"), Attachment(media, 3)):
            await bench.channel.send(HOME, Outbound((block,)))
        text, image, bare = (one.fields for one in bench.whatsapp.shown)
    assert text["text"] == {"body": f"*Hermes* {longest}", "preview_url": True}
    assert image["image"] == {"id": "000002", "caption": "*Hermes* a cat"}
    assert "caption" not in str(bare)


async def test_prefix_that_leaves_no_room_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="reply_prefix"):
        async with whatsapp_bench(tmp_path, {"WHATSAPP_CLOUD_REPLY_PREFIX": "x" * 201}):
            pass


async def test_voice_message_is_sent_as_one(bench: WhatsAppBench) -> None:
    media = await bench.blobs.put(b"OggS", "audio/ogg", "a.ogg")
    await bench.channel.send(HOME, Outbound((Attachment(media, 4, voice=True),)))
    assert bench.whatsapp.shown[0].fields["audio"] == {"id": "000001", "voice": True}


@pytest.mark.parametrize(
    ("media_type", "name", "kind", "uploaded"),
    [
        ("image/png", "a.png", "image", "image/png"),
        ("audio/mpeg", "a.mp3", "audio", "audio/mpeg"),
        ("audio/3gpp", "a.3gp", "video", "video/3gpp"),
        ("text/markdown", "a.md", "document", "text/plain"),
        ("application/octet-stream", "a.yaml", "document", "text/plain"),
        ("image/svg+xml", "a.svg", "document", "text/plain"),
    ],
)
async def test_file_is_sent_as_a_type_that_whatsapp_takes(
    bench: WhatsAppBench, media_type: str, name: str, kind: str, uploaded: str
) -> None:
    media = await bench.blobs.put(b"data", media_type, name)
    caption = "x" * 1025
    await bench.channel.send(HOME, Outbound((Attachment(media, 4, caption, voice=True),)))
    assert bench.whatsapp.shown[0].fields["type"] == kind
    assert bench.whatsapp.files["000001"] == (uploaded, b"data")
    assert bench.whatsapp.shown[0].text == ("" if kind == "audio" else caption[:1024])


@pytest.mark.parametrize(
    "media_type", ["application/octet-stream", "application/zip", "image/webp", "audio/wav"]
)
async def test_text_is_sent_instead_of_a_file_that_whatsapp_does_not_take(
    bench: WhatsAppBench, media_type: str
) -> None:
    media = await bench.blobs.put(b"data", media_type, "a.dat")
    await bench.channel.send(HOME, Outbound((Attachment(media, 4, "The plan."),)))
    expected = "a.dat was not sent: WhatsApp does not accept this type of file. The plan."
    assert [post.text for post in bench.whatsapp.shown] == [expected]


async def test_emulator_refuses_other_types_as_meta_does(bench: WhatsAppBench) -> None:
    token = BotToken(lambda: TOKEN)
    options = WhatsAppOptions(phone_number_id=NUMBER_ID, base_url=bench.server.url)
    async with open_graph_api(options, token, {}) as api:
        with pytest.raises(NotSent, match="#100"):
            await api.upload("a.bin", "application/octet-stream", b"data")


async def test_path_of_the_webhook_needs_a_slash(tmp_path: Path) -> None:
    variable = "WHATSAPP_CLOUD_WEBHOOK_PATH"
    with pytest.raises(ConfigError) as caught:
        async with whatsapp_bench(tmp_path, {variable: "hook"}):
            pass
    assert variable in caught.value.hint


@pytest.mark.parametrize("name", ["PHONE_NUMBER_ID", "ACCESS_TOKEN", "APP_SECRET", "VERIFY_TOKEN"])
async def test_missing_setting_is_named(tmp_path: Path, name: str) -> None:
    variable = f"WHATSAPP_CLOUD_{name}"
    with pytest.raises(ConfigError, match=variable):
        async with whatsapp_bench(tmp_path, {variable: ""}):
            pass


async def test_setup_checks_the_token_and_lists_missing_settings(bench: WhatsAppBench) -> None:
    extra, env = {"base_url": bench.server.url}, {**VARIABLES, "WHATSAPP_CLOUD_WABA_ID": "55"}
    check = await check_account(TOKEN, extra, env)
    assert check.account == "+1 555-000-1111 (Hermes)"
    assert "No app is subscribed to the account 55" in check.notes[0]
    assert "callback URL" in check.notes[-1]
    bench.server.callback_url = "https://example.com/hook"
    check = await check_account(TOKEN, extra, {**env, "WHATSAPP_CLOUD_APP_ID": "66"})
    assert check.notes[-1] == "Meta posts messages to https://example.com/hook."
    with pytest.raises(BadToken):
        await check_account("wrong", extra, env)
