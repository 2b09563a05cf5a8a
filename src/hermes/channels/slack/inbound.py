"""Turn Slack's events into inbound updates."""

import logging
import re
from collections.abc import Sequence

from msgspec import Struct, structs

from hermes.channels.emoji import SLACK
from hermes.channels.slack import SlackOptions
from hermes.channels.slack.attached_files import FileReader
from hermes.channels.slack.directory import Directory
from hermes.channels.slack.message_text import (
    forwarded_text,
    mentioned_users,
    readable,
    with_command,
    without_leading_mention,
)
from hermes.channels.slack.objects import (
    Interaction,
    Message,
    ReactionEvent,
    SlashCommand,
)
from hermes.channels.slack.position import Position
from hermes.channels.slack.workspaces import Workspace
from hermes.channels.written_at import time_at
from hermes.kit.lru_map import LruMap
from hermes.ports.channel import (
    ChangedReaction,
    DeletedMessage,
    EditedMessage,
    Inbound,
    InboundDetails,
    NewMessage,
    NotSent,
    Offline,
    PressedButton,
    Throttled,
)
from hermes.schema.errors import ConfigError
from hermes.schema.messages import SENT_FILES_HEADER, Media, Text, quoted_text
from hermes.schema.scope import Address

log = logging.getLogger(__name__)

MAX_QUOTE = 4_000
MAX_EARLIER = 12_000
MAX_REMEMBERED = 5_000
OWN_COMMAND = "hermes"
WRITTEN = frozenset({"", "file_share", "thread_broadcast", "me_message", "bot_message"})
"""Subtypes of messages that someone wrote; the others are notices of Slack's own."""


class _Origin(Struct, frozen=True, kw_only=True):
    """Where a message was written, and whether it is for the bot."""

    workspace: Workspace
    address: Address
    is_direct: bool
    mentioned: bool


class InboundBuilder:
    """Builds updates for the channel `name`; `commands` can be typed with `!` in threads."""

    def __init__(
        self,
        *,
        name: str,
        options: SlackOptions,
        directory: Directory,
        files: FileReader,
        position: Position,
        commands: Sequence[str],
    ) -> None:
        self._name = name
        self._options = options
        self._directory = directory
        self._files = files
        self._position = position
        self._commands = frozenset(commands)
        self._patterns = compile_patterns(options.mention_patterns)
        self._last_threads: LruMap[tuple[str, str], str] = LruMap(MAX_REMEMBERED)
        """The thread in which each person last wrote: slash commands do not name it."""

    async def message(
        self, workspace: Workspace, message: Message, update: NewMessage | EditedMessage
    ) -> Inbound | None:
        """Return the update, or None if the message is not for the bot."""
        if self._is_own(workspace, message) or message.subtype not in WRITTEN or message.hidden:
            return None
        self._position.set_team(message.channel, workspace.team)
        origin = self._origin(workspace, message)
        new = isinstance(update, NewMessage)
        key = f"{workspace.bot}:{message.channel}:{message.ts}"
        inbound = Inbound(
            key if new else f"{key}:edit:{message.edited.ts if message.edited else ''}",
            origin.address,
            message.author,
            (),
            message=message.ts,
            about=await self._about(workspace, message, origin),
            update=update,
            written_at=time_at(message.ts),
        )
        if message.files and (refused := await self._files.received.refused(inbound)):
            return refused
        parts = await self._parts(message, origin, with_earlier=new)
        if not parts:
            return None
        if new and (origin.mentioned or origin.is_direct):
            self._remember(message, origin.address)
        return structs.replace(inbound, parts=tuple(parts))

    async def edit(self, workspace: Workspace, event: Message) -> Inbound | None:
        """Return the update for an edit. Link previews also change a message, but not its text."""
        message, before = event.message, event.previous_message
        if message is None:
            return None
        message = structs.replace(message, channel=event.channel, channel_type=event.channel_type)
        if message.subtype == "tombstone":
            # The first message of a thread is emptied instead of removed.
            return self.deletion(workspace, event)
        same = before is not None and (before.text, before.files) == (message.text, message.files)
        if message.edited is None or same:
            return None
        return await self.message(workspace, message, EditedMessage())

    def deletion(self, workspace: Workspace, event: Message) -> Inbound | None:
        message = event.previous_message
        if message is None or self._is_own(workspace, message):
            return None
        ts = event.deleted_ts or message.ts
        message = structs.replace(
            message, channel=event.channel, channel_type=event.channel_type, ts=ts
        )
        origin = self._origin(workspace, message)
        return Inbound(
            f"{workspace.bot}:{event.channel}:{ts}:delete",
            origin.address,
            message.author,
            (),
            message=ts,
            about=_details(workspace, origin, bot=message.from_bot),
            update=DeletedMessage(),
        )

    def reaction(
        self, workspace: Workspace, event: ReactionEvent, *, removed: bool
    ) -> Inbound | None:
        item = event.item
        if event.user == workspace.bot or item.type != "message":
            return None
        thread = item.ts if self._position.takes_part(item.channel, item.ts) else None
        is_direct = item.channel.startswith("D")
        change = "removed" if removed else "added"
        return Inbound(
            f"{workspace.bot}:{item.channel}:{item.ts}:{change}:{event.user}:{event.reaction}:"
            f"{event.event_ts}",
            Address(self._name, item.channel, thread),
            event.user,
            (),
            message=item.ts,
            about=InboundDetails(chat_type="dm" if is_direct else "group", guild=workspace.team),
            update=ChangedReaction(SLACK.emoji(event.reaction), removed),
        )

    def press(self, workspace: Workspace, event: Interaction) -> Inbound | None:
        """A pressed button or a chosen entry of a menu."""
        chat = event.container.channel_id or (event.channel.id if event.channel else "")
        ts = event.container.message_ts or (event.message.ts if event.message else "")
        if event.type != "block_actions" or not event.actions or not chat or not ts:
            return None
        action = event.actions[0]
        thread = event.container.thread_ts or (event.message.thread_ts if event.message else "")
        return Inbound(
            f"{workspace.bot}:{chat}:{ts}:press:{event.user.id}:{action.action_ts}",
            Address(self._name, chat, thread or None),
            event.user.id,
            (),
            message=ts,
            about=InboundDetails(
                chat_type="dm" if chat.startswith("D") else "group",
                guild=workspace.team,
                user_name=event.user.name or event.user.username,
                mentions=True,
            ),
            update=PressedButton(action.chosen),
        )

    def command(self, workspace: Workspace, event: SlashCommand) -> Inbound | None:
        """Return the update for a slash command, which goes to the person's last thread."""
        line = command_line(event)
        if not line or not event.channel_id:
            return None
        self._position.set_team(event.channel_id, workspace.team)
        thread = self._last_threads.get((event.channel_id, event.user_id))
        return Inbound(
            f"{workspace.bot}:command:{event.trigger_id}",
            Address(self._name, event.channel_id, thread),
            event.user_id,
            (Text(line),),
            about=InboundDetails(
                chat_type="dm" if event.channel_id.startswith("D") else "group",
                chat_name=event.channel_name,
                guild=workspace.team,
                user_name=event.user_name,
                mentions=True,
            ),
        )

    def _is_own(self, workspace: Workspace, message: Message) -> bool:
        own = {workspace.bot, workspace.identity.bot_id} - {""}
        return message.author in own or message.bot_id in own or not message.author

    def _origin(self, workspace: Workspace, message: Message) -> _Origin:
        chat, thread = message.channel, message.thread_ts or None
        is_direct = message.channel_type == "im" or chat.startswith("D")
        options = self._options
        if thread is None and options.reply_in_thread:
            opens = not is_direct or options.dm_top_level_threads_as_sessions
            thread = message.ts if opens else None
        return _Origin(
            workspace=workspace,
            address=Address(self._name, chat, thread),
            is_direct=is_direct,
            mentioned=self._is_mentioned(workspace, message),
        )

    def _is_mentioned(self, workspace: Workspace, message: Message) -> bool:
        text = message.text or ""
        if workspace.bot in mentioned_users(text):
            return True
        if any(pattern.search(text) for pattern in self._patterns):
            return True
        # Bots in a thread would answer each other forever.
        return (
            bool(message.thread_ts)
            and not self._options.strict_mention
            and not message.from_bot
            and (
                message.parent_user_id == workspace.bot
                or self._position.takes_part(message.channel, message.thread_ts)
            )
        )

    def _remember(self, message: Message, address: Address) -> None:
        if address.thread:
            self._position.join(address.chat, address.thread)
            self._last_threads.put((address.chat, message.author), address.thread)

    async def _about(
        self, workspace: Workspace, message: Message, origin: _Origin
    ) -> InboundDetails:
        person = await self._directory.person(workspace.api, message.author)
        details = _details(workspace, origin, bot=message.from_bot or person.is_bot)
        name = person.shown_name or message.username or ""
        if origin.is_direct:
            return structs.replace(details, user_name=name)
        chat = await self._directory.chat(workspace.api, message.channel)
        return structs.replace(details, user_name=name, chat_name=chat.name)

    async def _parts(
        self, message: Message, origin: _Origin, *, with_earlier: bool
    ) -> list[Text | Media]:
        """Return the sender's text, then files, then what others wrote, marked as quoted."""
        api, bot = origin.workspace.api, origin.workspace.bot
        text = message.text or ""
        names = await self._directory.names(api, mentioned_users(text))
        typed = readable(without_leading_mention(text, bot), names)
        typed = with_command(typed, self._commands)
        is_for_agent = (
            origin.mentioned or origin.is_direct or self._needs_no_mention(message.channel)
        )
        # Files of conversations between other people are not downloaded.
        files = await self._files.parts(api, message.files) if is_for_agent else []
        others: list[Text | Media] = []
        if forwarded := forwarded_text(message):
            typed = typed or "(forwarded message)"
            others.append(Text(quoted_text("", readable(forwarded[:MAX_QUOTE], {}))))
        if with_earlier and origin.mentioned and (earlier := await self._earlier(message, origin)):
            others.append(Text(earlier))
        if not typed and not files:
            if not origin.mentioned:
                return []
            typed = "(no text)"  # a bare mention counts as a question
        # The first part is always the sender's text, never an attachment.
        if not typed and (others or _is_attachment(files[0])):
            typed = "(no text)"
        return [*([Text(typed)] if typed else []), *files, *others]

    def _needs_no_mention(self, chat: str) -> bool:
        return not self._options.require_mention or chat in self._options.free_response_channels

    async def _earlier(self, message: Message, origin: _Origin) -> str:
        """Return the messages of a thread from before the bot took part."""
        chat, thread, api = message.channel, message.thread_ts, origin.workspace.api
        if not thread or origin.is_direct or self._position.takes_part(chat, thread):
            return ""
        try:
            found = await api.replies(chat, thread)
        except (Offline, Throttled):
            raise
        except NotSent as error:
            log.info("earlier messages of a thread cannot be read: %s", error)
            return ""
        lines: list[str] = []
        for reply in found:
            text = reply.text or forwarded_text(reply)
            if reply.ts == message.ts or not text or reply.subtype not in WRITTEN:
                continue
            users = [reply.author, *mentioned_users(text)]
            names = await self._directory.names(api, users)
            author = names.get(reply.author) or reply.username or reply.author
            lines.append(f"{author}: {readable(text, names)}")
        text = "\n".join(lines)[-MAX_EARLIER:]
        return quoted_text("earlier messages in this thread", text) if text else ""


def command_line(event: SlashCommand) -> str:
    """The command as text: `/hermes stop` is `/stop`, and `/hermes` alone is `/help`."""
    name, text = event.command.lstrip("/"), event.text.strip()
    if name == OWN_COMMAND:
        return f"/{(text or 'help').lstrip('/')}"
    return f"/{name} {text}".rstrip()


def compile_patterns(patterns: Sequence[str]) -> list[re.Pattern[str]]:
    """Compile the expressions. Raises `ConfigError` for an invalid one."""
    try:
        return [re.compile(pattern, re.IGNORECASE) for pattern in patterns]
    except re.error as error:
        raise ConfigError(
            f"slack.mention_patterns contains an invalid expression: {error.pattern!r}.",
            hint="Correct it, then restart the gateway.",
        ) from error


def _details(workspace: Workspace, origin: _Origin, *, bot: bool) -> InboundDetails:
    return InboundDetails(
        chat_type="dm" if origin.is_direct else "group",
        guild=workspace.team,
        bot=bot,
        mentions=origin.mentioned,
    )


def _is_attachment(part: Text | Media) -> bool:
    return isinstance(part, Text) and part.text.startswith(SENT_FILES_HEADER)
