"""Follow the account by /sync: events in order per room, gaps, invitations and late keys."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import anyio
from anyio.abc import TaskGroup

from hermes.channels.connection import Retries, first_error
from hermes.channels.matrix.client_api import SYNC_SECONDS, ClientApi
from hermes.channels.matrix.device import OpenDevice
from hermes.channels.matrix.encryption import ENCRYPTED, Undecryptable
from hermes.channels.matrix.inbound import InboundBuilder
from hermes.channels.matrix.invitations import InvitationRules, read_invitation
from hermes.channels.matrix.objects import (
    Event,
    InvitedRoom,
    JoinedRoom,
    MemberContent,
    SyncAnswer,
)
from hermes.channels.matrix.position import Position
from hermes.channels.matrix.rooms import DIRECT, RoomDirectory
from hermes.channels.matrix.unreadable import UnreadableEvents
from hermes.channels.matrix.verification import PREFIX, Verifications, is_verification
from hermes.channels.unreadable_updates import UnreadableUpdates
from hermes.kit.clock import Clock
from hermes.kit.json_errors import JSON_ERRORS
from hermes.ports.channel import Inbound, NotSent, Offline, Throttled, UnknownOutcome
from hermes.schema.errors import HermesError

log = logging.getLogger(__name__)

T = TypeVar("T")

HandleInbound = Callable[[Inbound], Awaitable[None]]
MAX_PAGES = 50
"""Maximum number of pages of 100 events fetched per room after an outage."""
SYNC_PAUSE = 0.5


class Receiver:
    """Passes room events to `deliver`, and then stores the sync token."""

    def __init__(
        self,
        *,
        group: TaskGroup,
        api: ClientApi,
        device: OpenDevice,
        builder: InboundBuilder,
        verifications: Verifications | None,
        rooms: RoomDirectory,
        unreadable: UnreadableEvents | None,
        position: Position,
        invitations: InvitationRules,
        clock: Clock,
        skipped: UnreadableUpdates,
        deliver: HandleInbound,
        on_data: Callable[[], None],
    ) -> None:
        self._group = group
        self._api = api
        self._device = device
        self._builder = builder
        self._verifications = verifications
        self._rooms = rooms
        self._unreadable = unreadable
        self._position = position
        self._invitations = invitations
        self._clock = clock
        self._skipped = skipped
        self._deliver = deliver
        self._on_data = on_data
        self._retries = Retries(clock, pause=SYNC_PAUSE)

    async def run(self) -> None:
        """Follow the account until it fails."""
        if self._unreadable is not None:
            await self._unreadable.resume(self._read_event)
        # The first response is not waited for: it shows that the connection works.
        seconds = 0.0
        while True:
            try:
                answer = await self._api.sync(self._position.token, seconds)
                await self._take(answer)
            except (Throttled, UnknownOutcome) as error:
                await self._retries.failed(error)
                seconds = 0.0
            else:
                self._retries.succeeded()
                seconds = SYNC_SECONDS

    async def _take(self, answer: SyncAnswer) -> None:
        """Handle a batch; it is acknowledged only once all of it is durable."""
        self._on_data()
        await self._take_keys(answer)
        for event in answer.account_data.events:
            if event.kind == DIRECT:
                self._rooms.read_direct(event)
        for room, joined in answer.rooms.join.items():
            self._rooms.observe(room, (*joined.state.events, *joined.timeline.events))
        last = await self._read_rooms(answer.rooms.join)
        if answer.to_device.events and self._unreadable is not None:
            await self._unreadable.retry(self._read_event)
        for room, invited in answer.rooms.invite.items():
            await self._answer_invitation(room, invited)
        for room in answer.rooms.join:
            self._position.joining.pop(room, None)
        await self._position.advance(answer.next_batch)
        for room, event in last.items():
            self._group.start_soon(self._mark_read, room, event)

    async def _take_keys(self, answer: SyncAnswer) -> None:
        encryption = self._device.encryption
        if encryption is None:
            return
        events, lists = answer.to_device.events, answer.device_lists
        verifying = [event for event in events if event.kind.startswith(PREFIX)]
        keys = [event for event in events if not event.kind.startswith(PREFIX)]
        encryption.receive(keys, answer.device_one_time_keys_count, lists.changed)
        encryption.forget(lists.left)
        for event in verifying:
            if self._verifications is not None:
                await self._verifications.receive_from_device(event)
        try:
            await encryption.settle()
        except Throttled as error:
            # The rest is done after the next sync.
            log.info("keys cannot be exchanged now: %s", error)

    async def _read_rooms(self, rooms: Mapping[str, JoinedRoom]) -> dict[str, str]:
        """Read all rooms at the same time; return the last event of each."""
        since = self._position.token
        last: dict[str, str] = {}
        try:
            async with anyio.create_task_group() as group:
                for room, joined in rooms.items():
                    # Messages from before the first start are not answered.
                    if since or room in self._position.joining:
                        group.start_soon(self._read_room, room, joined, since, last)
        except ExceptionGroup as failures:
            raise first_error(failures) from None
        return last

    async def _read_room(
        self, room: str, joined: JoinedRoom, since: str, last: dict[str, str]
    ) -> None:
        """Deliver the events of a room in order."""
        events = await self._all_events(room, joined, since)
        for event in events:
            if event.sender != self._device.user:
                await self._read_event(room, event)
            self._on_data()
        others = [event.event_id for event in events if event.sender != self._device.user]
        if others:
            last[room] = others[-1]

    async def _all_events(self, room: str, joined: JoinedRoom, since: str) -> Sequence[Event]:
        """Return the events since the last sync, including those that the response left out.

        In a newly joined room, return those since the invitation, because people may write before
        the agent accepts it.
        """
        timeline, user = joined.timeline, self._device.user
        events = list(timeline.events)
        is_new = room in self._position.joining or any(_joins(event, user) for event in events)
        if timeline.limited and timeline.prev_batch:
            start, until = timeline.prev_batch, "" if is_new else since
            events = [*await self._missed(room, start, until, is_new=is_new), *events]
        if not is_new:
            return events
        invited = [n for n, event in enumerate(events) if _membership(event, user) == "invite"]
        joining = [n for n, event in enumerate(events) if _membership(event, user) == "join"]
        start = (invited or joining or [0])[-1]
        return events[start:]

    async def _missed(self, room: str, start: str, until: str, *, is_new: bool) -> list[Event]:
        """Fetch missed events, oldest first; in a new room, back to the invitation."""
        found: list[Event] = []
        for _ in range(MAX_PAGES):
            page = await self._with_retries(partial(self._api.messages, room, start, until))
            found = [*reversed(page.chunk), *found]
            reached = is_new and any(
                _membership(event, self._device.user) == "invite" for event in page.chunk
            )
            if not page.end or not page.chunk or reached:
                return found
            start = page.end
        log.warning("%s: too many missed events; only the latest are read", room)
        return found

    async def _read_event(self, room: str, event: Event) -> None:
        inbound = None
        with self._skipped.skipping(event, event.event_id):
            inbound = await self._inbound(room, event)
        if inbound is not None:
            await self._deliver(inbound)

    async def _inbound(self, room: str, event: Event) -> Inbound | None:
        encrypted = event.kind == ENCRYPTED
        if encrypted:
            if self._device.encryption is None or self._unreadable is None:
                log.info("an event in %s is encrypted, but encryption is turned off", room)
                return None
            try:
                event = await self._device.encryption.decrypt(room, event)
            except Undecryptable as error:
                log.warning("event %s of %s: %s", event.event_id, event.sender, error)
                await self._unreadable.add(room, event)
                return None
        if is_verification(event):
            if self._verifications is not None:
                await self._verifications.receive_in_room(room, event)
            return None
        return await self._builder.build(room, event, encrypted=encrypted)

    async def _answer_invitation(self, room: str, invited: InvitedRoom) -> None:
        invitation = read_invitation(invited, self._device.user)
        if invitation is None:
            return
        try:
            if not self._invitations.accepts(room, invitation):
                log.warning("declined the invitation from %s to %s", invitation.inviter, room)
                await self._with_retries(partial(self._api.leave, room))
                return
            # Stored before joining, so that messages written meanwhile are read.
            self._position.joining[room] = invitation.inviter
            await self._position.save()
            await self._with_retries(partial(self._api.join, room))
            if invitation.direct:
                await self._rooms.add_direct(self._device.user, invitation.inviter, room)
        except Offline:
            raise
        except NotSent as error:
            log.warning("the invitation to %s cannot be answered: %s", room, error)

    async def _mark_read(self, room: str, event: str) -> None:
        try:
            await self._api.mark_read(room, event)
        except HermesError as error:
            log.info("%s could not be marked as read: %s", room, error)

    async def _with_retries(self, call: Callable[[], Awaitable[T]]) -> T:
        """Call, and wait for the rate limit as long as it takes."""
        while True:
            try:
                return await call()
            except Throttled as error:
                await self._clock.sleep(error.wait)
            except UnknownOutcome as error:
                raise Offline(str(error)) from error


def _membership(event: Event, user: str) -> str:
    """Return the user's membership in the event; empty if it is about something else."""
    if event.kind != "m.room.member" or event.state_key != user:
        return ""
    try:
        return event.read(MemberContent).membership
    except JSON_ERRORS:
        return ""


def _joins(event: Event, user: str) -> bool:
    """Whether someone joins; a change of name is also a membership event."""
    if _membership(event, user) != "join":
        return False
    before = event.notes.prev_content
    return before is None or before.membership != "join"
