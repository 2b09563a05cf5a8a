"""E-mail: a mailbox that is read over IMAP and answered over SMTP."""

from typing import Literal, TypeAlias

from msgspec import Struct

from hermes.ports.channel import (
    ChannelCapabilities,
    ChannelManifest,
    ChannelSetup,
    Markup,
    MediaLimits,
    SetupQuestion,
)

ATTACHMENT_LIMIT = 18_000_000
"""Most servers accept mails of 25 MB, and encoding makes a file a third larger."""
MAIL_LIMIT = 35_000_000
MAX_HEADER = 256_000
SEND_SECONDS = 720.0
"""A server may take ten minutes to confirm a mail (RFC 5321, 4.5.3.2)."""

ADDRESS = r"[^@\s]+@[^@\s]+"
HOST = r"[^@\s/]+"

Security: TypeAlias = Literal["auto", "tls", "starttls", "none"]


class EmailOptions(Struct, frozen=True, kw_only=True):
    """The platform's own settings.

    `authserv_id` names the server whose `Authentication-Results` are trusted; without it, no sender
    is verified. Without `require_authenticated_sender`, or with `trust_from_header`, the `From`
    header is trusted as it is. `imap_security` and `smtp_security` depend on the port unless they
    are set; `none` is only allowed for servers on this machine. More than `loop_limit` mails of one
    thread within ten minutes are ignored; a sender may write three times as many.
    """

    address: str = ""
    password: str = ""
    imap_host: str = ""
    imap_port: int = 993
    imap_security: Security = "auto"
    smtp_host: str = ""
    smtp_port: int = 587
    smtp_security: Security = "auto"
    folder: str = "INBOX"
    poll_interval: float = 15.0
    authserv_id: str = ""
    require_authenticated_sender: bool = True
    trust_from_header: bool = False
    skip_attachments: bool = False
    proxy_url: str = ""
    loop_limit: int = 20


MANIFEST = ChannelManifest(
    name="email",
    label="E-mail",
    factory="hermes.channels.email.channel:open_channel",
    caps=ChannelCapabilities(
        max_text=50_000,
        rate=10.0,
        chat_rate=1.0,
        markup=Markup.HTML,
        threads=True,
        send_seconds=SEND_SECONDS,
        media_in=MediaLimits(
            image=ATTACHMENT_LIMIT,
            audio=ATTACHMENT_LIMIT,
            video=ATTACHMENT_LIMIT,
            document=ATTACHMENT_LIMIT,
        ),
        media_out=MediaLimits(
            image=ATTACHMENT_LIMIT,
            audio=ATTACHMENT_LIMIT,
            video=ATTACHMENT_LIMIT,
            document=ATTACHMENT_LIMIT,
        ),
    ),
    enabled_by=("EMAIL_ADDRESS",),
    account_option="address",
    options=EmailOptions,
    variables={
        "address": "EMAIL_ADDRESS",
        "password": "EMAIL_PASSWORD",
        "imap_host": "EMAIL_IMAP_HOST",
        "imap_port": "EMAIL_IMAP_PORT",
        "smtp_host": "EMAIL_SMTP_HOST",
        "smtp_port": "EMAIL_SMTP_PORT",
        "poll_interval": "EMAIL_POLL_INTERVAL",
        "authserv_id": "EMAIL_AUTHSERV_ID",
        "trust_from_header": "EMAIL_TRUST_FROM_HEADER",
        "proxy_url": "EMAIL_PROXY",
    },
    setup=ChannelSetup(
        check="hermes.channels.email.setup:check_account",
        variable="EMAIL_PASSWORD",
        secret="Password",  # noqa: S106 - what it is called
        questions=(
            SetupQuestion(
                "EMAIL_ADDRESS",
                "The agent's address",
                pattern=ADDRESS,
                expected="an address, such as hermes@example.com",
            ),
            SetupQuestion(
                "EMAIL_IMAP_HOST",
                "IMAP server",
                default="imap.{domain}",
                pattern=HOST,
                expected="the name of a server, such as imap.example.com",
            ),
            SetupQuestion(
                "EMAIL_SMTP_HOST",
                "SMTP server",
                default="smtp.{domain}",
                pattern=HOST,
                expected="the name of a server, such as smtp.example.com",
            ),
        ),
        steps=(
            "Use a separate mailbox for the agent: it reads everything that arrives there.",
            "If the provider has two-factor login (Gmail, iCloud, Yahoo), create an app password.",
            "Have the address and the names of the IMAP and SMTP servers ready.",
        ),
        user_pattern=ADDRESS,
        user_id="an address, such as ann@example.com",
    ),
)
