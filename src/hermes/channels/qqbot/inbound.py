"""Turn QQ's events into inbound updates."""

import html
import re
from functools import partial

import msgspec
from msgspec import Struct, structs

from hermes.channels.qqbot import FILE_LIMIT
from hermes.channels.qqbot.objects import (
    ChatKind,
    Deletion,
    Frame,
    Interaction,
    Message,
    ReceivedFile,
)
from hermes.channels.qqbot.rest_api import QqApi
from hermes.channels.received_files import AttachedFile, ReceivedFiles, RecordingKind, media_type_of
from hermes.channels.written_at import iso_time
from hermes.kit.lru_map import LruMap
from hermes.ports.channel import (
    DeletedMessage,
    Inbound,
    InboundDetails,
    NewMessage,
    PressedButton,
    Update,
)
from hermes.schema.messages import SENT_FILES_HEADER, Media, Text
from hermes.schema.scope import Address

MESSAGES = {
    "C2C_MESSAGE_CREATE": ChatKind.USER,
    "GROUP_AT_MESSAGE_CREATE": ChatKind.GROUP,
    "AT_MESSAGE_CREATE": ChatKind.CHANNEL,
    "DIRECT_MESSAGE_CREATE": ChatKind.DIRECT,
}
DELETIONS = {
    "PUBLIC_MESSAGE_DELETE": ChatKind.CHANNEL,
    "DIRECT_MESSAGE_DELETE": ChatKind.DIRECT,
}
INTERACTION = "INTERACTION_CREATE"
_RECORDINGS: dict[str, RecordingKind] = {"audio": "audio", "video": "video"}
_MENTION = re.compile(r"\s*<@!?\w+>\s*")


class Origin(Struct, frozen=True):
    """Where an event happened, and the message or event that can be replied to."""

    kind: ChatKind
    chat: str
    question: str
    timestamp: str = ""
    event: bool = False


class InboundBuilder:
    """`posts` are the ids of sent posts by chat and value of a button."""

    def __init__(
        self, *, name: str, app: str, api: QqApi, files: ReceivedFiles, posts: LruMap[str, str]
    ) -> None:
        self._name = name
        self._app = app
        self._api = api
        self._files = files
        self._posts = posts

    def origin_of(self, frame: Frame) -> Origin | None:
        """Return where an event happened; None if the gateway does not use it."""
        event = frame.t or ""
        if (kind := MESSAGES.get(event)) is not None:
            message = msgspec.json.decode(frame.d, type=Message)
            return Origin(kind, _chat(kind, message), message.id, message.timestamp)
        if (kind := DELETIONS.get(event)) is not None:
            message = msgspec.json.decode(frame.d, type=Deletion).message
            return Origin(kind, _chat(kind, message), "")
        if event == INTERACTION:
            press = msgspec.json.decode(frame.d, type=Interaction)
            kind, chat = _press_chat(press)
            return Origin(kind, chat, press.id, event=True)
        return None

    async def build(self, frame: Frame, origin: Origin) -> Inbound | None:
        if frame.t == INTERACTION:
            return self._press(msgspec.json.decode(frame.d, type=Interaction), origin)
        if frame.t in DELETIONS:
            deleted = msgspec.json.decode(frame.d, type=Deletion).message
            return self._update(deleted, origin, DeletedMessage())
        message = msgspec.json.decode(frame.d, type=Message)
        if message.author.bot:
            return None
        update = self._update(message, origin, NewMessage())
        if message.attachments and (refused := await self._files.refused(update)):
            return refused
        parts = await self._parts(message, origin.kind)
        return structs.replace(update, parts=tuple(parts)) if parts else None

    def _update(self, message: Message, origin: Origin, update: Update) -> Inbound:
        author = message.author
        sender = {ChatKind.USER: author.user_openid, ChatKind.GROUP: author.member_openid}
        what = ":delete" if isinstance(update, DeletedMessage) else ""
        return Inbound(
            f"{self._app}:{message.id}{what}",
            Address(self._name, origin.chat),
            sender.get(origin.kind, "") or author.id,
            (),
            message=message.id,
            about=_about(origin.kind, message.guild_id, author.username),
            update=update,
            written_at=iso_time(message.timestamp),
        )

    def _press(self, press: Interaction, origin: Origin) -> Inbound:
        pressed = press.data.resolved
        sender = press.user_openid or press.group_member_openid or pressed.user_id
        known = self._posts.get(f"{origin.chat}:{pressed.button_data}")
        return Inbound(
            f"{self._app}:press:{press.id}",
            Address(self._name, origin.chat),
            sender,
            (),
            message=pressed.message_id or known or press.id,
            about=_about(origin.kind, press.guild_id, ""),
            update=PressedButton(pressed.button_data),
        )

    async def _parts(self, message: Message, kind: ChatKind) -> list[Text | Media]:
        text = message.content
        if kind.in_guild:
            text = html.unescape(_MENTION.sub(" ", text, count=1).strip())
        elif kind is ChatKind.GROUP:
            # Remove the rest of the mention.
            text = text.strip()
        files: list[Text | Media] = []
        for attachment in message.attachments or ():
            files += await self._fetch(attachment)
        if not text.strip() and (not files or _is_attachment(files[0])):
            # A bare mention counts as a question; the first part is always the sender's text.
            text = "(no text)" if files or kind is not ChatKind.USER else ""
        return [*([Text(text)] if text.strip() else []), *files]

    async def _fetch(self, sent: ReceivedFile) -> list[Text | Media]:
        voice = sent.content_type == "voice"
        if voice and sent.asr_refer_text.strip():
            return [Text(f"{sent.asr_refer_text.strip()}\n(A voice note; QQ transcribed it.)")]
        url = (sent.voice_wav_url if voice else "") or sent.url
        name = sent.filename or ("voice.silk" if voice else "file")
        declared = sent.content_type if "/" in sent.content_type else ""
        kind = media_type_of(name, "audio/wav" if voice and sent.voice_wav_url else declared)
        file = AttachedFile(
            name=name,
            media_type="audio/silk" if voice and not sent.voice_wav_url else kind,
            kind="voice note" if voice else "file",
            size=sent.size,
            recording="audio" if voice else _RECORDINGS.get(kind.partition("/")[0], ""),
        )
        # Addresses of files in guilds have no scheme.
        full = url if "://" in url else f"https://{url}"
        return await self._files.fetch(
            file, partial(self._api.download, full, max_bytes=FILE_LIMIT)
        )


def _chat(kind: ChatKind, message: Message) -> str:
    match kind:
        case ChatKind.USER:
            return message.author.user_openid
        case ChatKind.GROUP:
            return message.group_openid
        case ChatKind.CHANNEL:
            return message.channel_id
        case ChatKind.DIRECT:
            return message.guild_id


def _press_chat(press: Interaction) -> tuple[ChatKind, str]:
    if press.group_openid:
        return ChatKind.GROUP, press.group_openid
    if press.channel_id:
        return ChatKind.CHANNEL, press.channel_id
    # Some events name the person only in the button's data.
    return ChatKind.USER, press.user_openid or press.data.resolved.user_id


def _about(kind: ChatKind, guild: str, user_name: str) -> InboundDetails:
    direct = kind in {ChatKind.USER, ChatKind.DIRECT}
    return InboundDetails(
        chat_type="dm" if direct else "group",
        guild=guild,
        user_name=user_name,
        # In groups, the bot only gets what mentions it.
        mentions=True,
    )


def _is_attachment(part: Text | Media) -> bool:
    return isinstance(part, Text) and part.text.startswith(SENT_FILES_HEADER)
