"""IRC: a nickname in channels and direct messages of one network."""

from typing import Literal, TypeAlias

from msgspec import Struct

from hermes.ports.channel import (
    ChannelCapabilities,
    ChannelManifest,
    ChannelSetup,
    LengthUnit,
    Markup,
    SetupQuestion,
)

MAX_TEXT = 450
"""Bytes of text; a whole line has 512, including sender and target."""
SEND_SECONDS = 600.0
"""A post of many short lines is sent slowly, so that the server does not count it as a flood."""

SERVER = (
    r"(?:(?P<scheme>ircs?)://)?"
    r"(?:\[(?P<ipv6>[\da-fA-F:.]+)\]|(?P<host>[^\s:/@\[\]]+))(?::(?P<port>\d+))?/?"
)
NICKNAME = r"[A-Za-z\[\]\\`_^{|}][A-Za-z0-9\[\]\\`_^{|}-]*"
CHANNELS = r"[#&+!][^\s,]*(?: +[^\s,]+)?(?:\s*,\s*[#&+!][^\s,]*(?: +[^\s,]+)?)*"

SaslMechanism: TypeAlias = Literal["auto", "plain", "external", "none"]


class IrcOptions(Struct, frozen=True, kw_only=True):
    """The platform's own settings.

    `server` is a host, HOST:PORT or, without TLS, irc://HOST:PORT; it overrides `port` and
    `use_tls`. `channel` lists the channels to join, each followed by a space and its key if it has
    one. Logins use SASL if the server offers it, otherwise NickServ; `sasl_username` is the
    nickname and `sasl_password` the NickServ password unless they are set. `client_cert` is a file
    with a certificate and its key. With `trust_nicknames`, people are identified by their
    nicknames, which anyone can take. `flood_burst` lines are sent at once, then one every
    `flood_interval` seconds.
    """

    server: str = ""
    port: int = 6697
    use_tls: bool = True
    nickname: str = "hermes-bot"
    channel: tuple[str, ...] = ()
    server_password: str = ""
    nickserv_password: str = ""
    sasl_mechanism: SaslMechanism = "auto"
    sasl_username: str = ""
    sasl_password: str = ""
    client_cert: str = ""
    trust_nicknames: bool = False
    flood_burst: int = 4
    flood_interval: float = 2.0
    proxy_url: str = ""


MANIFEST = ChannelManifest(
    name="irc",
    label="IRC",
    factory="hermes.channels.irc.channel:open_channel",
    caps=ChannelCapabilities(
        max_text=MAX_TEXT,
        unit=LengthUnit.BYTES,
        markup=Markup.IRC,
        groups=True,
        mention_required=True,
        send_seconds=SEND_SECONDS,
    ),
    enabled_by=("IRC_SERVER",),
    account_option=("server", "nickname"),
    options=IrcOptions,
    variables={
        "server": "IRC_SERVER",
        "port": "IRC_PORT",
        "use_tls": "IRC_USE_TLS",
        "nickname": "IRC_NICKNAME",
        "channel": "IRC_CHANNEL",
        "server_password": "IRC_SERVER_PASSWORD",
        "nickserv_password": "IRC_NICKSERV_PASSWORD",
        "sasl_mechanism": "IRC_SASL_MECHANISM",
        "sasl_username": "IRC_SASL_USERNAME",
        "sasl_password": "IRC_SASL_PASSWORD",
        "client_cert": "IRC_CLIENT_CERT",
        "trust_nicknames": "IRC_TRUST_NICKNAMES",
        "proxy_url": "IRC_PROXY",
    },
    setup=ChannelSetup(
        check="hermes.channels.irc.setup:check_account",
        variable="IRC_NICKSERV_PASSWORD",
        secret="Password",  # noqa: S106 - what it is called
        secret_optional=True,
        questions=(
            SetupQuestion(
                "IRC_SERVER",
                "Server",
                default="irc.libera.chat",
                pattern=SERVER,
                expected="HOST or HOST:PORT, or irc://HOST:PORT for a server without TLS",
            ),
            SetupQuestion(
                "IRC_NICKNAME",
                "The agent's nickname",
                default="hermes-bot",
                pattern=NICKNAME,
                expected="a nickname without spaces that begins with a letter, such as hermes-bot",
            ),
            SetupQuestion(
                "IRC_CHANNEL",
                "Channels to join (#one,#two), or - for none",
                optional=True,
                pattern=CHANNELS,
                expected="channels, such as #one,#two, or - for none",
            ),
        ),
        steps=(
            "Register a nickname for the agent: /msg NickServ REGISTER PASSWORD EMAIL",
            "Register your own nickname too: people are identified by their accounts.",
            "Have the channel names ready; add a channel's key after a space: #room key.",
            "For another port than 6697: HOST:PORT. Without TLS: irc://HOST:PORT.",
        ),
        user_id="the name of a person's account on the network, or nick!user@host without one",
    ),
)
