"""The Signal channel: receives the daemon's events, sends messages, reactions and typing."""

import base64
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from urllib.parse import quote, urlsplit

import anyio.to_thread
import msgspec
from msgspec import structs

from hermes.channels.account import account_options, check_address, require_options
from hermes.channels.connection import LastSeen, Retries
from hermes.channels.http_client import UPLOAD_TIMEOUT
from hermes.channels.received_files import ReceivedFiles, received_files
from hermes.channels.signal import FILE_LIMIT, MANIFEST, MAX_ATTACHMENTS, SignalOptions
from hermes.channels.signal.inbound import InboundBuilder, message_id
from hermes.channels.signal.objects import Event
from hermes.channels.signal.people import People, Position
from hermes.channels.signal.rpc import CALL_SECONDS, SignalRpc, open_signal
from hermes.channels.signal.text_styles import styled_text
from hermes.channels.state_file import StateFile, state_path
from hermes.channels.unreadable_updates import UnreadableUpdates, unreadable_updates
from hermes.kit.clock import Clock
from hermes.kit.lru_map import LruMap
from hermes.kit.sse import SseEvent
from hermes.ports.channel import (
    ChannelCapabilities,
    ChannelDeps,
    Inbound,
    Markup,
    NotSent,
    Offline,
    Outbound,
    Receipt,
    Throttled,
    UnknownOutcome,
)
from hermes.ports.store import Blobs
from hermes.schema.errors import ConfigError
from hermes.schema.scope import Address

log = logging.getLogger(__name__)

HandleInbound = Callable[[Inbound], Awaitable[None]]
MAX_REMEMBERED = 5_000
UNKNOWN_EVENT = "0"
UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_PERSON = re.compile(rf"\+[1-9]\d{{4,14}}|{UUID}|PNI:{UUID}|u:\S+", re.IGNORECASE)
_ACCOUNT = re.compile(rf"\+[1-9]\d{{4,14}}|{UUID}", re.IGNORECASE)
_MESSAGE = re.compile(r"(.+):(\d+)")
NO_IDS = (
    "this signal-cli does not number its events: a message that arrives while the gateway restarts "
    "may be lost; update it, and start the daemon with --receive-mode=on-connection"
)


class SignalChannel:
    """Implements `Channel` with typing, reactions and liveness; never retries."""

    def __init__(
        self,
        *,
        name: str,
        options: SignalOptions,
        rpc: SignalRpc,
        blobs: Blobs,
        files: ReceivedFiles,
        position: StateFile[Position],
        clock: Clock,
        unreadable: UnreadableUpdates,
    ) -> None:
        self.caps: ChannelCapabilities = MANIFEST.caps
        self._name = name
        self._options = options
        self._rpc = rpc
        self._blobs = blobs
        self._files = files
        self._position = position
        self._clock = clock
        self._unreadable = unreadable
        self._seen = LastSeen(clock)
        self._sent: LruMap[int, bool] = LruMap(MAX_REMEMBERED)
        self._warned = False

    async def run(self, deliver: HandleInbound) -> None:
        retries = Retries(self._clock, pause=0.25)
        while True:
            try:
                await self._receive(deliver, retries)
            except (Offline, Throttled, UnknownOutcome) as error:
                await retries.failed(error)

    async def _receive(self, deliver: HandleInbound, retries: Retries) -> None:
        found = await anyio.to_thread.run_sync(self._position.read)
        stored = found or Position(began=int(self._clock.now().timestamp() * 1000))
        if found is None:
            await self._position.write(stored)
        people = People(stored.people)
        builder = InboundBuilder(
            name=self._name,
            options=self._options,
            rpc=self._rpc,
            people=people,
            files=self._files,
            sent=self._sent,
        )
        # With an unknown id, the daemon sends all its events, even those from before the first
        # start.
        last = "" if found is None else stored.event or UNKNOWN_EVENT
        oldest = stored.began if last == UNKNOWN_EVENT else 0

        async def handle(event: SseEvent) -> None:
            retries.succeeded()
            inbound = None
            with self._unreadable.skipping(event.data):
                envelope = msgspec.json.decode(event.data, type=Event).envelope
                if envelope.timestamp < oldest:
                    return
                inbound = await builder.update(envelope)
            if inbound is not None:
                await deliver(inbound)
            self._check_id(event)
            # The event is acknowledged by storing its id once `deliver` has returned.
            position = structs.replace(stored, event=event.id, people=people.known)
            await self._position.write(position)

        stream = self._rpc.events(clock=self._clock, on_data=self._seen.mark)
        await stream.run(last, handle)

    def _check_id(self, event: SseEvent) -> None:
        if not event.id and not self._warned:
            self._warned = True
            log.warning("%s: %s", self._name, NO_IDS)

    async def send(self, to: Address, post: Outbound) -> Receipt:
        check_address(to, self._name)
        params: dict[str, object] = dict(self._target(to))
        text = post.text
        if post.markup is Markup.TELEGRAM:
            text, styles = styled_text(post.text)
            if styles:
                params["textStyles"] = styles
        captions = [attachment.caption for attachment in post.attachments if attachment.caption]
        params["message"] = text or "\n".join(captions)
        if post.reply_to and (found := _MESSAGE.fullmatch(post.reply_to)):
            params |= {"quoteAuthor": found[1], "quoteTimestamp": int(found[2])}
        if len(post.attachments) > MAX_ATTACHMENTS:
            raise NotSent(f"A message can have at most {MAX_ATTACHMENTS} files.")
        if post.attachments:
            params["attachments"] = [
                _data_uri(attachment.media.name or "file", attachment.media.media_type, data)
                for attachment in post.attachments
                for data in [await self._blobs.read(attachment.media.digest)]
            ]
        seconds = UPLOAD_TIMEOUT if post.attachments else CALL_SECONDS
        sent = await self._rpc.send(params, seconds=seconds)
        self._sent.put(sent.timestamp, True)
        return Receipt(to, message_id(self._options.account, sent.timestamp))

    async def typing(self, to: Address, on: bool) -> None:
        if to.chat == self._options.account:
            return
        params = {**self._target(to), **({} if on else {"stop": True})}
        await self._rpc.call("sendTyping", object, params)

    async def react(self, to: Address, message: str, emoji: str) -> None:
        """Signal shows one reaction per person: a new one replaces it."""
        if not self._options.reactions:
            return
        if (found := _MESSAGE.fullmatch(message)) is None:
            raise NotSent(f"{message!r} is not the id of a message.")
        params: dict[str, object] = {
            **self._target(to),
            "targetAuthor": found[1],
            "targetTimestamp": int(found[2]),
            "emoji": emoji or "👀",
        }
        if not emoji:
            params["remove"] = True
        await self._rpc.call("sendReaction", object, params)

    def last_seen_at(self) -> datetime | None:
        return self._seen.at

    def _target(self, to: Address) -> dict[str, object]:
        """Return the recipient: a person, the account itself, or a group (also as `group:ID`)."""
        if to.chat == "group" and to.thread:
            return {"groupId": to.thread}
        if to.chat == self._options.account:
            return {"noteToSelf": True}
        if _PERSON.fullmatch(to.chat):
            return {"recipient": [to.chat]}
        return {"groupId": to.chat.removeprefix("group:")}


def _data_uri(name: str, media_type: str, data: bytes) -> str:
    """The daemon may run on another machine, so the file is part of the call."""
    return (
        f"data:{media_type};filename={quote(name, safe='')};base64,"
        f"{base64.b64encode(data).decode()}"
    )


def checked_options(deps: ChannelDeps) -> SignalOptions:
    """Read the options. Raises `ConfigError` if they cannot be used."""
    options = account_options(SignalOptions, deps, MANIFEST, own=("account", "group_allow_from"))
    require_options(options, deps, MANIFEST, ("account",))
    return with_checked_account(options)


def with_checked_account(options: SignalOptions) -> SignalOptions:
    parts = urlsplit(options.http_url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigError("SIGNAL_HTTP_URL must be an address such as http://127.0.0.1:8080.")
    account = options.account.strip()
    if _ACCOUNT.fullmatch(account) is None:
        raise ConfigError("SIGNAL_ACCOUNT must be a number such as +15551234567, or a UUID.")
    return structs.replace(options, account=account)


@asynccontextmanager
async def open_channel(deps: ChannelDeps) -> AsyncGenerator[SignalChannel]:
    options = checked_options(deps)
    path = state_path(deps)
    async with open_signal(options, deps.current_env()) as rpc:
        yield SignalChannel(
            name=deps.name,
            options=options,
            rpc=rpc,
            blobs=deps.blobs,
            files=received_files(deps, FILE_LIMIT),
            position=StateFile(path, Position),
            clock=deps.clock,
            unreadable=unreadable_updates(deps),
        )
