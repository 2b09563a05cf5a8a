"""The methods of the emulated Bot API, each with the rules that its documentation states."""

import re
from collections.abc import Callable, Mapping

import msgspec
from msgspec import Struct

from emulators.telegram.entities import (
    Entity,
    EntityError,
    found_entities,
    parse_html,
    utf16_length,
)
from emulators.telegram.state import (
    DEFAULT_UPDATES,
    EmulatedBot,
    EmulatedChat,
    EmulatedMessage,
    EmulatedTelegram,
    Json,
)

MAX_TEXT = 4096
MAX_CAPTION = 1024
MAX_DOWNLOAD = 20_000_000
MAX_UPLOAD = 50_000_000
MAX_PHOTO = 10_000_000
MAX_COMMANDS = 100
REACTIONS = frozenset(
    "👍👎❤🔥🥰👏😁🤔🤯😱🤬😢🎉🤩🤮💩🙏👌🕊🤡🥱🥴😍🐳🌚🌭💯🤣⚡🍌🏆💔🤨😐🍓🍾💋🖕😈😴😭🤓👻👀🎃🙈😇😨🤝✍🤗🫡🎅🎄☃💅🤪🗿🆒💘🙉🦄😘💊🙊😎👾🤷😡"
)
ACTIONS = frozenset(
    {
        "typing", "upload_photo", "record_video", "upload_video", "record_voice", "upload_voice",
        "upload_document", "choose_sticker", "find_location", "record_video_note",
        "upload_video_note",
    }
)  # fmt: skip
NOT_MODIFIED = (
    "Bad Request: message is not modified: specified new message content and reply markup are "
    "exactly the same as a current content and reply markup of the message"
)


class ApiError(Exception):
    def __init__(self, code: int, description: str, **parameters: int) -> None:
        super().__init__(description)
        self.code = code
        self.parameters = parameters


class UploadedFile(Struct, frozen=True):
    name: str
    data: bytes


class Call(Struct, frozen=True):
    """One call: the values as given, JSON or text, and uploaded files."""

    bot: EmulatedBot
    values: Mapping[str, object]
    files: Mapping[str, UploadedFile] = {}

    def value(self, name: str) -> object:
        """A value; structured ones may be given as JSON text, as in forms."""
        value = self.values.get(name)
        if isinstance(value, str) and value[:1] in {"{", "["}:
            return msgspec.json.decode(value)
        return value

    def text(self, name: str) -> str:
        value = self.values.get(name)
        return value if isinstance(value, str) else "" if value is None else str(value)

    def number(self, name: str, default: int = 0) -> int:
        value = self.text(name)
        return int(value) if re.fullmatch(r"-?\d+", value) else default

    def table(self, name: str) -> Mapping[str, object]:
        value = self.value(name)
        return msgspec.convert(value, dict[str, object]) if isinstance(value, dict) else {}

    def items(self, name: str) -> list[object]:
        value = self.value(name)
        return msgspec.convert(value, list[object]) if isinstance(value, list) else []


class Methods:
    """Methods that answer at once; `getUpdates` waits and is served by the server."""

    def __init__(self, telegram: EmulatedTelegram) -> None:
        self._telegram = telegram
        self._methods: dict[str, Callable[[Call], object]] = {
            "getme": lambda call: call.bot.user,
            "sendmessage": self._send_message,
            "editmessagetext": self._edit_text,
            "editmessagereplymarkup": self._edit_markup,
            "deletemessage": self._delete,
            "sendchataction": self._chat_action,
            "setmessagereaction": self._react,
            "answercallbackquery": self._answer_query,
            "getfile": self._get_file,
            "setmycommands": self._set_commands,
            "getmycommands": self._get_commands,
            "setwebhook": self._set_webhook,
            "deletewebhook": self._delete_webhook,
            "getwebhookinfo": self._webhook_info,
            "getchat": lambda call: self._chat(call).object,
        }
        for kind in ("photo", "document", "voice", "audio", "video"):
            self._methods[f"send{kind}"] = self._sender(kind)

    def call(self, method: str, call: Call) -> object:
        """Names of methods are not case-sensitive."""
        handler = self._methods.get(method.lower())
        if handler is None:
            raise ApiError(404, "Not Found: method not found")
        return handler(call)

    def _chat(self, call: Call) -> EmulatedChat:
        chat = self._telegram.chats.get(call.number("chat_id"))
        if chat is None:
            raise ApiError(400, "Bad Request: chat not found")
        if chat.moved_to:
            raise ApiError(
                400,
                "Bad Request: group chat was upgraded to a supergroup chat",
                migrate_to_chat_id=chat.moved_to,
            )
        if chat.blocked:
            kind = "blocked by the user" if chat.type == "private" else "kicked from the group chat"
            raise ApiError(403, f"Forbidden: bot was {kind}")
        if chat.type == "private" and not chat.known:
            raise ApiError(403, "Forbidden: bot can't initiate conversation with a user")
        return chat

    def _limit(self, chat: EmulatedChat) -> None:
        limits = self._telegram.limits
        if limits is not None and (wait := limits.wait(chat.id)):
            raise ApiError(429, f"Too Many Requests: retry after {wait}", retry_after=wait)

    def _send_message(self, call: Call) -> Json:
        chat = self._chat(call)
        text, entities = _parsed(call, call.text("text"), MAX_TEXT, "message text is empty")
        more = self._common(call, chat)
        self._limit(chat)
        content: Json = {"text": text, **more}
        if entities:
            content["entities"] = [msgspec.to_builtins(one) for one in entities]
        return self._telegram.new_post(chat.id, content, text).object

    def _sender(self, kind: str) -> Callable[[Call], object]:
        def send(call: Call) -> object:
            chat, file = self._chat(call), call.files.get(kind)
            if file is None:
                raise ApiError(400, f"Bad Request: there is no {kind} in the request")
            if len(file.data) > (MAX_PHOTO if kind == "photo" else MAX_UPLOAD):
                raise ApiError(413, "Request Entity Too Large")
            if not file.data:
                raise ApiError(400, "Bad Request: file must be non-empty")
            caption, _ = _parsed(call, call.text("caption"), MAX_CAPTION, "")
            self._limit(chat)
            telegram = self._telegram
            sent = (
                [telegram.photo(file.data)]
                if kind == "photo"
                else telegram.document(file.data, file.name)
            )
            content: Json = {kind: sent, **self._common(call, chat)}
            if caption:
                content["caption"] = caption
            post = telegram.new_post(chat.id, content, caption)
            post.file = file.data
            return post.object

        return send

    def _common(self, call: Call, chat: EmulatedChat) -> Json:
        """Topic, quoted message and buttons."""
        more: Json = {}
        if thread := call.number("message_thread_id"):
            if thread not in chat.topics:
                raise ApiError(400, "Bad Request: message thread not found")
            more |= {"message_thread_id": thread, "is_topic_message": True}
        reply = call.table("reply_parameters")
        if reply:
            quoted = self._telegram.messages.get((chat.id, int(str(reply["message_id"]))))
            if quoted is not None:
                more["reply_to_message"] = {
                    key: value for key, value in quoted.object.items() if key != "reply_to_message"
                }
            elif not reply.get("allow_sending_without_reply"):
                raise ApiError(400, "Bad Request: message to be replied not found")
        if (markup := _markup(call)) is not None:
            more["reply_markup"] = markup
        return more

    def _message(self, call: Call, what: str) -> EmulatedMessage:
        found = self._telegram.messages.get((self._chat(call).id, call.number("message_id")))
        if found is None:
            raise ApiError(400, f"Bad Request: message {what} not found")
        return found

    def _edit_text(self, call: Call) -> Json:
        message = self._message(call, "to edit")
        if not message.own:
            raise ApiError(400, "Bad Request: message can't be edited")
        text, entities = _parsed(call, call.text("text"), MAX_TEXT, "message text is empty")
        markup = _markup(call)
        new: Json = {
            key: value
            for key, value in message.object.items()
            if key not in {"text", "entities", "reply_markup", "edit_date"}
        }
        new["text"] = text
        if entities:
            new["entities"] = [msgspec.to_builtins(one) for one in entities]
        if markup is not None:
            new["reply_markup"] = markup
        before = {key: value for key, value in message.object.items() if key != "edit_date"}
        if new == before:
            raise ApiError(400, NOT_MODIFIED)
        self._limit(self._chat(call))
        message.object = {**new, "edit_date": 1_700_000_001}
        message.forms.append(text)
        self._telegram.changes.append(message)
        self._telegram.on_change()
        return message.object

    def _edit_markup(self, call: Call) -> Json:
        message, markup = self._message(call, "to edit"), _markup(call)
        if message.object.get("reply_markup") == markup:
            raise ApiError(400, NOT_MODIFIED)
        message.object.pop("reply_markup", None)
        if markup is not None:
            message.object["reply_markup"] = markup
        self._telegram.on_change()
        return message.object

    def _delete(self, call: Call) -> bool:
        self._message(call, "to delete")
        del self._telegram.messages[(self._chat(call).id, call.number("message_id"))]
        self._telegram.on_change()
        return True

    def _chat_action(self, call: Call) -> bool:
        chat = self._chat(call)
        if call.text("action") not in ACTIONS:
            raise ApiError(400, "Bad Request: wrong parameter action in request")
        chat.typing = True
        self._telegram.on_change()
        return True

    def _react(self, call: Call) -> bool:
        message = self._message(call, "to react")
        emoji = [
            str(msgspec.convert(one, dict[str, object])["emoji"]) for one in call.items("reaction")
        ]
        if len(emoji) > 1 or not REACTIONS.issuperset(emoji):
            raise ApiError(400, "Bad Request: REACTION_INVALID")
        message.reactions[:] = emoji
        self._telegram.on_change()
        return True

    def _answer_query(self, call: Call) -> bool:
        query = call.text("callback_query_id")
        if query not in self._telegram.queries or query in self._telegram.answered:
            raise ApiError(
                400,
                "Bad Request: query is too old and response timeout expired or query ID is invalid",
            )
        self._telegram.answered.append(query)
        self._telegram.on_change()
        return True

    def _get_file(self, call: Call) -> Json:
        number = call.text("file_id")
        if number not in self._telegram.files:
            raise ApiError(400, "Bad Request: invalid file_id")
        path, data = self._telegram.files[number]
        if len(data) > MAX_DOWNLOAD:
            raise ApiError(400, "Bad Request: file is too big")
        return {
            "file_id": number, "file_unique_id": number, "file_size": len(data), "file_path": path,
        }  # fmt: skip

    def _set_commands(self, call: Call) -> bool:
        commands = [msgspec.convert(one, dict[str, object]) for one in call.items("commands")]
        if len(commands) > MAX_COMMANDS:
            raise ApiError(400, "Bad Request: BOT_COMMANDS_TOO_MUCH")
        for one in commands:
            if not re.fullmatch(r"[a-z0-9_]{1,32}", str(one["command"])):
                raise ApiError(400, "Bad Request: BOT_COMMAND_INVALID")
            if not 1 <= len(str(one["description"])) <= 256:
                raise ApiError(400, "Bad Request: BOT_COMMAND_DESCRIPTION_INVALID")
        call.bot.commands[str(call.table("scope").get("type", "default"))] = commands
        self._telegram.on_change()
        return True

    def _get_commands(self, call: Call) -> list[Json]:
        return call.bot.commands.get(str(call.table("scope").get("type", "default")), [])

    def _set_webhook(self, call: Call) -> bool:
        secret = call.text("secret_token")
        if not re.fullmatch(r"[A-Za-z0-9_-]{0,256}", secret):
            raise ApiError(400, "Bad Request: secret token contains unallowed characters")
        call.bot.webhook = {"url": call.text("url"), "secret": secret} if call.text("url") else {}
        self._allow(call)
        self._telegram.on_change()
        return True

    def _delete_webhook(self, call: Call) -> bool:
        call.bot.webhook = {}
        if call.text("drop_pending_updates").lower() == "true":
            call.bot.updates.clear()
        self._telegram.on_change()
        return True

    def _webhook_info(self, call: Call) -> Json:
        info: Json = {
            "url": call.bot.webhook.get("url", ""),
            "has_custom_certificate": False,
            "pending_update_count": len(call.bot.updates),
        }
        if error := call.bot.webhook.get("error"):
            info |= {"last_error_date": 1_700_000_000, "last_error_message": error}
        return info

    def _allow(self, call: Call) -> None:
        allowed = call.items("allowed_updates")
        if allowed or call.value("allowed_updates") == []:
            call.bot.allowed = frozenset(map(str, allowed)) or DEFAULT_UPDATES

    allow = _allow


def _parsed(call: Call, source: str, most: int, empty: str) -> tuple[str, list[Entity]]:
    """Text and entities. The length counts after parsing."""
    mode = call.text("parse_mode")
    try:
        if not mode:
            text, entities = source, found_entities(source)
        elif mode.upper() == "HTML":
            text, entities = parse_html(source)
        else:
            raise ApiError(400, "Bad Request: unsupported parse_mode")
    except EntityError as error:
        raise ApiError(400, f"Bad Request: can't parse entities: {error}") from error
    if not text.strip():
        if empty:
            raise ApiError(400, f"Bad Request: {empty}")
        return "", []
    if utf16_length(text) > most:
        what = "message" if most == MAX_TEXT else "message caption"
        raise ApiError(400, f"Bad Request: {what} is too long")
    return text, entities


def _markup(call: Call) -> Json | None:
    markup = call.table("reply_markup")
    if not markup:
        return None
    rows = msgspec.convert(markup.get("inline_keyboard", []), list[list[dict[str, str]]])
    for button in (one for row in rows for one in row):
        if not button.get("text"):
            raise ApiError(400, "Bad Request: inline keyboard button text must be non-empty")
        if not 1 <= len(button.get("callback_data", "").encode()) <= 64:
            raise ApiError(400, "Bad Request: BUTTON_DATA_INVALID")
    return {"inline_keyboard": rows}
