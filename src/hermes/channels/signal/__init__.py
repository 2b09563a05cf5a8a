"""Signal through the HTTP daemon of signal-cli: events arrive as a stream, calls are JSON-RPC."""

from msgspec import Struct

from hermes.ports.channel import (
    ChannelCapabilities,
    ChannelManifest,
    ChannelSetup,
    LengthUnit,
    Markup,
    MediaLimits,
    SetupQuestion,
)

FILE_LIMIT = 100 * 1024 * 1024
MAX_ATTACHMENTS = 32


class SignalOptions(Struct, frozen=True, kw_only=True):
    """The platform's own settings.

    `account` is the agent's number, or its account id if it has none. Messages of a group are read
    only if `group_allow_from` has its id, or `*`.
    """

    http_url: str = "http://127.0.0.1:8080"
    account: str = ""
    group_allow_from: tuple[str, ...] = ()
    reactions: bool = True
    ignore_stories: bool = True
    proxy_url: str = ""


MANIFEST = ChannelManifest(
    name="signal",
    label="Signal",
    factory="hermes.channels.signal.channel:open_channel",
    caps=ChannelCapabilities(
        max_text=8000,
        send_seconds=320.0,  # more than an upload may take
        groups=True,
        rate=5.0,
        unit=LengthUnit.UTF16,
        markup=Markup.TELEGRAM,
        typing=True,
        reactions=True,
        media_in=MediaLimits(
            image=FILE_LIMIT, audio=FILE_LIMIT, video=FILE_LIMIT, document=FILE_LIMIT
        ),
        media_out=MediaLimits(
            image=FILE_LIMIT, audio=FILE_LIMIT, video=FILE_LIMIT, document=FILE_LIMIT
        ),
    ),
    enabled_by=("SIGNAL_ACCOUNT", "SIGNAL_HTTP_URL"),
    account_option="account",
    options=SignalOptions,
    variables={
        "http_url": "SIGNAL_HTTP_URL",
        "account": "SIGNAL_ACCOUNT",
        "group_allow_from": "SIGNAL_GROUP_ALLOWED_USERS",
        "reactions": "SIGNAL_REACTIONS",
        "ignore_stories": "SIGNAL_IGNORE_STORIES",
        "proxy_url": "SIGNAL_PROXY",
    },
    setup=ChannelSetup(
        check="hermes.channels.signal.setup:check_account",
        variable="SIGNAL_ACCOUNT",
        secret="Phone number of the account",  # noqa: S106 - what it is called
        questions=(
            SetupQuestion(
                "SIGNAL_HTTP_URL", "Address of the signal-cli daemon", "http://127.0.0.1:8080"
            ),
        ),
        steps=(
            "Install signal-cli 0.13 or later and link it: signal-cli link -n hermes",
            "Scan the code with your phone: Settings, Linked devices.",
            "Start: signal-cli daemon --http 127.0.0.1:8080 --receive-mode=on-connection",
        ),
        user_pattern=r"\+\d+|[0-9a-f-]{36}",
        user_id="a phone number, such as +15551234567, or the person's account id (a UUID)",
    ),
)
