"""Receive envelopes in order per chat, drop duplicates, acknowledge once an update is durable."""

import logging
from collections.abc import Awaitable, Callable

import msgspec
from anyio.abc import TaskGroup
from msgspec import Struct

from hermes.channels.chat_queues import ChatQueues
from hermes.channels.slack.assistant import Assistant
from hermes.channels.slack.inbound import InboundBuilder, command_line
from hermes.channels.slack.missed_messages import MissedMessages, MissedSearch, Outage
from hermes.channels.slack.objects import (
    AssistantThreadEvent,
    EventHeader,
    EventPayload,
    Frame,
    Interaction,
    Message,
    ReactionEvent,
    SlashCommand,
)
from hermes.channels.slack.position import Position
from hermes.channels.slack.socket_connection import SocketLink
from hermes.channels.slack.workspaces import Workspace, Workspaces
from hermes.channels.unreadable_updates import UnreadableUpdates
from hermes.kit.json_errors import JSON_ERRORS
from hermes.kit.lru_map import LruMap
from hermes.ports.channel import Inbound, NewMessage

log = logging.getLogger(__name__)

HandleInbound = Callable[[Inbound], Awaitable[None]]
MAX_REMEMBERED = 5_000
_QUEUED = frozenset(
    {"message", "app_mention", "reaction_added", "reaction_removed", "assistant_thread_started"}
)


class _Event(Struct):
    """An event in progress, and the envelopes in which it has arrived so far."""

    payload: EventPayload
    head: EventHeader
    number: int
    envelopes: list[tuple[SocketLink, str]]


class Receiver:
    """Passes the updates of envelopes to `deliver`."""

    def __init__(
        self,
        *,
        group: TaskGroup,
        workspaces: Workspaces,
        builder: InboundBuilder,
        missed: MissedMessages,
        assistant: Assistant,
        position: Position,
        unreadable: UnreadableUpdates,
        deliver: HandleInbound,
    ) -> None:
        self._group = group
        self._workspaces = workspaces
        self._builder = builder
        self._missed = missed
        self._assistant = assistant
        self._position = position
        self._unreadable = unreadable
        self._deliver = deliver
        self._queues: ChatQueues[_Event | MissedSearch] = ChatQueues(group, self._handle)
        self._under_way: dict[str, _Event] = {}
        self._done: LruMap[str, bool] = LruMap(MAX_REMEMBERED)
        self._listings = 0
        self._held: list[_Event] = []
        """Events held until the chats to search are known, because older messages go first."""

    async def has_room(self) -> None:
        await self._queues.has_room()

    def connected(self, gap: bool) -> None:
        """Search for missed messages after an outage."""
        for workspace in self._workspaces.known if gap else ():
            if (outage := self._missed.outage()) is not None:
                self._listings += 1
                self._group.start_soon(self._search, workspace, outage)

    async def _search(self, workspace: Workspace, outage: Outage) -> None:
        for search in await self._missed.searches(workspace, outage):
            self._queues.put(search.chat, search)
        self._position.ended(outage.number)
        self._listings -= 1
        if not self._listings:
            held, self._held = self._held, []
            for event in held:
                self._queues.put(event.head.chat, event)

    def receive(self, frame: Frame, link: SocketLink) -> None:
        """Take an envelope; called for each in the order of arrival."""
        try:
            match frame.type:
                case "events_api":
                    self._receive_event(frame, link)
                case "interactive":
                    press = msgspec.json.decode(frame.payload, type=Interaction)
                    self._group.start_soon(self._press, press, frame, link)
                case "slash_commands":
                    command = msgspec.json.decode(frame.payload, type=SlashCommand)
                    self._group.start_soon(self._command, command, frame, link)
                case _:
                    self._group.start_soon(link.acknowledge, frame.envelope_id)
        except JSON_ERRORS as error:
            # It would fail again each time it is sent.
            self._unreadable.add(frame.payload, error)
            self._group.start_soon(link.acknowledge, frame.envelope_id)

    def _receive_event(self, frame: Frame, link: SocketLink) -> None:
        payload = msgspec.json.decode(frame.payload, type=EventPayload)
        if (known := self._under_way.get(payload.event_id)) is not None:
            # Slack sent it again; all of its envelopes are acknowledged in the end.
            known.envelopes.append((link, frame.envelope_id))
            return
        head = msgspec.json.decode(payload.event, type=EventHeader)
        if self._done.get(payload.event_id) or head.type not in _QUEUED:
            self._group.start_soon(link.acknowledge, frame.envelope_id)
            return
        envelopes = [(link, frame.envelope_id)]
        event = _Event(payload, head, self._position.began(), envelopes)
        self._under_way[payload.event_id] = event
        if self._listings:
            self._held.append(event)
        else:
            self._queues.put(head.chat, event)

    async def _handle(self, event: _Event | MissedSearch) -> None:
        if isinstance(event, MissedSearch):
            await self._fetch(event)
            return
        for inbound in await self._updates(event):
            await self._store(inbound)
        identity = event.payload.event_id
        self._done.put(identity, True)
        self._under_way.pop(identity, None)
        self._position.ended(event.number)
        for link, envelope in event.envelopes:
            await link.acknowledge(envelope)

    async def _updates(self, event: _Event) -> list[Inbound]:
        workspace = self._workspaces.of_event(event.payload.teams)
        if workspace is None:
            log.warning("an event of a workspace without a bot token is ignored")
            return []
        inbound = None
        with self._unreadable.skipping(event.payload.event):
            inbound = await self._update(workspace, event)
        return [] if inbound is None else [inbound]

    async def _update(self, workspace: Workspace, event: _Event) -> Inbound | None:
        data = event.payload.event
        match event.head.type:
            case "message" | "app_mention":
                message = msgspec.json.decode(data, type=Message)
                if message.subtype == "message_changed":
                    return await self._builder.edit(workspace, message)
                if message.subtype == "message_deleted":
                    return self._builder.deletion(workspace, message)
                inbound = await self._builder.message(workspace, message, NewMessage())
                if inbound is not None:
                    self._group.start_soon(self._assistant.set_title, workspace, inbound)
                return inbound
            case "assistant_thread_started":
                opened = msgspec.json.decode(data, type=AssistantThreadEvent).assistant_thread
                self._group.start_soon(self._assistant.greet, workspace, opened)
                return None
            case kind:
                reaction = msgspec.json.decode(data, type=ReactionEvent)
                removed = kind == "reaction_removed"
                return self._builder.reaction(workspace, reaction, removed=removed)

    async def _fetch(self, search: MissedSearch) -> None:
        for message in await self._missed.find(search):
            inbound = None
            with self._unreadable.skipping(message):
                inbound = await self._builder.message(search.workspace, message, NewMessage())
            if inbound is not None:
                await self._store(inbound)
        self._position.ended(search.number)

    async def _store(self, inbound: Inbound) -> None:
        """Deliver an update, unless it came in another event or was found in the history."""
        if not self._position.is_stored(inbound.key):
            await self._deliver(inbound)
            self._position.mark_stored(inbound.key)

    async def _press(self, event: Interaction, frame: Frame, link: SocketLink) -> None:
        workspace = self._workspaces.of_event([event.team.id if event.team else ""])
        inbound = None
        with self._unreadable.skipping(frame.payload):
            inbound = self._builder.press(workspace, event) if workspace is not None else None
        if inbound is not None:
            await self._deliver(inbound)
        await link.acknowledge(frame.envelope_id)

    async def _command(self, event: SlashCommand, frame: Frame, link: SocketLink) -> None:
        """Store a command, then show it to the person alone, because Slack does not."""
        workspace = self._workspaces.of_event([event.team_id])
        inbound = None
        with self._unreadable.skipping(frame.payload):
            inbound = self._builder.command(workspace, event) if workspace is not None else None
        if inbound is not None:
            await self._deliver(inbound)
        shown = {"text": command_line(event)[:1900]} if frame.accepts_response_payload else None
        await link.acknowledge(frame.envelope_id, shown)
