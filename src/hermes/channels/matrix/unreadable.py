"""Keep events that cannot be decrypted, request their keys, and notify people."""

import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta

from anyio.abc import TaskGroup

from hermes.channels.matrix.client_api import ClientApi
from hermes.channels.matrix.encryption import Encryption, Undecryptable
from hermes.channels.matrix.objects import EncryptedContent, Event
from hermes.channels.matrix.outbound import (
    Content,
    reaction_content,
    transaction,
    with_relation,
)
from hermes.channels.matrix.position import Position, WaitingEvent
from hermes.channels.matrix.room_sender import RoomSender
from hermes.channels.matrix.rooms import RoomDirectory
from hermes.kit.clock import Clock
from hermes.ports.channel import Throttled
from hermes.schema.errors import HermesError

log = logging.getLogger(__name__)

ReadEvent = Callable[[str, Event], Awaitable[None]]
KEY_GRACE = 5.0
"""Seconds within which the key of a message may follow it before people are notified."""
KEY_DAYS = timedelta(days=7)
UNREADABLE = (
    "I cannot decrypt your message: its key has not reached this device. I have asked for it and "
    "answer once it arrives. If it does not, send the message again."
)
LOCK = "🔒"


class UnreadableEvents:
    def __init__(
        self,
        *,
        group: TaskGroup,
        api: ClientApi,
        encryption: Encryption,
        rooms: RoomDirectory,
        sender: RoomSender,
        position: Position,
        clock: Clock,
    ) -> None:
        self._group = group
        self._api = api
        self._encryption = encryption
        self._rooms = rooms
        self._sender = sender
        self._position = position
        self._clock = clock

    async def add(self, room: str, event: Event) -> None:
        """Keep an event until its key arrives; it is stored with the next sync token."""
        if event.notes.redacted_because is not None:
            return
        waiting = WaitingEvent(room=room, event=event, since=self._clock.now().timestamp())
        self._position.add_waiting(waiting)
        await self._ask(waiting)

    async def resume(self, read: ReadEvent) -> None:
        """Request the keys that were missing when the last process ended."""
        for waiting in list(self._position.waiting):
            await self._ask(waiting)
        await self.retry(read)

    async def retry(self, read: ReadEvent) -> None:
        """Pass the events whose keys have arrived to `read`."""
        oldest = (self._clock.now() - KEY_DAYS).timestamp()
        for waiting in list(self._position.waiting):
            if waiting.since < oldest:
                self._position.waiting.remove(waiting)
            elif await self._is_readable(waiting):
                # Removed afterwards: a duplicate is recognized, but a lost message is not.
                await read(waiting.room, waiting.event)
                self._position.waiting.remove(waiting)
                await self._position.save()

    async def _is_readable(self, waiting: WaitingEvent) -> bool:
        try:
            await self._encryption.decrypt(waiting.room, waiting.event)
        except Undecryptable:
            return False
        return True

    async def _ask(self, waiting: WaitingEvent) -> None:
        try:
            await self._encryption.request_key(waiting.room, waiting.event)
        except Throttled as error:
            log.info("keys cannot be requested now: %s", error)
        if not waiting.shown:
            self._group.start_soon(self._show, waiting)

    async def _show(self, waiting: WaitingEvent) -> None:
        """Tell people once per key that a message cannot be read, if its key does not follow."""
        await self._clock.sleep(KEY_GRACE)
        if waiting not in self._position.waiting:
            return
        event = waiting.event.event_id
        key = transaction(f"unreadable {waiting.event.read(EncryptedContent).session_id}")
        try:
            if await self._rooms.is_direct(waiting.room):
                notice: Content = {"msgtype": "m.notice", "body": UNREADABLE, "m.mentions": {}}
                content = with_relation(notice, None, event)
                await self._sender.send(waiting.room, "m.room.message", content, key)
            else:
                content = reaction_content(event, LOCK)
                await self._api.send_event(waiting.room, "m.reaction", key, content)
        except HermesError as error:
            log.info("the sender could not be notified about event %s: %s", event, error)
            return
        waiting.shown = True
        await self._position.save()
