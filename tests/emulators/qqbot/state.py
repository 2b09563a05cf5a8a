"""The state of the emulated QQ: a bot, chats, messages that can be replied to, and posts."""

import random
import re
from collections import deque
from collections.abc import Callable, Mapping

import msgspec
from msgspec import Struct, field

from hermes.channels.qqbot.objects import ChatKind
from hermes.kit.clock import Clock, SystemClock
from support.chat_platform.state import NO_FAULTS, FaultRates

APP_ID = "102000001"
SECRET = "s3cret-of-the-emulated-app"
BOT = "6158788878435714165"
TOKEN_SECONDS = 7200
REPLY_SECONDS = {
    ChatKind.USER: 3600, ChatKind.GROUP: 300, ChatKind.CHANNEL: 300, ChatKind.DIRECT: 300
}  # fmt: skip
MAX_REPLIES = {ChatKind.USER: 5, ChatKind.GROUP: 5}
GUILD_RATE = 5
"""Messages per second in a channel of a guild."""
ALL_INTENTS = 1 << 30 | 1 << 12 | 1 << 25 | 1 << 26
_URL = re.compile(r"https?://([^\s/?#)\]>]+)")


def openid(number: int) -> str:
    """An openid as QQ makes them: 32 digits and capital letters."""
    return f"E4F4AEA33253A2797FB8{number:012X}"


ANN = openid(1)
ANN_IN_GROUP = openid(2)
GROUP = openid(100)
CHANNEL = "100010"
GUILD = "18700000000001"
ANN_IN_GUILD = "1234000000001"
DIRECT_GUILD = "18700000000002"


class Refusal(Exception):
    """A documented error: its code, text and status."""

    def __init__(self, code: int, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


class WrittenMessage(Struct):
    """A message or an event of a person, with the numbers of the replies to it."""

    kind: ChatKind
    chat: str
    at: float
    event: bool = False
    numbers: set[int] = field(default_factory=set[int])
    replies: int = 0


class EmulatedPost(Struct):
    id: str
    kind: ChatKind
    chat: str
    text: str
    markdown: bool = False
    buttons: dict[str, str] = field(default_factory=dict[str, str])
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    reply: str = ""


class StoredFile(Struct):
    name: str
    data: bytes
    kind: ChatKind


class _Label(Struct):
    label: str
    visited_label: str
    style: int


class _Permission(Struct):
    type: int


class _Action(Struct):
    type: int
    permission: _Permission
    data: str
    unsupport_tips: str


class _Button(Struct):
    render_data: _Label
    action: _Action


class _Row(Struct):
    buttons: list[_Button]


class _Rows(Struct):
    rows: list[_Row]


class _Keyboard(Struct):
    content: _Rows


class EmulatedQq:
    """One bot. `emit` sends an event to the session of the bot's connection.

    `push_quota` is how many messages that are no replies a chat may get in a month.
    """

    def __init__(
        self, faults: FaultRates = NO_FAULTS, seed: int = 0, clock: Clock | None = None
    ) -> None:
        self.faults = faults
        self.chance = random.Random(seed)  # noqa: S311 - faults of tests
        self.clock = clock or SystemClock()
        self.on_change: Callable[[], None] = lambda: None
        self.emit: Callable[[str, Mapping[str, object]], None] = lambda name, data: None
        self.written: dict[str, WrittenMessage] = {}
        self.posts: list[EmulatedPost] = []
        self.uploads: dict[str, StoredFile] = {}
        self.files: dict[str, bytes] = {}
        """Files of people, by name."""
        self.acknowledged: list[str] = []
        self.push_quota = 4
        self.pushes: dict[str, int] = {}
        self.may_markdown = True
        self.may_buttons = True
        self.intents = ALL_INTENTS
        self.link_domains = {"example.com"}
        self._recent: dict[str, deque[float]] = {}
        self._numbers = 0

    def now(self) -> float:
        return self.clock.now().timestamp()

    def say(
        self,
        text: str,
        kind: ChatKind = ChatKind.USER,
        chat: str = "",
        *,
        person: str = "",
        attachments: list[dict[str, object]] | None = None,
    ) -> str:
        """Write as a person and return the id of the message."""
        chat = chat or _HOMES[kind]
        number = self._written(kind, chat, "ROBOT1.0_")
        self.emit(_EVENTS[kind], self._message(number, text, kind, chat, person, attachments or []))
        self.on_change()
        return number

    def repeat(self, number: str, text: str) -> None:
        """Send the event of a message to a person once more."""
        known = self.written[number]
        self.emit(_EVENTS[known.kind], self._message(number, text, known.kind, known.chat, "", []))

    def delete(self, number: str) -> None:
        """Take a message in a guild back."""
        known = self.written[number]
        name = "PUBLIC" if known.kind is ChatKind.CHANNEL else "DIRECT"
        message = self._message(number, "", known.kind, known.chat, "", [])
        self.emit(f"{name}_MESSAGE_DELETE", {"message": message, "op_user": message["author"]})

    def press(self, post: str, value: str, *, as_in_example: bool = False) -> str:
        """Press a button and return the id of the interaction.

        The documented example has the person of a single chat in another place than the table.
        """
        shown = next(one for one in self.posts if one.id == post)
        number = self._written(shown.kind, shown.chat, "press-", event=True)
        resolved = {"button_data": value, "button_id": "1"}
        data: dict[str, object] = {
            "id": number, "type": 11, "version": 1, "data": {"resolved": resolved, "type": 11},
        }  # fmt: skip
        match shown.kind:
            case ChatKind.USER:
                data["chat_type"] = 2
                if as_in_example:
                    data["data"] = {"resolved": {**resolved, "user_id": shown.chat}, "type": 11}
                else:
                    data["user_openid"] = shown.chat
            case ChatKind.GROUP:
                data |= {"chat_type": 1, "group_openid": shown.chat}
                data["group_member_openid"] = ANN_IN_GROUP
            case _:
                data |= {"chat_type": 0, "channel_id": shown.chat, "guild_id": GUILD}
                data["data"] = {"resolved": {**resolved, "user_id": ANN_IN_GUILD}, "type": 11}
        self.emit("INTERACTION_CREATE", data)
        return number

    def post(self, kind: ChatKind, chat: str, fields: Mapping[str, object]) -> EmulatedPost:
        """Send a message of the bot. Raises `Refusal` by the documented rules."""
        post = self._checked_post(kind, chat, fields)
        self._check_links(post.text)
        if kind.in_guild:
            self._check_guild_rate(chat)
        self._check_reply(kind, chat, fields)
        self.posts.append(post)
        self.on_change()
        return post

    def shown(self, chat: str) -> list[EmulatedPost]:
        return [one for one in self.posts if one.chat == chat]

    def _written(self, kind: ChatKind, chat: str, prefix: str, *, event: bool = False) -> str:
        self._numbers += 1
        number = f"{prefix}{self._numbers:06d}"
        self.written[number] = WrittenMessage(kind, chat, self.now(), event)
        return number

    def _message(
        self,
        number: str,
        text: str,
        kind: ChatKind,
        chat: str,
        person: str,
        attachments: list[dict[str, object]],
    ) -> dict[str, object]:
        data: dict[str, object] = {
            "id": number, "content": text,
            "timestamp": self.clock.now().isoformat(timespec="seconds"),
        }  # fmt: skip
        if attachments:
            data["attachments"] = attachments
        match kind:
            case ChatKind.USER:
                return {**data, "author": {"user_openid": person or chat}}
            case ChatKind.GROUP:
                author = {"member_openid": person or ANN_IN_GROUP}
                return {**data, "author": author, "group_openid": chat, "content": f" {text}"}
            case ChatKind.CHANNEL:
                data |= {"channel_id": chat, "guild_id": GUILD}
                data["content"] = f"<@!{BOT}> {_escaped(text)}"
            case ChatKind.DIRECT:
                data |= {"channel_id": "200", "guild_id": chat, "content": _escaped(text)}
        author = {"id": person or ANN_IN_GUILD, "username": "ann", "bot": False}
        return {**data, "author": author, "member": {"roles": ["1"]}, "seq": 101}

    def _checked_post(
        self, kind: ChatKind, chat: str, fields: Mapping[str, object]
    ) -> EmulatedPost:
        self._numbers += 1
        post = EmulatedPost(f"post-{self._numbers:06d}", kind, chat, "")
        post.reply = str(fields.get("msg_id") or fields.get("event_id") or "")
        content, markdown = str(fields.get("content") or ""), fields.get("markdown")
        kind_of_message = fields.get("msg_type")
        if not kind.in_guild and kind_of_message not in {0, 2, 7}:
            raise Refusal(40034001, "请求参数msg_type无效")
        if markdown is not None:
            if not self.may_markdown:
                raise Refusal(50056, "不允许发送 markdown content")
            post.text, post.markdown = str(as_table(markdown).get("content") or ""), True
        elif fields.get("keyboard") is not None:
            raise Refusal(50037, "带有markdown消息只支持 markdown 或者 keyboard 组合")
        elif kind_of_message == 7:
            if not content:
                raise Refusal(50006, "消息为空")
            self._add_media(post, as_table(fields.get("media")))
            post.text = content.strip()
        else:
            # A post in a guild is sent with its signs escaped, and shown without.
            post.text = _unescaped(content) if kind.in_guild else content
        if not post.text and not post.files and "file_image" not in fields:
            raise Refusal(50006, "消息为空")
        if (keyboard := fields.get("keyboard")) is not None:
            self._add_buttons(post, keyboard)
        return post

    def _add_media(self, post: EmulatedPost, media: Mapping[str, object]) -> None:
        stored = self.uploads.get(str(media.get("file_info")))
        if stored is None or stored.kind is not post.kind:
            raise Refusal(304083, "convert media info fail")
        post.files[stored.name] = stored.data

    def _add_buttons(self, post: EmulatedPost, keyboard: object) -> None:
        if not self.may_buttons:
            raise Refusal(304037, "没有发消息按钮组件的权限")
        try:
            rows = msgspec.convert(keyboard, _Keyboard).content.rows
        except msgspec.ValidationError as error:
            raise Refusal(304039, "消息按钮组件解析错误") from error
        if not 0 < len(rows) <= 5 or any(not 0 < len(row.buttons) <= 5 for row in rows):
            raise Refusal(304040, "消息按钮组件消息内容错误")
        for button in (one for row in rows for one in row.buttons):
            post.buttons[button.action.data] = button.render_data.label

    def _check_links(self, text: str) -> None:
        for found in _URL.finditer(text):
            if found[1] not in self.link_domains:
                raise Refusal(304003, "url not allowed")

    def _check_guild_rate(self, chat: str) -> None:
        recent = self._recent.setdefault(chat, deque())
        now = self.clock.monotonic()
        while recent and recent[0] <= now - 1:
            recent.popleft()
        if len(recent) >= GUILD_RATE:
            raise Refusal(20028, "subchannel message write rate limit")
        recent.append(now)

    def _check_reply(self, kind: ChatKind, chat: str, fields: Mapping[str, object]) -> None:
        number = fields.get("msg_id") or fields.get("event_id")
        if number is None:
            if self.pushes.get(chat, 0) >= self.push_quota:
                raise Refusal(40034102, "主动消息失败, 无权限")
            self.pushes[chat] = self.pushes.get(chat, 0) + 1
            return
        known = self.written.get(str(number))
        if known is None or known.chat != chat or known.event == ("msg_id" in fields):
            raise Refusal(40034024, "请求参数msg_id无效或越权")
        if self.now() - known.at > REPLY_SECONDS[kind]:
            raise Refusal(304027 if kind.in_guild else 40034024, "msg expire")
        sequence = fields.get("msg_seq", 1)
        if not kind.in_guild:
            if not isinstance(sequence, int) or sequence in known.numbers:
                raise Refusal(40054005, "消息被去重, 请检查请求msgseq")
            if known.replies >= MAX_REPLIES[kind]:
                raise Refusal(22009, "msg limit exceed")
            known.numbers.add(sequence)
        known.replies += 1


def as_table(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType]


_EVENTS = {
    ChatKind.USER: "C2C_MESSAGE_CREATE",
    ChatKind.GROUP: "GROUP_AT_MESSAGE_CREATE",
    ChatKind.CHANNEL: "AT_MESSAGE_CREATE",
    ChatKind.DIRECT: "DIRECT_MESSAGE_CREATE",
}
_HOMES = {
    ChatKind.USER: ANN,
    ChatKind.GROUP: GROUP,
    ChatKind.CHANNEL: CHANNEL,
    ChatKind.DIRECT: DIRECT_GUILD,
}


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _unescaped(text: str) -> str:
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
