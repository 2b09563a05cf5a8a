"""Receive the events of one connection in order per channel, and fetch missed posts."""

import logging
from collections.abc import Awaitable, Callable

from anyio.abc import TaskGroup
from msgspec import Struct

from hermes.channels.chat_queues import ChatQueues
from hermes.channels.mattermost.cursors import Cursors
from hermes.channels.mattermost.inbound import Directory, InboundBuilder
from hermes.channels.mattermost.objects import Frame, Post, Reaction
from hermes.channels.mattermost.rest_api import MattermostApi
from hermes.channels.unreadable_updates import UnreadableUpdates
from hermes.kit.clock import Clock
from hermes.kit.lru_map import LruMap
from hermes.ports.channel import (
    EditedMessage,
    Inbound,
    NewMessage,
    NotSent,
    Offline,
    Throttled,
)

log = logging.getLogger(__name__)

HandleInbound = Callable[[Inbound], Awaitable[None]]
OVERLAP = 5_000
"""Overlap in milliseconds when fetching: posts of the same moment may appear out of order."""
EDITED_WITHIN = 3_600_000
"""Milliseconds after a channel's last post during which changes to it are still fetched."""
OLDEST = 6 * 86_400_000
"""The gateway recognizes messages that it has seen for a week."""
_POSTS = frozenset({"posted", "post_edited", "post_deleted"})
_REACTIONS = frozenset({"reaction_added", "reaction_removed"})


class _Missed(Struct, frozen=True):
    """A search for missed posts in a channel; everything up to `cursor` is handled."""

    channel: str
    cursor: int


class Receiver:
    """Passes the updates of events to `deliver`; a cursor advances once they are durable.

    `handled` are the keys of updates of earlier connections, too.
    """

    def __init__(
        self,
        *,
        group: TaskGroup,
        api: MattermostApi,
        builder: InboundBuilder,
        directory: Directory,
        cursors: Cursors,
        handled: LruMap[str, bool],
        clock: Clock,
        unreadable: UnreadableUpdates,
        deliver: HandleInbound,
    ) -> None:
        self._api = api
        self._builder = builder
        self._directory = directory
        self._cursors = cursors
        self._handled = handled
        self._clock = clock
        self._unreadable = unreadable
        self._deliver = deliver
        self._queues: ChatQueues[Frame | _Missed] = ChatQueues(group, self._handle)

    async def fetch_missed(self) -> None:
        """Queue a search of each channel with posts that may be new; call it before `receive`."""
        for channel in await self._api.channels():
            self._directory.add(channel)
            cursor = self._cursors.position(channel.id)
            if channel.last_post_at > cursor - EDITED_WITHIN:
                self._queues.put(channel.id, _Missed(channel.id, cursor))

    async def has_room(self) -> None:
        await self._queues.has_room()

    def receive(self, frame: Frame) -> None:
        if frame.event in _POSTS | _REACTIONS and frame.broadcast is not None:
            # Events about posts go to the members of the channel.
            self._queues.put(frame.broadcast.channel_id, frame)

    async def _handle(self, item: Frame | _Missed) -> None:
        try:
            match item:
                case _Missed():
                    await self._search(item)
                case Frame() if item.event in _POSTS:
                    await self._post_event(item)
                case Frame():
                    await self._reaction_event(item)
        except (Offline, Throttled):
            # The connection ends, and the post is fetched with the next one.
            raise
        except NotSent as error:
            # It would fail every time, for example in a channel that the bot has left.
            log.warning("an event from Mattermost is skipped: %s", error)

    async def _post_event(self, frame: Frame) -> None:
        if (post := self._unreadable.decode(frame.text("post"), Post)) is None:
            return
        inbound = None
        with self._unreadable.skipping(post):
            inbound = await self._change(frame.event, post)
        if inbound is not None:
            await self._pass_on(inbound)
        self._cursors.advance(post.channel_id, max(post.update_at, post.delete_at))

    async def _change(self, event: str, post: Post) -> Inbound | None:
        match event:
            case "posted":
                return await self._builder.message(post, NewMessage())
            case "post_deleted":
                return await self._builder.deletion(post)
            case _:
                # Link previews also change a post, but not its text.
                changed = EditedMessage()
                return await self._builder.message(post, changed) if post.edit_at else None

    async def _reaction_event(self, frame: Frame) -> None:
        if (reaction := self._unreadable.decode(frame.text("reaction"), Reaction)) is None:
            return
        channel = frame.broadcast.channel_id if frame.broadcast is not None else ""
        removed = frame.event == "reaction_removed"
        inbound = await self._builder.reaction(reaction, channel, removed=removed)
        if inbound is not None:
            await self._pass_on(inbound)

    async def _pass_on(self, inbound: Inbound) -> None:
        if not self._handled.get(inbound.key):
            await self._deliver(inbound)
            self._handled.put(inbound.key, True)

    async def _search(self, missed: _Missed) -> None:
        oldest = int(self._clock.now().timestamp() * 1000) - OLDEST
        since = max(missed.cursor - OVERLAP, oldest)
        for post in await self._api.posts_since(missed.channel, since):
            found: list[Inbound] = []
            with self._unreadable.skipping(post):
                found = await self._missed_updates(post, missed.cursor, since)
            for inbound in found:
                await self._pass_on(inbound)
            self._cursors.advance(missed.channel, max(post.update_at, post.delete_at))

    async def _missed_updates(self, post: Post, cursor: int, since: int) -> list[Inbound]:
        """Return the updates of missed posts; the gateway recognizes known ones by their key."""
        known = post.create_at <= cursor
        found: list[Inbound | None] = []
        if post.delete_at:
            found = [await self._builder.deletion(post)] if known else []
        else:
            if post.create_at > since:
                found.append(await self._builder.message(post, NewMessage()))
            if known and post.edit_at > since:
                found.append(await self._builder.message(post, EditedMessage()))
        return [inbound for inbound in found if inbound is not None]
