"""The SMS channel: Twilio posts messages to this machine, and its API sends the answers."""

import logging
import mimetypes
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from urllib.parse import parse_qsl, urlsplit
from weakref import WeakValueDictionary

import anyio
from msgspec import Struct, structs

from hermes.channels.account import BotToken, account_options, check_address, require_options
from hermes.channels.connection import LastSeen
from hermes.channels.http_calls import CallResponse, HttpCall
from hermes.channels.received_files import (
    AttachedFile,
    ReceivedFiles,
    RecordingKind,
    media_type_of,
    received_files,
)
from hermes.channels.sms import MANIFEST, MEDIA_LIMIT, SmsOptions
from hermes.channels.sms.twilio_api import SmsMessage, TwilioApi, is_signed, open_twilio
from hermes.channels.state_file import StateFile, state_path
from hermes.channels.unreadable_updates import UnreadableUpdates, unreadable_updates
from hermes.channels.webhook_server import WebhookServer, serve_with_checks
from hermes.kit.clock import Clock
from hermes.kit.lru_map import LruMap
from hermes.ports.channel import (
    ChannelCapabilities,
    ChannelDeps,
    Inbound,
    NotSent,
    Offline,
    Outbound,
    Receipt,
    Throttled,
)
from hermes.schema.errors import ConfigError
from hermes.schema.messages import Media, Text
from hermes.schema.scope import Address

log = logging.getLogger(__name__)

HandleInbound = Callable[[Inbound], Awaitable[None]]
SIGNATURE_HEADER = "x-twilio-signature"
NO_ANSWER = '<?xml version="1.0" encoding="UTF-8"?><Response></Response>'
OVERLAP = timedelta(minutes=10)
"""Messages may be listed late, and clocks differ."""
OLDEST = timedelta(days=6)
"""The gateway recognizes messages that it has seen for a week."""
MAX_HANDLED = 5_000
OPT_OUT_WORDS = frozenset(
    {"STOP", "STOPALL", "UNSUBSCRIBE", "CANCEL", "END", "QUIT", "START", "UNSTOP", "HELP", "INFO"}
)
"""Twilio answers these words itself. It also answers YES, which here means approval."""
_RECORDINGS: Mapping[str, RecordingKind] = {"audio": "audio", "video": "video"}
_ACCOUNT = re.compile(r"AC[0-9a-fA-F]{32}")
_NUMBER = re.compile(r"\+[1-9]\d{4,14}|\d{3,8}|MG[0-9a-fA-F]{32}")


class Position(Struct, frozen=True):
    """The time up to which all messages are handled."""

    until: datetime


class _Received(Struct, frozen=True, kw_only=True):
    """A message before its files are fetched; `media` are addresses and types."""

    sid: str
    sender: str
    text: str
    media: Sequence[tuple[str, str]]
    sent_at: datetime | None = None


class SmsChannel:
    """Implements `Channel` with liveness; never retries."""

    def __init__(
        self,
        *,
        name: str,
        options: SmsOptions,
        api: TwilioApi,
        token: BotToken,
        files: ReceivedFiles,
        position: StateFile[Position],
        clock: Clock,
        unreadable: UnreadableUpdates,
    ) -> None:
        self.caps: ChannelCapabilities = MANIFEST.caps
        self._name = name
        self._options = options
        self._api = api
        self._token = token
        self._files = files
        self._position = position
        self._clock = clock
        self._unreadable = unreadable
        self._seen = LastSeen(clock)
        self._handled: LruMap[str, bool] = LruMap(MAX_HANDLED)
        self._orders: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()
        self._server: WebhookServer | None = None

    @property
    def port(self) -> int:
        """The port where messages arrive; 0 while nothing listens."""
        return self._server.port if self._server is not None and self._server.serving else 0

    async def run(self, deliver: HandleInbound) -> None:
        self._server = WebhookServer(
            "sms",
            [urlsplit(self._options.webhook_url).path or "/"],
            self._clock,
            verify=self._is_genuine,
            receive=partial(self._receive, deliver),
            host=self._options.webhook_host,
            port=self._options.webhook_port,
        )
        # Twilio does not repeat a failed call; the message is fetched from the list later.
        check = partial(self._fetch_missed, deliver)
        await serve_with_checks(self._server, check, self._clock, self._seen)

    async def send(self, to: Address, post: Outbound) -> Receipt:
        check_address(to, self._name)
        return Receipt(to, await self._api.send(to.chat, post.text))

    def last_seen_at(self) -> datetime | None:
        return self._seen.at

    def _is_genuine(self, call: HttpCall) -> bool:
        if self._options.insecure_no_signature:
            return True
        signature = call.headers.get(SIGNATURE_HEADER, "")
        return is_signed(self._token.value, self._options.webhook_url, _form(call.body), signature)

    async def _receive(self, deliver: HandleInbound, call: HttpCall) -> CallResponse:
        form = dict(_form(call.body))
        is_message = form.get("SmsStatus", "received") == "received"
        if is_message and form.get("MessageSid") and form.get("From"):
            count = int(form["NumMedia"]) if form.get("NumMedia", "").isdecimal() else 0
            media = [
                (form.get(f"MediaUrl{number}", ""), form.get(f"MediaContentType{number}", ""))
                for number in range(min(count, 10))
            ]
            message = _Received(
                sid=form["MessageSid"], sender=form["From"], text=form.get("Body", ""), media=media
            )
            await self._handle(message, deliver)
        elif is_message:
            self._unreadable.add(call.body, "MessageSid or From is missing")
        return CallResponse(200, NO_ANSWER, media_type="text/xml")

    async def _fetch_missed(self, deliver: HandleInbound) -> None:
        """Deliver messages that were not posted to this machine, for example while it was down."""
        self._token.reload()
        position = self._position.read()
        if position is None:
            # Messages from before the first start are not answered.
            since = self._clock.now()
        else:
            since = max(position.until, self._clock.now() - OLDEST) - OVERLAP
        found = await self._api.received_since(since)
        self._seen.mark()
        if position is not None:
            for message in found.messages:
                if not self._handled.get(message.sid):
                    await self._handle(await self._listed(message), deliver)
        await self._position.write(Position(found.listed_at))

    async def _listed(self, message: SmsMessage) -> _Received:
        media: list[tuple[str, str]] = []
        if message.num_media not in {"", "0"}:
            media = await self._media(message.sid)
        return _Received(
            sid=message.sid,
            sender=message.from_ or "",
            text=message.body or "",
            media=media,
            sent_at=message.sent_at,
        )

    async def _media(self, message: str) -> list[tuple[str, str]]:
        try:
            found = await self._api.media_of(message)
        except (Offline, Throttled):
            raise
        except NotSent as error:
            # It may have been deleted meanwhile.
            log.warning("the files of message %s cannot be listed: %s", message, error)
            return []
        return [(self._api.media_url(media), media.content_type) for media in found]

    async def _handle(self, message: _Received, deliver: HandleInbound) -> None:
        # A list and a call may deliver the same message at the same time.
        order = self._orders.setdefault(message.sender, anyio.Lock())
        async with order:
            if self._handled.get(message.sid) or self._is_ignored(message):
                return
            inbound = None
            with self._unreadable.skipping(message):
                inbound = await self._inbound(message)
            if inbound is not None:
                await deliver(inbound)
            self._handled.put(message.sid, True)
            self._seen.mark()

    def _is_ignored(self, message: _Received) -> bool:
        own = message.sender == self._options.phone_number
        return own or message.text.strip().upper() in OPT_OUT_WORDS

    async def _inbound(self, message: _Received) -> Inbound:
        inbound = Inbound(
            key=message.sid,
            address=Address(self._name, message.sender),
            sender=message.sender,
            parts=(),
            message=message.sid,
            written_at=message.sent_at,
        )
        if message.media and (refused := await self._files.refused(inbound)):
            return refused
        parts: list[Text | Media] = [Text(message.text)] if message.text else []
        for number, (url, media_type) in enumerate(message.media, 1):
            kind = media_type_of("", media_type)
            file = AttachedFile(
                name=f"{message.sid[:12]}-{number}{mimetypes.guess_extension(kind) or ''}",
                media_type=kind,
                recording=_RECORDINGS.get(kind.partition("/")[0], ""),
            )
            download = partial(self._api.download, url, max_bytes=MEDIA_LIMIT)
            parts += await self._files.fetch(file, download)
        return structs.replace(inbound, parts=tuple(parts))


def _form(body: bytes) -> list[tuple[str, str]]:
    return parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True)


def checked_options(deps: ChannelDeps) -> SmsOptions:
    """Read the options. Raises `ConfigError` if they cannot be used."""
    own = (
        *("account_sid", "auth_token", "phone_number"),
        *("webhook_url", "webhook_port", "insecure_no_signature"),
    )
    options = account_options(SmsOptions, deps, MANIFEST, own=own)
    require_options(options, deps, MANIFEST, ("account_sid", "auth_token", "phone_number"))
    check_numbers(options)
    if not options.webhook_url and not options.insecure_no_signature:
        raise ConfigError(
            f"{deps.name} needs SMS_WEBHOOK_URL: Twilio's signatures cover the address it calls.",
            hint="Set it to the public address of this machine, such as https://example.com/sms.",
        )
    check_webhook_url(options)
    return options


def check_webhook_url(options: SmsOptions) -> None:
    """Raise `ConfigError` if Twilio cannot call the address."""
    try:
        parts = urlsplit(options.webhook_url)
        usable = not options.webhook_url or (parts.scheme in {"http", "https"} and parts.port != 0)
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError("SMS_WEBHOOK_URL must be an address such as https://example.com/sms.")


def check_numbers(options: SmsOptions) -> None:
    """Raise `ConfigError` if the account or the number cannot be one."""
    if _ACCOUNT.fullmatch(options.account_sid) is None:
        raise ConfigError("TWILIO_ACCOUNT_SID must be AC and 32 hexadecimal digits.")
    if _NUMBER.fullmatch(options.phone_number) is None:
        raise ConfigError(
            "TWILIO_PHONE_NUMBER must be a number such as +15551234567, a short code, or the id "
            "of a messaging service (MG…)."
        )


@asynccontextmanager
async def open_channel(deps: ChannelDeps) -> AsyncGenerator[SmsChannel]:
    options, token = checked_options(deps), BotToken(lambda: checked_options(deps).auth_token)
    path = state_path(deps)
    unreadable = unreadable_updates(deps)
    async with open_twilio(options, token, deps.current_env(), unreadable) as api:
        yield SmsChannel(
            name=deps.name,
            options=options,
            api=api,
            token=token,
            files=received_files(deps, MEDIA_LIMIT),
            position=StateFile(path, Position),
            clock=deps.clock,
            unreadable=unreadable,
        )
