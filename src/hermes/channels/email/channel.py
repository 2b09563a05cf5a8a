"""The e-mail channel: follows a mailbox over IMAP and sends mails over SMTP."""

import logging
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

from anyio.to_thread import run_sync
from msgspec import structs

from hermes.channels.account import account_options, check_address, require_options
from hermes.channels.connection import LastSeen, Retries
from hermes.channels.email import (
    ATTACHMENT_LIMIT,
    MAIL_LIMIT,
    MANIFEST,
    MAX_HEADER,
    EmailOptions,
    Security,
)
from hermes.channels.email.automatic_mail import LoopGuard
from hermes.channels.email.imap import (
    ImapConnection,
    ImapRefused,
    ImapServer,
    LoginRefused,
    MailSummary,
    SelectedFolder,
    open_imap,
    search_date,
)
from hermes.channels.email.inbound import InboundBuilder, InboundRules
from hermes.channels.email.mail_records import Cursor, MailRecords
from hermes.channels.email.outbound import MailComposer, attach
from hermes.channels.email.received_mail import ReceivedMail, has_too_many_parts, parse_mail
from hermes.channels.email.smtp import SmtpServer, send_mail
from hermes.channels.proxies import ProxySettings, socket_proxy, stays_here
from hermes.channels.received_files import received_files
from hermes.channels.unreadable_updates import UnreadableUpdates, unreadable_updates
from hermes.kit.clock import Clock
from hermes.ports.channel import (
    ChannelCapabilities,
    ChannelDeps,
    Inbound,
    Offline,
    Outbound,
    Receipt,
)
from hermes.ports.store import Blobs
from hermes.schema.errors import ConfigError
from hermes.schema.scope import Address

log = logging.getLogger(__name__)

HandleInbound = Callable[[Inbound], Awaitable[None]]
RECONNECT_PAUSE = 0.25
MAX_SILENCE = 40.0
"""Seconds; well below the time after which a channel counts as dead."""
BATCH = 50
"""Number of mails that are handled before the cursor is stored."""
FIRST_DAYS = timedelta(days=1)
"""At the first start, unread mails up to this age are answered."""
RENUMBERED_DAYS = timedelta(days=5)
"""If the server has renumbered the mails, those up to this age are fetched again.

The gateway recognizes messages for a week, and IMAP searches by day.
"""
MAX_REFUSALS = 2
"""How often the server may refuse to return a mail, each time on a new connection."""


class EmailChannel:
    """Implements `Channel` with liveness; never retries. `servers` returns the current login."""

    def __init__(
        self,
        *,
        name: str,
        options: EmailOptions,
        servers: Callable[[], tuple[ImapServer, SmtpServer]],
        records: MailRecords,
        builder: InboundBuilder,
        composer: MailComposer,
        blobs: Blobs,
        clock: Clock,
        unreadable: UnreadableUpdates,
    ) -> None:
        self.caps: ChannelCapabilities = MANIFEST.caps
        self._name = name
        self._options = options
        self._servers = servers
        self._records = records
        self._builder = builder
        self._composer = composer
        self._blobs = blobs
        self._clock = clock
        self._unreadable = unreadable
        self._seen = LastSeen(clock)
        self._retries = Retries(clock, pause=RECONNECT_PAUSE)
        self._validity = 0
        self._refusals = Counter[int]()
        self._handled: dict[int, bool] = {}
        """The mails handled since the last cursor, and whether each was delivered: they are not
        fetched again after a lost connection."""

    async def run(self, deliver: HandleInbound) -> None:
        while True:
            try:
                async with open_imap(self._servers()[0], self._seen.mark) as imap:
                    await self._follow(imap, deliver)
            except LoginRefused:
                raise
            except Offline as error:
                await self._retries.failed(error)

    async def send(self, to: Address, post: Outbound) -> Receipt:
        check_address(to, self._name)
        subject = self._records.subject(to.chat, to.thread or "")
        files = [
            (attachment.media, await self._blobs.read(attachment.media.digest))
            for attachment in post.attachments
        ]

        def compose() -> tuple[str, bytes]:
            mail = self._composer.compose(to, post, subject)
            for media, data in files:
                attach(mail, data, media.media_type, media.name)
            return mail["Message-ID"].strip("<>"), mail.as_bytes()

        # Large files take time to encode.
        message_id, data = await run_sync(compose)
        await send_mail(self._servers()[1], self._options.address, to.chat, data)
        return Receipt(to, message_id)

    def last_seen_at(self) -> datetime | None:
        return self._seen.at

    async def _follow(self, imap: ImapConnection, deliver: HandleInbound) -> None:
        folder = await imap.select(self._options.folder)
        if folder.validity != self._validity:
            self._forget_batch()
            self._validity = folder.validity
        await self._catch_up(imap, folder, deliver)
        while True:
            await self._take_new(imap, folder, deliver)
            await self._wait(imap)

    async def _catch_up(
        self, imap: ImapConnection, folder: SelectedFolder, deliver: HandleInbound
    ) -> None:
        """Without a usable cursor, handle recent mails and set one."""
        cursor, now = self._records.cursor, self._clock.now()
        if cursor is not None and cursor.validity == folder.validity:
            return
        if cursor is None:
            found = await imap.search(b"UNSEEN SINCE " + search_date((now - FIRST_DAYS).date()))
        else:
            log.warning("%s: the server has renumbered the emails", self._name)
            since = max(cursor.at - FIRST_DAYS, now - RENUMBERED_DAYS)
            found = await imap.search(b"SINCE " + search_date(since.date()))
        waiting = [uid for uid in found if uid < folder.next_uid]
        for start in range(0, len(waiting), BATCH):
            await self._take(imap, waiting[start : start + BATCH], deliver)
        await self._advance(folder, folder.next_uid)

    async def _take_new(
        self, imap: ImapConnection, folder: SelectedFolder, deliver: HandleInbound
    ) -> None:
        cursor = self._records.cursor
        first = cursor.next_uid if cursor is not None else folder.next_uid
        # The server returns its last mail even if that precedes the requested range.
        found = [uid for uid in await imap.search(b"UID %d:*" % first) if uid >= first]
        for start in range(0, len(found), BATCH):
            batch = found[start : start + BATCH]
            await self._take(imap, batch, deliver)
            await self._advance(folder, batch[-1] + 1)

    async def _take(
        self, imap: ImapConnection, uids: Sequence[int], deliver: HandleInbound
    ) -> None:
        """Deliver mails in order, then mark them as read; ignored mails stay unread."""
        summaries = await self._summaries(imap, uids)
        for uid in sorted(summaries):
            if uid not in self._handled:
                self._handled[uid] = await self._take_one(imap, uid, summaries[uid], deliver)
                self._seen.mark()
                self._retries.succeeded()
        if taken := [uid for uid in uids if self._handled.get(uid)]:
            try:
                await imap.mark_seen(taken)
            except ImapRefused as error:
                log.warning("%s: emails cannot be marked as read: %s", self._name, error)

    async def _summaries(self, imap: ImapConnection, uids: Sequence[int]) -> dict[int, MailSummary]:
        """Fetch summaries; if the server refuses, find out which mail is the reason."""
        try:
            return await imap.summaries(uids)
        except ImapRefused as error:
            if len(uids) == 1:
                self._count_refusal(uids[0], error)
                return {}
        return {
            found: summary
            for uid in uids
            for found, summary in (await self._summaries(imap, [uid])).items()
        }

    def _count_refusal(self, uid: int, error: ImapRefused) -> None:
        """Raise the error if reconnecting may help; otherwise skip the mail."""
        self._refusals[uid] += 1
        if self._refusals[uid] < MAX_REFUSALS:
            raise error
        log.warning("%s: email %d is left unread: %s", self._name, uid, error)

    async def _take_one(
        self, imap: ImapConnection, uid: int, summary: MailSummary, deliver: HandleInbound
    ) -> bool:
        """Deliver a mail; return False if it is ignored or no longer exists."""
        mail = inbound = None
        try:
            with self._unreadable.skipping(f"mail {uid} of {self._options.folder}"):
                mail = await self._read_header(imap, uid, summary)
                inbound = await self._inbound(imap, uid, summary, mail) if mail else None
        except ImapRefused as error:
            self._count_refusal(uid, error)
            return False
        if mail is None or inbound is None:
            return False
        await deliver(structs.replace(inbound, written_at=summary.arrived))
        self._builder.delivered(mail)
        return True

    async def _read_header(
        self, imap: ImapConnection, uid: int, summary: MailSummary
    ) -> ReceivedMail | None:
        """Fetch the header of a mail; None if the mail is ignored: nothing else is fetched."""
        header = await imap.header(uid, MAX_HEADER)
        if header is None:
            return None
        if len(header) >= MAX_HEADER:
            log.warning("%s: email %d is ignored: its header is too large", self._name, uid)
            return None
        mail, reason = await run_sync(self._judge, header)
        if mail is None:
            log.info("%s: email %d has no single sender", self._name, uid)
            return None
        if not reason and self._builder.is_loop(mail, summary.arrived or self._clock.now()):
            reason = "too many emails from this thread or sender arrived within ten minutes"
        if reason:
            log.warning("%s: an email from %s is ignored: %s", self._name, mail.sender, reason)
            return None
        return mail

    async def _inbound(
        self, imap: ImapConnection, uid: int, summary: MailSummary, header: ReceivedMail
    ) -> Inbound | None:
        if summary.size > MAIL_LIMIT:
            return await self._builder.build(header, whole=False)
        data = await imap.content(uid)
        if data is not None and has_too_many_parts(data):
            return await self._builder.build(header, whole=False)
        mail = await run_sync(parse_mail, data) if data is not None else None
        if mail is None or mail.sender != header.sender:
            return None
        return await self._builder.build(mail)

    def _judge(self, header: bytes) -> tuple[ReceivedMail | None, str]:
        mail = parse_mail(header)
        return mail, self._builder.reason_to_ignore(mail) if mail is not None else ""

    async def _advance(self, folder: SelectedFolder, next_uid: int) -> None:
        await self._records.advance(
            Cursor(validity=folder.validity, next_uid=next_uid, at=self._clock.now())
        )
        self._forget_batch()

    def _forget_batch(self) -> None:
        self._handled.clear()
        self._refusals.clear()

    async def _wait(self, imap: ImapConnection) -> None:
        """Wait for new mail, or until it is time to poll.

        The server must answer from time to time, so that a dead connection is noticed.
        """
        left = self._options.poll_interval
        while left > 0 and not imap.has_news:
            step = min(left, MAX_SILENCE)
            if b"IDLE" in imap.capabilities:
                await imap.idle(step)
            else:
                await self._clock.sleep(step)
                await imap.no_operation()
            left -= step
        self._retries.succeeded()


def checked_options(deps: ChannelDeps) -> EmailOptions:
    """Read the options. Raises `ConfigError` if they cannot be used."""
    options = account_options(EmailOptions, deps, MANIFEST, own=MANIFEST.variables)
    password = options.password or deps.settings.token or deps.settings.api_key
    options = structs.replace(
        options, address=options.address.strip().lower(), password=password.strip()
    )
    require_options(options, deps, MANIFEST, ("address", "password", "imap_host", "smtp_host"))
    if options.poll_interval < 1:
        raise ConfigError(
            f"{deps.name}: the poll interval must be at least one second.",
            hint="Correct EMAIL_POLL_INTERVAL, then restart the gateway.",
        )
    servers_of(options, deps.current_env())
    return options


def servers_of(options: EmailOptions, env: Mapping[str, str]) -> tuple[ImapServer, SmtpServer]:
    """Return the servers. Raises `ConfigError` if a password would be sent without encryption."""
    imap = _security(options.imap_security, options.imap_port == 993)
    smtp = _security(options.smtp_security, options.smtp_port == 465)
    settings = ProxySettings(options.proxy_url, "EMAIL_PROXY", env)
    imap_proxy, smtp_proxy = (
        socket_proxy(MANIFEST.label, host, settings)
        for host in (options.imap_host, options.smtp_host)
    )
    for security, host, proxy in (
        (imap, options.imap_host, imap_proxy),
        (smtp, options.smtp_host, smtp_proxy),
    ):
        if security == "none" and not stays_here(host, proxy):
            raise ConfigError(
                f"The password would be sent to {host} without encryption.",
                hint="Set imap_security and smtp_security to tls or starttls.",
            )
    user, password = options.address, options.password
    return (
        ImapServer(
            host=options.imap_host,
            port=options.imap_port,
            security=imap,
            user=user,
            password=password,
            proxy=imap_proxy,
        ),
        SmtpServer(
            host=options.smtp_host,
            port=options.smtp_port,
            security=smtp,
            user=user,
            password=password,
            proxy=smtp_proxy,
        ),
    )


def _security(configured: Security, is_tls_port: bool) -> str:
    return configured if configured != "auto" else "tls" if is_tls_port else "starttls"


@asynccontextmanager
async def open_channel(deps: ChannelDeps) -> AsyncGenerator[EmailChannel]:
    options = checked_options(deps)
    name = f"account-{deps.account}" if deps.account else "mailbox"
    path = deps.home / "email" / f"{name}.json"
    mailbox = f"{options.address} {options.imap_host} {options.folder}"
    records = await run_sync(MailRecords, path, mailbox)
    builder = InboundBuilder(
        name=deps.name,
        own=options.address,
        rules=InboundRules(
            trust_from=options.trust_from_header or not options.require_authenticated_sender,
            authserv_id=options.authserv_id,
            skip_attachments=options.skip_attachments,
            max_file_bytes=min(ATTACHMENT_LIMIT, deps.max_file or ATTACHMENT_LIMIT),
        ),
        records=records,
        files=received_files(deps, ATTACHMENT_LIMIT),
        loops=LoopGuard(options.loop_limit),
    )
    yield EmailChannel(
        name=deps.name,
        options=options,
        servers=lambda: servers_of(checked_options(deps), deps.current_env()),
        records=records,
        builder=builder,
        composer=MailComposer(options.address, deps.clock),
        blobs=deps.blobs,
        clock=deps.clock,
        unreadable=unreadable_updates(deps),
    )
