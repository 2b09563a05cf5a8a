"""XMPP (Jabber): an account in direct chats and rooms."""

from msgspec import Struct

from hermes.ports.channel import (
    ChannelCapabilities,
    ChannelManifest,
    ChannelSetup,
    Markup,
    MediaLimits,
    SetupQuestion,
)

FILE_LIMIT = 20_000_000
_FILES = MediaLimits(image=FILE_LIMIT, audio=FILE_LIMIT, video=FILE_LIMIT, document=FILE_LIMIT)


class XmppOptions(Struct, frozen=True, kw_only=True):
    """The platform's own settings.

    `host` and `port` are looked up in DNS if the host is not set. `muc_rooms` are rooms to join,
    each followed by a space and its password if it has one, under the nickname `muc_nick`.
    `use_tls` can be turned off on this machine only. Through a proxy, DNS is not used: without
    `host`, the server is the domain of the address.
    """

    jid: str = ""
    password: str = ""
    host: str = ""
    port: int = 5222
    use_tls: bool = True
    muc_rooms: tuple[str, ...] = ()
    muc_nick: str = "hermes"
    proxy_url: str = ""


MANIFEST = ChannelManifest(
    name="xmpp",
    label="XMPP",
    factory="hermes.channels.xmpp.channel:open_channel",
    caps=ChannelCapabilities(
        max_text=10_000,
        markup=Markup.XMPP,
        groups=True,
        mention_required=True,
        rate=5.0,
        chat_rate=1.0,
        edit=True,
        typing=True,
        reactions=True,
        media_in=_FILES,
        media_out=_FILES,
    ),
    enabled_by=("XMPP_JID",),
    account_option="jid",
    options=XmppOptions,
    variables={
        "jid": "XMPP_JID",
        "password": "XMPP_PASSWORD",
        "host": "XMPP_HOST",
        "port": "XMPP_PORT",
        "use_tls": "XMPP_USE_TLS",
        "muc_rooms": "XMPP_MUC_ROOMS",
        "muc_nick": "XMPP_MUC_NICK",
        "proxy_url": "XMPP_PROXY",
    },
    extra="xmpp",
    setup=ChannelSetup(
        check="hermes.channels.xmpp.setup:check_account",
        variable="XMPP_PASSWORD",
        secret="Password",  # noqa: S106 - what it is called
        questions=(
            SetupQuestion("XMPP_JID", "The agent's address (name@server)"),
            SetupQuestion("XMPP_MUC_ROOMS", "Rooms to join, or - for none", optional=True),
        ),
        steps=(
            "Register an account for the agent, with any client or on the server's website.",
            "Have its address and password ready.",
        ),
        user_pattern=r"[^@\s]+@[^@\s]+",
        user_id="an address, such as ann@example.com",
    ),
)
