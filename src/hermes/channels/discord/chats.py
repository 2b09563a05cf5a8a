"""Look up servers' channels and threads, from gateway events or otherwise from the API."""

import msgspec
from msgspec import structs

from hermes.channels.discord.gateway_connection import GatewayEvent
from hermes.channels.discord.objects import Channel, Guild
from hermes.channels.discord.rest_api import RestApi
from hermes.kit.lru_map import LruMap
from hermes.ports.channel import NotSent, Offline, Throttled

MAX_CHATS = 5_000

_CHANGED = frozenset({"CHANNEL_CREATE", "CHANNEL_UPDATE", "THREAD_CREATE", "THREAD_UPDATE"})
_GONE = frozenset({"CHANNEL_DELETE", "THREAD_DELETE"})


class ChatDirectory:
    def __init__(self, api: RestApi) -> None:
        self._api = api
        self._known: LruMap[str, Channel] = LruMap(MAX_CHATS)

    def read(self, event: GatewayEvent) -> Guild | None:
        """Update the directory from an event; return the server that it describes, if any."""
        if event.name == "GUILD_CREATE":
            guild = msgspec.json.decode(event.data, type=Guild)
            for chat in (*guild.channels, *guild.threads):
                self.add(chat)
            return guild
        if event.name in _CHANGED:
            self.add(msgspec.json.decode(event.data, type=Channel))
        elif event.name in _GONE:
            self._known.drop(msgspec.json.decode(event.data, type=Channel).id)
        return None

    def add(self, chat: Channel) -> None:
        """Store a chat, keeping fields that updates and interactions leave out."""
        if (known := self._known.get(chat.id)) is not None:
            chat = structs.replace(
                chat,
                parent_id=chat.parent_id or known.parent_id,
                owner_id=chat.owner_id or known.owner_id,
                member=known.member if chat.member is None else chat.member,
            )
        self._known.put(chat.id, chat)

    async def find(self, chat: str) -> Channel | None:
        """Return the chat, or None if the bot cannot see it."""
        if (known := self._known.get(chat)) is not None:
            return known
        try:
            found = await self._api.channel(chat)
        except (Offline, Throttled):
            raise
        except NotSent:
            return None
        self.add(found)
        return found

    async def is_forum(self, chat: str) -> bool:
        found = await self.find(chat)
        return found is not None and found.is_forum
