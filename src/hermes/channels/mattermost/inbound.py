"""Turn posts and reactions into inbound updates."""

import re
from functools import partial

from msgspec import structs

from hermes.channels.emoji import MATTERMOST
from hermes.channels.mattermost import FILE_LIMIT, MattermostOptions
from hermes.channels.mattermost.objects import (
    DIRECT,
    WRITTEN,
    Channel,
    FileInfo,
    Post,
    Reaction,
    User,
)
from hermes.channels.mattermost.rest_api import MattermostApi
from hermes.channels.received_files import AttachedFile, ReceivedFiles, RecordingKind, media_type_of
from hermes.channels.written_at import time_at
from hermes.kit.lru_map import LruMap
from hermes.ports.channel import (
    ChangedReaction,
    DeletedMessage,
    EditedMessage,
    Inbound,
    InboundDetails,
    NewMessage,
)
from hermes.schema.messages import SENT_FILES_HEADER, Media, Text
from hermes.schema.scope import Address

MAX_REMEMBERED = 5_000
_RECORDINGS: dict[str, RecordingKind] = {"audio": "audio", "video": "video"}


class Directory:
    """Channels, people and threads that were looked up."""

    def __init__(self, api: MattermostApi) -> None:
        self._api = api
        self._channels: LruMap[str, Channel] = LruMap(MAX_REMEMBERED)
        self._users: LruMap[str, User] = LruMap(MAX_REMEMBERED)
        self._roots: LruMap[str, str] = LruMap(MAX_REMEMBERED)

    def add(self, channel: Channel) -> None:
        self._channels.put(channel.id, channel)

    def add_post(self, post: Post) -> None:
        self._roots.put(post.id, post.root_id or post.id)

    async def channel(self, channel: str) -> Channel:
        if (known := self._channels.get(channel)) is None:
            known = await self._api.channel(channel)
            self.add(known)
        return known

    async def user(self, user: str) -> User:
        if (known := self._users.get(user)) is None:
            known = await self._api.user(user)
            self._users.put(user, known)
        return known

    async def root_of(self, post: str) -> str:
        """Return the first post of the thread, or the post itself if it is in no thread."""
        if (known := self._roots.get(post)) is None:
            self.add_post(await self._api.post(post))
            known = self._roots.get(post) or post
        return known


class InboundBuilder:
    """Builds updates for one bot; None means that an event is not meant for it."""

    def __init__(
        self,
        *,
        name: str,
        bot: User,
        api: MattermostApi,
        directory: Directory,
        files: ReceivedFiles,
        options: MattermostOptions,
    ) -> None:
        self._name = name
        self._bot = bot
        self._api = api
        self._directory = directory
        self._files = files
        self._options = options
        names = "|".join(re.escape(name) for name in (bot.username, bot.id) if name)
        self._mention = re.compile(rf"(?<![\w@])@(?:{names})(?![\w-]|\.\w)", re.IGNORECASE)

    async def message(self, post: Post, update: NewMessage | EditedMessage) -> Inbound | None:
        if self._is_ignored(post):
            return None
        channel, sender = await self._origin(post)
        mentioned = self._mention.search(post.message) is not None
        key = self._key(post)
        inbound = Inbound(
            key if isinstance(update, NewMessage) else f"{key}:edit:{post.edit_at}",
            self._address(post, channel),
            post.user_id,
            (),
            reply_to=post.root_id or None,
            message=post.id,
            about=self._about(post, channel, sender, mentioned=mentioned),
            update=update,
            written_at=time_at(post.create_at / 1000),
        )
        if post.file_ids and (refused := await self._files.refused(inbound)):
            return refused
        parts = await self._parts(post, channel, mentioned=mentioned)
        return structs.replace(inbound, parts=tuple(parts)) if parts else None

    async def deletion(self, post: Post) -> Inbound | None:
        if self._is_ignored(post):
            return None
        channel, sender = await self._origin(post)
        return Inbound(
            f"{self._key(post)}:delete",
            self._address(post, channel),
            post.user_id,
            (),
            message=post.id,
            about=self._about(post, channel, sender, mentioned=False),
            update=DeletedMessage(),
        )

    async def reaction(
        self, reaction: Reaction, channel_id: str, *, removed: bool
    ) -> Inbound | None:
        if reaction.user_id == self._bot.id or not channel_id:
            return None
        channel = await self._directory.channel(channel_id)
        sender = await self._directory.user(reaction.user_id)
        root = await self._directory.root_of(reaction.post_id)
        post = Post(
            id=reaction.post_id,
            channel_id=channel_id,
            user_id=reaction.user_id,
            root_id="" if root == reaction.post_id else root,
        )
        change = f"{reaction.user_id}:{reaction.emoji_name}:{reaction.create_at}:{removed}"
        return Inbound(
            f"{self._key(post)}:{change}",
            self._address(post, channel),
            reaction.user_id,
            (),
            message=post.id,
            about=self._about(post, channel, sender, mentioned=False),
            update=ChangedReaction(MATTERMOST.emoji(reaction.emoji_name), removed),
        )

    def _is_ignored(self, post: Post) -> bool:
        self._directory.add_post(post)
        return post.user_id == self._bot.id or post.type not in WRITTEN

    def _key(self, post: Post) -> str:
        return f"{self._bot.id}:{post.id}"

    async def _origin(self, post: Post) -> tuple[Channel, User]:
        channel = await self._directory.channel(post.channel_id)
        return channel, await self._directory.user(post.user_id)

    def _address(self, post: Post, channel: Channel) -> Address:
        """Return the address of the conversation, a new thread if answers open threads."""
        opens = self._options.reply_mode == "thread" and channel.type != DIRECT
        return Address(self._name, post.channel_id, post.root_id or (post.id if opens else None))

    def _about(
        self, post: Post, channel: Channel, sender: User, *, mentioned: bool
    ) -> InboundDetails:
        direct = channel.type == DIRECT
        return InboundDetails(
            chat_type="dm" if direct else "group",
            chat_name="" if direct else channel.display_name or channel.name,
            guild=channel.team_id,
            user_name=sender.username,
            bot=sender.is_bot or post.from_program,
            mentions=mentioned,
        )

    async def _parts(self, post: Post, channel: Channel, *, mentioned: bool) -> list[Text | Media]:
        text = self._without_mention(post.message)
        is_for_agent = (
            mentioned
            or channel.type == DIRECT
            or not self._options.require_mention
            or channel.id in self._options.free_response_channels
        )
        files: list[Text | Media] = []
        if post.file_ids and is_for_agent:
            # Files of conversations between other people are not downloaded.
            for info in await self._file_infos(post):
                files += await self._fetch(info)
        if not text and (not files or _is_attachment(files[0])):
            # A bare mention counts as a question; the first part is always the sender's text.
            text = "(no text)" if files or mentioned else ""
        return [*([Text(text)] if text else []), *files]

    def _without_mention(self, text: str) -> str:
        """The text without a mention of the bot at its start or end."""
        bare = text.strip()
        if (first := self._mention.match(bare)) is not None:
            return bare[first.end() :].lstrip(" ,:\n")
        last = [*self._mention.finditer(bare)][-1:]
        if last and last[0].end() == len(bare):
            return bare[: last[0].start()].rstrip()
        return text

    async def _file_infos(self, post: Post) -> tuple[FileInfo, ...]:
        known = post.metadata.files if post.metadata is not None else None
        return known or await self._api.file_infos(post.id)

    async def _fetch(self, info: FileInfo) -> list[Text | Media]:
        kind = media_type_of(info.name, info.mime_type)
        file = AttachedFile(
            name=info.name or info.id,
            media_type=kind,
            size=info.size,
            recording=_RECORDINGS.get(kind.partition("/")[0], ""),
        )
        return await self._files.fetch(
            file, partial(self._api.download, info.id, max_bytes=FILE_LIMIT)
        )


def _is_attachment(part: Text | Media) -> bool:
    return isinstance(part, Text) and part.text.startswith(SENT_FILES_HEADER)
