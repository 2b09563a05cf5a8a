"""Receive the events of one connection: in order per chat, with missed messages."""

import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

import anyio
import msgspec
from anyio.abc import TaskGroup
from msgspec import Struct, structs

from hermes.channels.chat_queues import ChatQueues
from hermes.channels.discord import DiscordOptions
from hermes.channels.discord.chats import ChatDirectory
from hermes.channels.discord.gateway_connection import GatewayEvent
from hermes.channels.discord.inbound import InboundBuilder
from hermes.channels.discord.objects import (
    Guild,
    Interaction,
    InteractionType,
    Message,
    MessageDeleted,
    MessageFlag,
    ReactionEvent,
    Ready,
    snowflake_at,
)
from hermes.channels.discord.position import OVERLAP, EventLog
from hermes.channels.discord.rest_api import RestApi
from hermes.channels.unreadable_updates import UnreadableUpdates
from hermes.kit.clock import Clock
from hermes.ports.channel import EditedMessage, Inbound, NewMessage, NotSent, Offline, Throttled
from hermes.schema.errors import HermesError

log = logging.getLogger(__name__)

HandleInbound = Callable[[Inbound], Awaitable[None]]
ACKNOWLEDGE_SECONDS = 2.0
"""An interaction must be acknowledged within 3 seconds, stored or not."""
GUILD_SECONDS = 30.0
"""Seconds to wait for the descriptions of the servers in a new session."""
PAGE = 100
GUILDS = "guilds"
_DEFERRED_UPDATE, _REPLY = 6, 4
_QUEUED = frozenset(
    {
        "MESSAGE_CREATE", "MESSAGE_UPDATE", "MESSAGE_DELETE", "MESSAGE_DELETE_BULK",
        "MESSAGE_REACTION_ADD", "MESSAGE_REACTION_REMOVE",
    }
)  # fmt: skip


class MissedSearch(Struct, frozen=True):
    """A search of a chat for messages that were missed."""

    chat: str
    guild: str
    since: datetime


class _Where(Struct, frozen=True):
    channel_id: str


class _ReadyGuilds(Struct, frozen=True):
    guilds: tuple[Guild, ...] = ()


class _BulkDeleted(Struct, frozen=True):
    ids: tuple[str, ...]
    channel_id: str
    guild_id: str = ""


class Receiver:
    """Passes the updates of events to `deliver`; an event is handled once they are durable."""

    def __init__(
        self,
        *,
        group: TaskGroup,
        api: RestApi,
        builder: InboundBuilder,
        chats: ChatDirectory,
        events: EventLog,
        options: DiscordOptions,
        clock: Clock,
        unreadable: UnreadableUpdates,
        deliver: HandleInbound,
    ) -> None:
        self._group = group
        self._api = api
        self._builder = builder
        self._chats = chats
        self._events = events
        self._missed = options.missed_message_backfill
        self._clock = clock
        self._unreadable = unreadable
        self._deliver = deliver
        self._queues: ChatQueues[GatewayEvent | MissedSearch] = ChatQueues(group, self._handle)
        self._since: datetime | None = None
        self._awaited: set[str] = set()
        self._fetched = 0

    async def has_room(self) -> None:
        await self._queues.has_room()

    def receive(self, event: GatewayEvent) -> None:
        """Take an event; called for each in the order of arrival."""
        if event.name == "READY":
            self._new_session(event)
            return
        if event.name == "RESUMED":
            self._events.caught_up()
        self._events.began(event)
        with self._unreadable.skipping(event.data):
            if event.name in _QUEUED:
                where = msgspec.json.decode(event.data, type=_Where)
                self._queues.put(where.channel_id, event)
                return
            if event.name == "INTERACTION_CREATE":
                self._group.start_soon(self._interaction, event)
                return
            if (guild := self._chats.read(event)) is not None:
                self._search_guild(guild)
        self._events.ended(event)

    def _new_session(self, event: GatewayEvent) -> None:
        """Search for messages missed since the last session, because Discord replays none."""
        ready = msgspec.json.decode(event.data, type=Ready)
        guilds = msgspec.json.decode(event.data, type=_ReadyGuilds).guilds
        since = self._events.position.handled_until
        self._since, self._fetched = None, 0
        if since is not None and self._missed.enabled:
            self._since = max(since - OVERLAP, self._oldest())
            self._awaited = {guild.id for guild in guilds}
            if self._awaited:
                self._events.began_search(GUILDS, self._since)
                self._group.start_soon(self._stop_waiting)
            for chat in self._events.direct:
                self._search(chat, "")
        self._events.opened(ready.session_id, ready.resume_gateway_url)
        self._events.began(event)
        self._events.ended(event)

    async def _stop_waiting(self) -> None:
        """Stop waiting for servers that are unavailable."""
        await self._clock.sleep(GUILD_SECONDS)
        self._awaited.clear()
        self._events.ended_search(GUILDS)

    def _search_guild(self, guild: Guild) -> None:
        if self._since is None:
            return
        # A server may be described again much later, for example after an outage.
        self._since = max(self._since, self._oldest())
        after = snowflake_at(self._since)
        for chat in (*guild.channels, *guild.threads):
            if chat.last_message_id and int(chat.last_message_id) >= after:
                self._search(chat.id, guild.id, chat.parent_id or "")
        if guild.id in self._awaited:
            self._awaited.discard(guild.id)
            if not self._awaited:
                self._events.ended_search(GUILDS)

    def _oldest(self) -> datetime:
        return self._clock.now() - timedelta(seconds=self._missed.window_seconds)

    def _search(self, chat: str, guild: str, parent: str = "") -> None:
        """Search a chat for missed messages; a listed channel includes its threads."""
        listed = self._missed.channels
        if self._since is None or (listed and chat not in listed and parent not in listed):
            return
        self._events.began_search(chat, self._since)
        self._queues.put(chat, MissedSearch(chat, guild, self._since))

    async def _handle(self, event: GatewayEvent | MissedSearch) -> None:
        if isinstance(event, MissedSearch):
            await self._fetch(event)
            self._events.ended_search(event.chat)
            return
        updates: list[Inbound] = []
        with self._unreadable.skipping(event.data):
            updates = await self._updates(event)
        for inbound in updates:
            await self._deliver(inbound)
        self._events.ended(event)

    async def _updates(self, event: GatewayEvent) -> list[Inbound]:
        found: list[Inbound | None] = []
        match event.name:
            case "MESSAGE_CREATE":
                message = msgspec.json.decode(event.data, type=Message)
                if not message.guild_id:
                    self._events.add_direct(message.channel_id)
                found = [await self._builder.message(message, NewMessage())]
            case "MESSAGE_UPDATE":
                message = msgspec.json.decode(event.data, type=Message)
                # Link previews also change a message, but not its text.
                if message.edited_timestamp is not None:
                    found = [await self._builder.message(message, EditedMessage())]
            case "MESSAGE_DELETE":
                deleted = msgspec.json.decode(event.data, type=MessageDeleted)
                found = [self._builder.deletion(deleted)]
            case "MESSAGE_DELETE_BULK":
                bulk = msgspec.json.decode(event.data, type=_BulkDeleted)
                found = [
                    self._builder.deletion(
                        MessageDeleted(id=message_id, channel_id=bulk.channel_id)
                    )
                    for message_id in bulk.ids
                ]
            case _:
                changed = msgspec.json.decode(event.data, type=ReactionEvent)
                removed = event.name == "MESSAGE_REACTION_REMOVE"
                key = f"{event.session}:{event.sequence}"
                found = [await self._builder.reaction(changed, key, removed=removed)]
        return [inbound for inbound in found if inbound is not None]

    async def _fetch(self, search: MissedSearch) -> None:
        try:
            messages = await self._messages_since(search)
        except Offline:
            # The search is incomplete; it is repeated with the next connection.
            raise
        except NotSent as error:
            # For example, a channel that the bot may not read.
            log.info("channel %s cannot be searched for missed messages: %s", search.chat, error)
            return
        limit = self._missed.max_dispatches
        for message in messages:
            if limit and self._fetched >= limit:
                log.warning("more missed messages are skipped: max_dispatches is %d", limit)
                return
            inbound = None
            with self._unreadable.skipping(message):
                inbound = await self._builder.message(
                    structs.replace(message, guild_id=search.guild), NewMessage()
                )
            if inbound is not None:
                self._fetched += 1
                await self._deliver(inbound)

    async def _messages_since(self, search: MissedSearch) -> list[Message]:
        """Return the newest messages since then, oldest first, up to the configured limit."""
        after = snowflake_at(search.since)
        before = str(snowflake_at(self._clock.now() + timedelta(days=1)))
        found: list[Message] = []
        while len(found) < self._missed.limit:
            page = await self._page(search.chat, before)
            found = [*(message for message in page if int(message.id) >= after), *found]
            if len(page) < PAGE or int(page[0].id) < after:
                break
            before = page[0].id
        return found[-self._missed.limit :]

    async def _page(self, chat: str, before: str) -> list[Message]:
        """Fetch a page; wait for the rate limit as long as it takes, as there may be many pages."""
        while True:
            try:
                return await self._api.messages(chat, before=before, limit=PAGE)
            except Throttled as error:
                await self._clock.sleep(error.wait)

    async def _interaction(self, event: GatewayEvent) -> None:
        """Store it, but acknowledge it in time even if storing takes longer."""
        inbound = interaction = None
        with self._unreadable.skipping(event.data):
            interaction = msgspec.json.decode(event.data, type=Interaction)
            inbound = await self._builder.interaction(interaction)
        if inbound is not None and interaction is not None:
            stored = anyio.Event()

            async def acknowledge(interaction: Interaction = interaction) -> None:
                with anyio.move_on_after(ACKNOWLEDGE_SECONDS):
                    await stored.wait()
                await self._acknowledge(interaction)

            async with anyio.create_task_group() as group:
                group.start_soon(acknowledge)
                await self._deliver(inbound)
                stored.set()
        self._events.ended(event)

    async def _acknowledge(self, interaction: Interaction) -> None:
        """Acknowledge an interaction; this fails if it is replayed after an outage."""
        response: dict[str, object] = {"type": _DEFERRED_UPDATE}
        if interaction.type == InteractionType.COMMAND:
            words = [
                str(option.value) for option in interaction.data.options if option.value is not None
            ]
            text = " ".join([f"/{interaction.data.name}", *words])
            data: dict[str, object] = {
                "content": text[:1900],
                "flags": int(MessageFlag.EPHEMERAL),
                "allowed_mentions": {"parse": []},
            }
            response = {"type": _REPLY, "data": data}
        path = f"/interactions/{interaction.id}/{interaction.token}/callback"
        try:
            await self._api.call("POST", path, object, response)
        except HermesError as error:
            log.info("an interaction could not be acknowledged: %s", error)
