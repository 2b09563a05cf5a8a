"""Find the messages that arrived while there was no connection."""

import logging
from datetime import datetime, timedelta

import anyio
from msgspec import Struct, structs

from hermes.channels.slack.objects import Chat, Message
from hermes.channels.slack.position import Position
from hermes.channels.slack.web_api import WebApi, ts_order
from hermes.channels.slack.workspaces import Workspace
from hermes.kit.clock import Clock
from hermes.ports.channel import NotSent, Offline, Throttled

log = logging.getLogger(__name__)

OVERLAP = timedelta(seconds=60)
"""How far back messages are fetched again: clocks differ, and the gateway ignores repetitions."""
WINDOW = timedelta(hours=6)
"""Older messages are no longer answered."""


class Outage(Struct, frozen=True):
    """An outage: messages since then may be missing.

    `number` is the number of its position entry.
    """

    since: datetime
    number: int


class MissedSearch(Struct, frozen=True):
    """A search of a chat for messages since then; `number` is the number of its position entry."""

    workspace: Workspace
    chat: str
    is_direct: bool
    since: datetime
    number: int


class MissedMessages:
    def __init__(self, position: Position, clock: Clock) -> None:
        self._position = position
        self._clock = clock
        self._searching = anyio.Lock()
        """One search at a time: after a restart the remaining rate is unknown, and when Slack
        refuses one call, all concurrent ones fail.
        """

    def outage(self) -> Outage | None:
        """Return the last outage; None before the first connection."""
        until = self._position.handled_until
        if until is None:
            return None
        since = max(until - OVERLAP, self._clock.now() - WINDOW)
        return Outage(since, self._position.began(since))

    async def searches(self, workspace: Workspace, outage: Outage) -> list[MissedSearch]:
        """Return the searches needed in a workspace."""
        since = outage.since
        return [
            MissedSearch(workspace, chat.id, chat.is_im, since, self._position.began(since))
            for chat in await self._chats(workspace.api)
        ]

    async def _chats(self, api: WebApi) -> list[Chat]:
        while True:
            try:
                return await api.chats()
            except Throttled as error:
                await self._clock.sleep(error.wait)
            except Offline:
                raise
            except NotSent as error:
                log.warning("messages missed in an outage cannot be fetched: %s", error)
                return []

    async def find(self, search: MissedSearch) -> list[Message]:
        """The messages of a chat and of its threads since then, oldest first."""
        while True:
            try:
                async with self._searching:
                    return await self._find(search)
            except Throttled as error:
                await self._clock.sleep(error.wait)
            except Offline:
                # The search is incomplete; it is repeated with the next connection.
                raise
            except NotSent as error:
                log.info("%s cannot be searched for missed messages: %s", search.chat, error)
                return []

    async def _find(self, search: MissedSearch) -> list[Message]:
        api, chat = search.workspace.api, search.chat
        oldest = f"{search.since.timestamp():.6f}"
        found = {message.ts: message for message in await api.history(chat, oldest=oldest)}
        threads = [message.ts for message in found.values() if message.latest_reply]
        # A thread that began earlier is not in the history.
        for thread in dict.fromkeys([*threads, *self._position.threads_in(chat)]):
            for reply in await api.replies(chat, thread, oldest=oldest):
                # The first message of a thread is always included, however old it is.
                if ts_order(reply.ts) >= ts_order(oldest):
                    found[reply.ts] = reply
        kind = "im" if search.is_direct else "channel"
        messages = sorted(found.values(), key=lambda message: ts_order(message.ts))
        return [structs.replace(message, channel=chat, channel_type=kind) for message in messages]
