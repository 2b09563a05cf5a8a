"""The WhatsApp channel: Meta posts messages to this machine, and the Graph API sends answers."""

import hashlib
import hmac
import logging
import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from functools import partial
from weakref import WeakValueDictionary

import anyio
from msgspec import structs

from hermes.channels.account import BotToken, account_options, check_address, require_options
from hermes.channels.connection import LastSeen
from hermes.channels.http_calls import CallRejected, CallResponse, HttpCall
from hermes.channels.http_listener import ListenerLimits
from hermes.channels.received_files import received_files
from hermes.channels.unreadable_updates import UnreadableUpdates, unreadable_updates
from hermes.channels.webhook_server import WebhookServer, serve_with_checks
from hermes.channels.whatsapp_cloud import MANIFEST, MEDIA, WhatsAppOptions
from hermes.channels.whatsapp_cloud.graph_api import GraphApi, open_graph_api
from hermes.channels.whatsapp_cloud.inbound import InboundBuilder
from hermes.channels.whatsapp_cloud.objects import Message, Notification, Status, Value
from hermes.channels.whatsapp_cloud.outbound import (
    file_fields,
    message_fields,
    refused_file_fields,
    spaced_prefix,
    upload_type,
    with_prefix,
)
from hermes.kit.clock import Clock
from hermes.kit.lru_map import LruMap
from hermes.ports.channel import (
    ChannelCapabilities,
    ChannelDeps,
    Inbound,
    Outbound,
    Receipt,
    UnknownOutcome,
)
from hermes.ports.store import Blobs
from hermes.schema.errors import ConfigError
from hermes.schema.scope import Address

log = logging.getLogger(__name__)

HandleInbound = Callable[[Inbound], Awaitable[None]]
SIGNATURE_HEADER = "x-hub-signature-256"
MAX_CHATS = 5_000
MAX_CALL = 4 * 1024 * 1024
"""Meta sends calls of up to 3 MB."""
OWN = ("phone_number_id", "access_token", "app_secret", "verify_token", "webhook_port")
MAX_PREFIX = 200
RELOAD_SECONDS = 5.0
REQUIRED = ("phone_number_id", "access_token", "app_secret", "verify_token")


class Secrets:
    """The tokens and secrets; all of them can be replaced while the program runs."""

    def __init__(self, read: Callable[[], WhatsAppOptions], clock: Clock) -> None:
        self._read = read
        self._clock = clock
        self._options = read()
        self._due_at = -math.inf
        self.access_token = BotToken(lambda: self._options.access_token)
        self.app_secret = BotToken(lambda: self._options.app_secret)
        self.verify_token = BotToken(lambda: self._options.verify_token)

    def reload(self) -> None:
        self._options = self._read()
        for token in (self.access_token, self.app_secret, self.verify_token):
            token.reload()

    def reload_if_due(self) -> None:
        """Reload at most every few seconds, since anyone can send a call with a wrong signature."""
        now = self._clock.monotonic()
        if now >= self._due_at:
            self._due_at = now + RELOAD_SECONDS
            self.reload()


class WhatsAppChannel:
    """Implements `Channel` with typing, reactions and liveness; never retries."""

    def __init__(
        self,
        *,
        name: str,
        options: WhatsAppOptions,
        api: GraphApi,
        secrets: Secrets,
        builder: InboundBuilder,
        blobs: Blobs,
        clock: Clock,
        unreadable: UnreadableUpdates,
    ) -> None:
        self._prefix = spaced_prefix(options.reply_prefix)
        room = MANIFEST.caps.max_text - len(self._prefix)
        self.caps: ChannelCapabilities = structs.replace(MANIFEST.caps, max_text=room)
        self._name = name
        self._options = options
        self._api = api
        self._secrets = secrets
        self._builder = builder
        self._blobs = blobs
        self._clock = clock
        self._unreadable = unreadable
        self._seen = LastSeen(clock)
        self._newest: LruMap[str, str] = LruMap(MAX_CHATS)
        """The newest message of each chat, to which the typing indicator refers."""
        self._orders: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()
        self._server: WebhookServer | None = None

    @property
    def port(self) -> int:
        """The port where messages arrive; 0 while nothing listens."""
        return self._server.port if self._server is not None and self._server.serving else 0

    async def run(self, deliver: HandleInbound) -> None:
        self._server = WebhookServer(
            MANIFEST.name,
            [self._options.webhook_path],
            self._clock,
            verify=self._is_genuine,
            receive=partial(self._receive, deliver),
            host=self._options.webhook_host,
            port=self._options.webhook_port,
            methods=("GET", "POST"),
            limits=ListenerLimits(body=MAX_CALL),
        )
        await serve_with_checks(self._server, self._check_number, self._clock, self._seen)

    async def _check_number(self) -> None:
        self._secrets.reload()
        await self._api.number()

    async def send(self, to: Address, post: Outbound) -> Receipt:
        check_address(to, self._name)
        post = with_prefix(post, self._prefix)
        if not post.attachments:
            return Receipt(to, await self._api.send(message_fields(to.chat, post)))
        (attachment,) = post.attachments
        media, kind = attachment.media, upload_type(attachment.media)
        if not kind:
            return Receipt(to, await self._api.send(refused_file_fields(to.chat, post, attachment)))
        uploaded = await self._api.upload(media.name, kind, await self._blobs.read(media.digest))
        fields = file_fields(to.chat, post, attachment, uploaded, kind)
        return Receipt(to, await self._api.send(fields))

    async def typing(self, to: Address, on: bool) -> None:
        """The indicator ends by itself, or with the next post; it also marks messages as read."""
        newest = self._newest.get(to.chat)
        if not on or newest is None:
            return
        try:
            await self._api.mark({"message_id": newest, "typing_indicator": {"type": "text"}})
        except UnknownOutcome as error:
            # A lost indicator does not matter.
            log.info("typing could not be shown: %s", error)

    async def react(self, to: Address, message: str, emoji: str) -> None:
        reaction = {"message_id": message, "emoji": emoji}
        await self._api.send(
            {
                "recipient_type": "individual",
                "to": to.chat,
                "type": "reaction",
                "reaction": reaction,
            }
        )

    def last_seen_at(self) -> datetime | None:
        return self._seen.at

    def _is_genuine(self, call: HttpCall) -> bool:
        if self._has_secret(call):
            return True
        # The token may have been replaced since the last check, for example by a new setup of the
        # webhook.
        with suppress(ConfigError):
            self._secrets.reload_if_due()
        return self._has_secret(call)

    def _has_secret(self, call: HttpCall) -> bool:
        if call.method == "GET":
            expected = self._secrets.verify_token.value
            received = call.query.get("hub.verify_token", "")
        else:
            secret = self._secrets.app_secret.value
            digest = hmac.new(secret.encode(), call.body, hashlib.sha256)
            expected = f"sha256={digest.hexdigest()}"
            received = call.headers.get(SIGNATURE_HEADER, "")
        return hmac.compare_digest(_bytes(expected), _bytes(received))

    async def _receive(self, deliver: HandleInbound, call: HttpCall) -> CallResponse:
        if call.method == "GET":
            if call.query.get("hub.mode") != "subscribe":
                raise CallRejected(400, "mode", "Only hub.mode=subscribe is supported.")
            return CallResponse(200, call.query.get("hub.challenge", ""))
        # Accept the call anyway: Meta would repeat a refused one for days.
        notification = self._unreadable.decode(call.body, Notification) or Notification()
        for entry in notification.entry:
            for change in entry.changes:
                value = change.value
                number = value.metadata.phone_number_id
                if number in {"", self._options.phone_number_id}:
                    await self._take(value, deliver)
                elif value.messages:
                    # By default, Meta uses one callback URL for all numbers of an app.
                    log.warning(
                        "messages to the phone number ID %s were dropped: %s serves another; "
                        "give that number its own callback URL",
                        number,
                        self._name,
                    )
        self._seen.mark()
        return CallResponse()

    async def _take(self, value: Value, deliver: HandleInbound) -> None:
        names = {contact.wa_id: contact.profile.name for contact in value.contacts}
        for status in self._unreadable.decode_each(value.statuses, Status):
            _report(status)
        for message in self._unreadable.decode_each(value.messages, Message):
            if not message.from_:
                log.warning("a message without a phone number cannot be answered")
                continue
            # Calls may overlap; a large file must not let a later message overtake it.
            order = self._orders.setdefault(message.from_, anyio.Lock())
            async with order:
                await self._deliver(message, names.get(message.from_, ""), deliver)

    async def _deliver(self, message: Message, user_name: str, deliver: HandleInbound) -> None:
        inbound = None
        with self._unreadable.skipping(message):
            inbound = await self._builder.build(message, user_name)
        if inbound is not None:
            await deliver(inbound)
            self._newest.put(message.from_, message.id)


def _bytes(text: str) -> bytes:
    """Return the bytes of a header as received, even if they are not UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def _report(status: Status) -> None:
    if status.status == "failed":
        reasons = "; ".join(f"{problem.title} ({problem.code})" for problem in status.errors)
        log.warning("post %s was not delivered to %s: %s", status.id, status.recipient_id, reasons)


def checked_options(deps: ChannelDeps) -> WhatsAppOptions:
    """Read the options. Raises `ConfigError` if they cannot be used."""
    options = account_options(WhatsAppOptions, deps, MANIFEST, own=OWN)
    require_options(options, deps, MANIFEST, REQUIRED)
    if not options.webhook_path.startswith("/"):
        raise ConfigError(
            f"{deps.name}: the path of the webhook must begin with a slash.",
            hint=f"Correct {MANIFEST.variables['webhook_path']} (webhook_path).",
        )
    if len(options.reply_prefix) > MAX_PREFIX:
        raise ConfigError(
            f"{deps.name}: reply_prefix is longer than {MAX_PREFIX} characters.",
            hint=f"Shorten {MANIFEST.variables['reply_prefix']} (reply_prefix).",
        )
    return options


@asynccontextmanager
async def open_channel(deps: ChannelDeps) -> AsyncGenerator[WhatsAppChannel]:
    options = checked_options(deps)
    secrets = Secrets(partial(checked_options, deps), deps.clock)
    async with open_graph_api(options, secrets.access_token, deps.current_env()) as api:
        files = received_files(deps, MEDIA.document)
        yield WhatsAppChannel(
            name=deps.name,
            options=options,
            api=api,
            secrets=secrets,
            builder=InboundBuilder(name=deps.name, api=api, files=files),
            blobs=deps.blobs,
            clock=deps.clock,
            unreadable=unreadable_updates(deps),
        )
