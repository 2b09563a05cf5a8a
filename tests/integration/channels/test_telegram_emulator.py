"""The Bot API emulator enforces the documented rules; each test quotes its rule."""

from collections.abc import AsyncGenerator, Mapping

import aiohttp
import anyio
import msgspec
import pytest
from msgspec import Struct

from emulators.telegram.limits import FloodLimits
from emulators.telegram.server import TelegramServer, serve_telegram
from hermes.testing.clock import FakeClock
from support.chat_platform.state import FaultRates
from support.telegram import ANN, GROUP, TOKEN, emulator


class Answer(Struct):
    ok: bool
    result: object = None
    error_code: int = 0
    description: str = ""
    parameters: dict[str, int] = {}

    @property
    def table(self) -> dict[str, object]:
        return msgspec.convert(self.result, dict[str, object])

    @property
    def updates(self) -> list[int]:
        items = msgspec.convert(self.result, list[dict[str, object]])
        return [int(str(one["update_id"])) for one in items]


class Api(Struct, frozen=True):
    """Calls the emulator as the documentation says: JSON in, JSON out."""

    server: TelegramServer
    session: aiohttp.ClientSession

    async def __call__(
        self, method: str, fields: Mapping[str, object] | None = None, token: str = TOKEN
    ) -> Answer:
        url = f"{self.server.url}/bot{token}/{method}"
        async with self.session.post(url, json=fields or {}) as response:
            answer = msgspec.json.decode(await response.read(), type=Answer)
            assert answer.ok == (response.status == 200)
            return answer

    async def send(self, text: str, **more: object) -> Answer:
        return await self("sendMessage", {"chat_id": ANN, "text": text, **more})


@pytest.fixture
async def api() -> AsyncGenerator[Api]:
    async with serve_telegram(emulator()) as server, aiohttp.ClientSession() as session:
        yield Api(server, session)


async def test_wrong_token(api: Api) -> None:
    """Observed behaviour, not documented: an unknown token is answered with 401, a malformed
    one with 404."""
    assert (await api("getMe", token="4242:wrong")).error_code == 401
    assert (await api("getMe", token="nonsense")).description == "Not Found"


async def test_methods(api: Api) -> None:
    """Telegram, "Bot API": "All methods in the Bot API are case-insensitive." """
    assert (await api("getme")).table["is_bot"] is True
    assert (await api("getNothing")).error_code == 404


async def test_text_length(api: Api) -> None:
    """Telegram, "Bot API": "Text of the message to be sent, 1-4096 characters after entities
    parsing"; that they are counted in UTF-16 is observed."""
    assert (await api.send("x" * 4096)).ok
    assert (await api.send("x" * 4097)).description == "Bad Request: message is too long"
    assert (await api.send("😀" * 2048)).ok
    assert not (await api.send("😀" * 2049)).ok
    assert (await api.send("")).description == "Bad Request: message text is empty"
    assert (await api.send(f"<b>{'x' * 4096}</b>", parse_mode="HTML")).ok


@pytest.mark.parametrize(
    "markup", ["<b>open", "a < b", "<b><i>x</b></i>", "</b>", "<div>x</div>", "<span>x</span>"]
)
async def test_markup_errors(api: Api, markup: str) -> None:
    """Only supported tags, closed in order; "<" and "&" must be written as entities."""
    refused = await api.send(markup, parse_mode="HTML")
    assert refused.error_code == 400
    assert refused.description.startswith("Bad Request: can't parse entities: ")


async def test_entities(api: Api) -> None:
    """Telegram, "Bot API": "Offset in UTF-16 code units to the start of the entity." """
    sent = await api.send('😀 <b>bold</b> <a href="https://x.org">link</a> &lt;', parse_mode="HTML")
    assert sent.table["text"] == "😀 bold link <"
    assert sent.table["entities"] == [
        {"type": "bold", "offset": 3, "length": 4},
        {"type": "text_link", "offset": 8, "length": 4, "url": "https://x.org"},
    ]


async def test_unknown_and_blocked_chats(api: Api) -> None:
    """Observed behaviour, not documented: a bot cannot write to chats it does not know, nor to
    people who blocked it."""
    gone = await api("sendMessage", {"chat_id": 5, "text": "x"})
    assert gone.description == "Bad Request: chat not found"
    api.server.telegram.chat(6)
    new = await api("sendMessage", {"chat_id": 6, "text": "x"})
    assert new.description == "Forbidden: bot can't initiate conversation with a user"
    api.server.telegram.chat(ANN, blocked=True)
    blocked = await api.send("x")
    assert (blocked.error_code, blocked.description) == (
        403,
        "Forbidden: bot was blocked by the user",
    )


async def test_migrated_group(api: Api) -> None:
    """Telegram, "Bot API": "The group has been migrated to a supergroup with the specified
    identifier." """
    api.server.telegram.chat(GROUP, moved_to=-100_300)
    refused = await api("sendMessage", {"chat_id": GROUP, "text": "x"})
    assert (refused.error_code, refused.parameters) == (400, {"migrate_to_chat_id": -100_300})


async def test_reply_to_a_missing_message(api: Api) -> None:
    """Telegram, "Bot API": "Pass True if the message should be sent even if the specified
    message to be replied to is not found." """
    refused = await api.send("x", reply_parameters={"message_id": 999})
    assert refused.description == "Bad Request: message to be replied not found"
    kept = {"message_id": 999, "allow_sending_without_reply": True}
    assert (await api.send("x", reply_parameters=kept)).ok


async def test_missing_topic(api: Api) -> None:
    """message_thread_id: Unique identifier for the target message thread (topic)."""
    refused = await api.send("x", message_thread_id=77)
    assert refused.description == "Bad Request: message thread not found"


async def test_button_data(api: Api) -> None:
    """Telegram, "Bot API": "Data to be sent in a callback query to the bot when the button is
    pressed, 1-64 bytes" """

    def keyboard(data: str) -> object:
        return {"inline_keyboard": [[{"text": "A", "callback_data": data}]]}

    assert (await api.send("x", reply_markup=keyboard("é" * 32))).ok
    refused = await api.send("x", reply_markup=keyboard("é" * 33))
    assert refused.description == "Bad Request: BUTTON_DATA_INVALID"


async def test_edit(api: Api) -> None:
    """Observed behaviour, not documented: a message is edited only if something changes, and
    only the bot's own."""
    sent = (await api.send("one")).table
    place = {"chat_id": ANN, "message_id": sent["message_id"]}
    same = await api("editMessageText", {**place, "text": "one"})
    assert same.description.startswith("Bad Request: message is not modified")
    assert (await api("editMessageText", {**place, "text": "two"})).table["text"] == "two"
    missing = await api("editMessageText", {"chat_id": ANN, "message_id": 999, "text": "x"})
    assert missing.description == "Bad Request: message to edit not found"
    theirs = api.server.telegram.say(ANN, "mine")
    refused = await api("editMessageText", {"chat_id": ANN, "message_id": theirs, "text": "x"})
    assert refused.description == "Bad Request: message can't be edited"


async def test_callback_query_is_answered_once(api: Api) -> None:
    """Observed behaviour, not documented: an unknown or old query cannot be answered."""
    sent = (await api.send("x")).table
    query = api.server.telegram.press(ANN, int(str(sent["message_id"])), "a")
    assert (await api("answerCallbackQuery", {"callback_query_id": query})).ok
    again = await api("answerCallbackQuery", {"callback_query_id": query})
    assert again.description.startswith("Bad Request: query is too old")


async def test_offset(api: Api) -> None:
    """Telegram, "Bot API": "An update is considered confirmed as soon as getUpdates is called
    with an offset higher than its update_id." """
    for text in ("one", "two", "three"):
        api.server.telegram.say(ANN, text)
    first = (await api("getUpdates")).updates
    assert (await api("getUpdates")).updates == first
    assert (await api("getUpdates", {"limit": 1})).updates == first[:1]
    assert (await api("getUpdates", {"offset": first[1]})).updates == first[1:]
    assert (await api("getUpdates")).updates == first[1:]
    assert (await api("getUpdates", {"offset": -1})).updates == first[2:]


async def test_allowed_updates(api: Api) -> None:
    """Telegram, "Bot API": "Specify an empty list to receive all update types except
    chat_member, message_reaction, and message_reaction_count (default)." """
    telegram = api.server.telegram
    number = telegram.say(ANN, "one")
    telegram.react(ANN, number, "👍")
    assert len((await api("getUpdates")).updates) == 1
    await api("getUpdates", {"allowed_updates": ["message_reaction"]})
    telegram.react(ANN, number, "👍")
    telegram.say(ANN, "two")
    assert len((await api("getUpdates")).updates) == 2


async def test_second_poller_ends_the_first(api: Api) -> None:
    """Observed behaviour, not documented: of two getUpdates requests at a time, the earlier one
    is terminated with 409."""
    answers: list[Answer] = []

    async def poll(seconds: int) -> None:
        answers.append(await api("getUpdates", {"timeout": seconds}))

    async with anyio.create_task_group() as group:
        group.start_soon(poll, 30)
        await api.server.until(lambda: api.server.telegram.bot.polls == 1)
        group.start_soon(poll, 0)
    assert [one.error_code for one in answers if not one.ok] == [409]
    assert "terminated by other getUpdates" in "".join(one.description for one in answers)


async def test_polling_with_a_webhook(api: Api) -> None:
    """Telegram, "Bot API": "This method will not work if an outgoing webhook is set up." """
    await api("setWebhook", {"url": "https://example.org/x"})
    refused = await api("getUpdates")
    assert (refused.error_code, refused.description[:8]) == (409, "Conflict")
    await api("deleteWebhook")
    assert (await api("getUpdates")).ok


async def test_webhook_secret(api: Api) -> None:
    """Telegram, "Bot API": "1-256 characters. Only characters A-Z, a-z, 0-9, _ and - are
    allowed." """
    assert not (await api("setWebhook", {"url": "https://x.org", "secret_token": "a b"})).ok


async def test_download_limit(api: Api) -> None:
    """Telegram, "Bot API": "For the moment, bots can download files of up to 20MB in size." """
    small = api.server.telegram.add_file("a.bin", b"x")
    large = api.server.telegram.add_file("b.bin", bytes(20_000_001))
    assert (await api("getFile", {"file_id": small})).ok
    refused = await api("getFile", {"file_id": large})
    assert refused.description == "Bad Request: file is too big"


async def test_reactions(api: Api) -> None:
    """Bots may set one emoji from the list of available reactions."""
    number = api.server.telegram.say(ANN, "x")
    for emoji, ok in (("👀", True), ("✅", False)):
        reaction = [{"type": "emoji", "emoji": emoji}]
        fields = {"chat_id": ANN, "message_id": number, "reaction": reaction}
        assert (await api("setMessageReaction", fields)).ok is ok


async def test_commands(api: Api) -> None:
    """Telegram, "Bot API": "Text of the command; 1-32 characters. Can contain only lowercase
    English letters, digits and underscores." """

    async def accepts(*commands: tuple[str, str]) -> bool:
        listed = [{"command": name, "description": text} for name, text in commands]
        return (await api("setMyCommands", {"commands": listed})).ok

    assert await accepts(("help", "x"))
    assert not await accepts(("new-session", "x"))
    assert not await accepts(("x" * 33, "x"))
    assert not await accepts(("help", "x" * 257))
    assert not await accepts(*[("help", "x")] * 101)


async def test_flood_limits() -> None:
    """Telegram, "Bots FAQ": "In a single chat, avoid sending more than one message per second.
    We may allow short bursts that go over this limit, but eventually you'll begin receiving 429
    errors.", "In a group, bots are not be able to send more than 20 messages per minute.",
    "bots are not able to broadcast more than about 30 messages per second" """
    clock = FakeClock()
    limits = FloodLimits(clock)
    assert [limits.wait(ANN) for _ in range(4)] == [0, 0, 0, 0]
    assert limits.wait(ANN) == 3
    assert limits.wait(ANN) == 4, "a call during the penalty makes it longer"
    waits = [limits.wait(GROUP) for _ in range(21)]
    assert (waits[:20], waits[20]) == ([0] * 20, 60)
    assert limits.wait(7) == limits.wait(8) == 0
    waits = [limits.wait(number) for number in range(100, 130)]
    assert max(waits) == 1


async def test_throttled_call_says_how_long_to_wait() -> None:
    """Telegram, "Bot API": "In case of exceeding flood control, the number of seconds left to
    wait before the request can be repeated" """
    telegram = emulator(limits=FloodLimits(FakeClock()))
    async with serve_telegram(telegram) as server, aiohttp.ClientSession() as session:
        api = Api(server, session)
        answers = [await api.send(f"post {number}") for number in range(5)]
    assert [one.error_code for one in answers] == [0, 0, 0, 0, 429]
    assert answers[-1].parameters == {"retry_after": 3}


async def test_repeated_update_is_one_that_was_sent_before() -> None:
    """Otherwise a bot that confirms the batch would lose the updates in between."""
    telegram = emulator(faults=FaultRates(repeated=1.0))
    async with serve_telegram(telegram) as server, aiohttp.ClientSession() as session:
        for number in range(150):
            telegram.say(ANN, f"{number}")
        batch = (await Api(server, session)("getUpdates")).updates
    assert len(batch) > len(set(batch)) == 100
    assert max(batch) == min(batch) + 99
