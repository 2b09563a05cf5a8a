"""The Home Assistant channel: follows the states of devices, and posts notifications."""

import hashlib
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from itertools import count
from urllib.parse import urlsplit

import anyio
from msgspec import Raw

from hermes.channels.account import (
    BadToken,
    BotToken,
    account_options,
    check_address,
    require_options,
)
from hermes.channels.connection import LastSeen, Retries, first_error
from hermes.channels.homeassistant import EVENTS_CHAT, MANIFEST, HomeAssistantOptions
from hermes.channels.homeassistant.known_states import MAX_DEVICES, KnownStates, Position
from hermes.channels.homeassistant.objects import Event, Frame, SentMessage, State, StateChange
from hermes.channels.homeassistant.rest_api import RestApi, bad_token
from hermes.channels.http_client import open_http_client
from hermes.channels.proxies import Proxy, ProxySettings
from hermes.channels.state_file import StateFile, state_path
from hermes.channels.unreadable_updates import UnreadableUpdates, unreadable_updates
from hermes.channels.websocket import WebSocket, open_websocket
from hermes.kit.clock import Clock
from hermes.kit.literal_markdown import literal_markdown
from hermes.kit.lru_map import LruMap
from hermes.ports.channel import (
    ChannelCapabilities,
    ChannelDeps,
    Inbound,
    InboundDetails,
    InboundRefused,
    Markup,
    NotSent,
    Offline,
    Outbound,
    Receipt,
)
from hermes.schema.errors import ConfigError
from hermes.schema.messages import Text
from hermes.schema.scope import Address

log = logging.getLogger(__name__)

_HTML = re.compile(r"<|&(?=#?\w+;)")
HandleInbound = Callable[[Inbound], Awaitable[None]]
LABEL = "Home Assistant"
SENDER = "homeassistant"
MESSAGE_EVENT = "hermes_message"
"""Fired by automations and dashboards to send a message to the agent."""
STATE_EVENT = "state_changed"
CHANGES, MESSAGES, STATES = 1, 2, 3
"""Ids of the two subscriptions, and of the request for all states."""
UNKNOWN = frozenset({"unknown", "unavailable"})
"""States of an unreachable device, for example while Home Assistant starts."""
_SERVICE = re.compile(r"(?:notify\.)?(\w+)")


class HomeAssistantChannel:
    """Implements `Channel` with liveness; a repeated post replaces the notification."""

    def __init__(
        self,
        *,
        name: str,
        options: HomeAssistantOptions,
        token: BotToken,
        api: RestApi,
        proxy: Proxy,
        known: KnownStates,
        clock: Clock,
        unreadable: UnreadableUpdates,
    ) -> None:
        self.caps: ChannelCapabilities = MANIFEST.caps
        self._name = name
        self._options = options
        self._token = token
        self._api = api
        self._proxy = proxy
        self._known = known
        self._clock = clock
        self._unreadable = unreadable
        self._seen = LastSeen(clock)
        self._reported: LruMap[str, datetime] = LruMap(MAX_DEVICES)
        """When each device was last reported, for the cooldown."""

    async def run(self, deliver: HandleInbound) -> None:
        if not self._watches_anything:
            log.warning(
                "%s watches nothing: set watch_domains, watch_entities or watch_all", self._name
            )
        retries = Retries(self._clock, pause=1.0)
        while True:
            self._token.reload()
            try:
                await self._follow(deliver, retries)
            except Offline as error:
                if isinstance(error, BadToken):
                    raise
                await retries.failed(error)

    async def send(self, to: Address, post: Outbound) -> Receipt:
        check_address(to, self._name)
        if to.chat == EVENTS_CHAT:
            # The same id replaces a notification that was sent before.
            sent = f"hermes_{_digest(post.key)}" if post.key else f"hermes_{self._stamp()}"
            await self._api.notify(sent, notification_text(post))
            return Receipt(to, sent)
        if (service := _SERVICE.fullmatch(to.chat)) is None:
            raise NotSent(f"{to.chat} is not the name of a notify service.")
        await self._api.call_service("notify", service[1], {"message": post.plain or post.text})
        return Receipt(to, self._stamp())

    def last_seen_at(self) -> datetime | None:
        return self._seen.at

    def _stamp(self) -> str:
        return f"{next(_numbers)}_{self._clock.now().timestamp():.6f}".replace(".", "_")

    async def _follow(self, deliver: HandleInbound, retries: Retries) -> None:
        """Report changes made while disconnected, then each change as it happens."""
        parts = urlsplit(self._options.url.rstrip("/"))
        scheme = "wss" if parts.scheme == "https" else "ws"
        url = parts._replace(scheme=scheme, path=f"{parts.path}/api/websocket").geturl()
        numbers = count(STATES + 1)
        self._known.load()
        async with open_websocket(
            LABEL, url, proxy=self._proxy, clock=self._clock, on_data=self._seen.mark
        ) as socket:
            await self._log_in(socket)
            for number, event in ((CHANGES, STATE_EVENT), (MESSAGES, MESSAGE_EVENT)):
                await socket.send({"id": number, "type": "subscribe_events", "event_type": event})
            await socket.send({"id": STATES, "type": "get_states"})
            try:
                async with anyio.create_task_group() as group:
                    group.start_soon(
                        socket.keep_alive, lambda: {"id": next(numbers), "type": "ping"}
                    )
                    while True:
                        frame = await socket.receive(Frame)
                        await self._take(frame, deliver)
                        if frame.id == STATES:
                            retries.succeeded()
            except ExceptionGroup as failures:
                raise first_error(failures) from None

    async def _log_in(self, socket: WebSocket) -> None:
        if (await socket.receive(Frame)).type != "auth_required":
            raise Offline("This is not the websocket of Home Assistant.")
        await socket.send({"type": "auth", "access_token": self._token.value})
        if (await socket.receive(Frame)).type != "auth_ok":
            raise bad_token()

    async def _take(self, frame: Frame, deliver: HandleInbound) -> None:
        if frame.type == "result" and not frame.success:
            reason = frame.error.message if frame.error is not None else ""
            if frame.id != MESSAGES:
                raise Offline(f"Home Assistant refused: {reason}")
            log.warning(
                "%s cannot receive %s, which needs an administrator's token: %s",
                self._name,
                MESSAGE_EVENT,
                reason,
            )
        elif frame.id == STATES and frame.type == "result":
            states = self._unreadable.decode(frame.result, tuple[Raw, ...]) or ()
            await self._report_missed(self._unreadable.decode_each(states, State), deliver)
        elif frame.type == "event" and (event := self._unreadable.decode(frame.event, Event)):
            await self._take_event(event, deliver)

    async def _take_event(self, event: Event, deliver: HandleInbound) -> None:
        if event.event_type == STATE_EVENT:
            change = self._unreadable.decode(event.data, StateChange)
            if change is not None and change.new_state is not None:
                await self._report(change.old_state, change.new_state, deliver)
        elif event.event_type == MESSAGE_EVENT:
            message = self._unreadable.decode(event.data, SentMessage)
            if message is not None and message.message:
                # All events of one run of an automation have the same context.
                fired = event.time_fired
                key = f"{event.context.id}:{fired}" if fired else self._stamp()
                await self._deliver(self._inbound(key, message.message, message.user), deliver)

    async def _deliver(self, update: Inbound, deliver: HandleInbound) -> None:
        """Deliver an update; retry here, because Home Assistant does not."""
        while True:
            try:
                return await deliver(update)
            except InboundRefused as error:
                await self._clock.sleep(error.wait)

    def _inbound(self, key: str, text: str, user: str = "", at: datetime | None = None) -> Inbound:
        """Build an update; `user` is only a name, which anyone who can fire events can choose."""
        return Inbound(
            key=key,
            address=Address(self._name, EVENTS_CHAT),
            sender=SENDER,
            parts=(Text(text),),
            message=key,
            about=InboundDetails(user_name=user or LABEL, mentions=True),
            written_at=at,
        )

    async def _report_missed(self, states: Sequence[State], deliver: HandleInbound) -> None:
        watched = [state for state in states if self._is_watched(state)]
        for state in self._known.missed(watched):
            await self._report(None, state, deliver)
        for state in watched:
            self._known.remember(state)
        # Home Assistant's time: its clock may differ from ours.
        until = max((state.last_changed for state in states), default=self._clock.now())
        await self._known.finish_missed(until)

    async def _report(self, old: State | None, new: State, deliver: HandleInbound) -> None:
        if not self._is_watched(new) or (old is not None and old.state == new.state):
            return
        if self._known.is_known(new):
            log.debug("%s is back in its last known state", new.entity_id)
            return
        before = self._reported.get(new.entity_id)
        seconds = (new.last_changed - before).total_seconds() if before is not None else None
        if seconds is not None and seconds < self._options.cooldown_seconds:
            log.debug("a change of %s is ignored during its cooldown", new.entity_id)
            self._known.remember(new)
            return
        key = f"{new.entity_id}:{new.last_changed.astimezone(UTC).isoformat()}"
        await self._deliver(self._inbound(key, _sentence(old, new), at=new.last_changed), deliver)
        self._reported.put(new.entity_id, new.last_changed)
        await self._known.finish(new)

    @property
    def _watches_anything(self) -> bool:
        options = self._options
        return bool(options.watch_all or options.watch_domains or options.watch_entities)

    def _is_watched(self, state: State) -> bool:
        options = self._options
        if state.entity_id in options.ignore_entities or state.state in UNKNOWN:
            return False
        return (
            options.watch_all
            or state.entity_id in options.watch_entities
            or state.domain in options.watch_domains
        )


_numbers = count(1)


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:24]


def _sentence(old: State | None, new: State) -> str:
    before = f" from {old.reading}" if old is not None and old.state not in UNKNOWN else ""
    named = new.name if new.name == new.entity_id else f"{new.name} ({new.entity_id})"
    return f"[Home Assistant] {named} changed{before} to {new.reading}."


def checked_options(deps: ChannelDeps) -> HomeAssistantOptions:
    """Read the options. Raises `ConfigError` if they cannot be used."""
    options = account_options(HomeAssistantOptions, deps, MANIFEST, own=("url", "token"))
    require_options(options, deps, MANIFEST, ("url", "token"))
    if urlsplit(options.url).scheme not in {"http", "https"}:
        raise ConfigError(f"{deps.name}: HASS_URL must begin with http:// or https://.")
    return options


def notification_text(post: Outbound) -> str:
    """Return the text of a notification, which Home Assistant shows as Markdown with HTML."""
    if post.markup is not Markup.PLAIN:
        return post.text
    return _HTML.sub(r"\\\g<0>", literal_markdown(post.text))


@asynccontextmanager
async def open_channel(deps: ChannelDeps) -> AsyncGenerator[HomeAssistantChannel]:
    options, token = checked_options(deps), BotToken(lambda: checked_options(deps).token)
    path = state_path(deps)
    settings = ProxySettings(options.proxy_url, "HASS_PROXY", deps.current_env())
    async with open_http_client(LABEL, settings) as http:
        yield HomeAssistantChannel(
            name=deps.name,
            options=options,
            token=token,
            api=RestApi(http, options.url, token),
            proxy=http.proxy,
            known=KnownStates(StateFile(path, Position)),
            clock=deps.clock,
            unreadable=unreadable_updates(deps),
        )
