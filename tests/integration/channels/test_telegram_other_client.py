"""python-telegram-bot, an independent client, works with the Bot API emulator."""

from collections.abc import AsyncGenerator

import pytest
import telegram
from telegram.request import HTTPXRequest

from emulators.telegram.server import TelegramServer, serve_telegram
from support.telegram import ANN, GROUP, TOKEN, emulator

pytestmark = pytest.mark.slow


@pytest.fixture
async def server() -> AsyncGenerator[TelegramServer]:
    async with serve_telegram(emulator()) as server:
        yield server


@pytest.fixture
async def bot(server: TelegramServer) -> AsyncGenerator[telegram.Bot]:
    request = HTTPXRequest(httpx_kwargs={"trust_env": False})
    polling = HTTPXRequest(httpx_kwargs={"trust_env": False})
    base = f"{server.url}/bot"
    async with telegram.Bot(
        TOKEN,
        base_url=base,
        base_file_url=f"{server.url}/file/bot",
        request=request,
        get_updates_request=polling,
    ) as bot:
        yield bot


async def test_messages_are_received_and_confirmed(
    bot: telegram.Bot, server: TelegramServer
) -> None:
    emulated = server.telegram
    emulated.chat(GROUP, is_forum=True, topics={5: "News"})
    emulated.say(ANN, "hello /start")
    emulated.say(GROUP, "@hermes_test_bot hi", person=ANN, thread=5)
    emulated.album(ANN, [(b"one", "caption"), (b"two", "")])
    updates = await bot.get_updates(allowed_updates=telegram.Update.ALL_TYPES)
    first, topic, one, two = [update.effective_message for update in updates]
    assert first is not None
    assert first.text == "hello /start"
    assert list(first.parse_entities().values()) == ["/start"]
    assert topic is not None
    assert topic.is_topic_message
    assert topic.message_thread_id == 5
    assert one is not None
    assert two is not None
    assert one.media_group_id == two.media_group_id
    data = await (await one.photo[-1].get_file()).download_as_bytearray()
    assert bytes(data) == b"one"
    assert await bot.get_updates(offset=updates[-1].update_id + 1) == ()
    assert emulated.unacknowledged() == 0


async def test_posts_are_sent_edited_and_pressed(bot: telegram.Bot, server: TelegramServer) -> None:
    buttons = telegram.InlineKeyboardMarkup(
        [[telegram.InlineKeyboardButton("A", callback_data="a")]]
    )
    sent = await bot.send_message(ANN, "<b>Which?</b>", parse_mode="HTML", reply_markup=buttons)
    assert sent.text_html == "<b>Which?</b>"
    server.telegram.press(ANN, sent.message_id, "a")
    (update,) = await bot.get_updates()
    assert update.callback_query is not None
    assert update.callback_query.data == "a"
    assert await update.callback_query.answer()
    edited = await bot.edit_message_text("Done.", ANN, sent.message_id)
    assert isinstance(edited, telegram.Message)
    assert edited.text == "Done."
    assert edited.reply_markup is None
    with pytest.raises(telegram.error.BadRequest, match="not modified"):
        await bot.edit_message_text("Done.", ANN, sent.message_id)
    file = await bot.send_document(ANN, b"data", filename="a.txt", caption="here")
    assert file.document is not None
    assert file.document.file_name == "a.txt"


async def test_errors_are_recognized(bot: telegram.Bot, server: TelegramServer) -> None:
    with pytest.raises(telegram.error.BadRequest, match=r"[Cc]an't parse entities"):
        await bot.send_message(ANN, "<b>", parse_mode="HTML")
    with pytest.raises(telegram.error.BadRequest, match="too long"):
        await bot.send_message(ANN, "x" * 4097)
    server.telegram.chat(ANN, blocked=True)
    with pytest.raises(telegram.error.Forbidden):
        await bot.send_message(ANN, "x")
    server.telegram.chat(GROUP, moved_to=-5)
    with pytest.raises(telegram.error.ChatMigrated) as moved:
        await bot.send_message(GROUP, "x")
    assert moved.value.new_chat_id == -5
    await bot.set_webhook("https://example.org/")
    with pytest.raises(telegram.error.Conflict):
        await bot.get_updates()


async def test_account_and_commands(bot: telegram.Bot) -> None:
    me = await bot.get_me()
    assert me.is_bot
    assert me.username == "hermes_test_bot"
    commands = [telegram.BotCommand("help", "List commands.")]
    scope = telegram.BotCommandScopeAllPrivateChats()
    assert await bot.set_my_commands(commands, scope=scope)
    assert list(await bot.get_my_commands(scope=scope)) == commands
    assert (await bot.get_webhook_info()).url == ""
