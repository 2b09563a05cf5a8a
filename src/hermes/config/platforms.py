"""Facts about the public messaging platforms that the program needs without their drivers.

A platform that is not listed has the defaults, with variables named after it.
"""

from typing import Literal

from msgspec import Struct

HOME_CHANNEL = "HOME_CHANNEL"


class PlatformFacts(Struct, frozen=True):
    """A platform's environment variables: suffix, description, and whether it is a secret.

    A platform is configured if the first of them or a secret is set.
    `name` is the platform's name in settings, if it is not the prefix. `home` is the variable of
    its home channel, with `home_prefix` if it has another prefix; `other_home` is that of a list
    of chats whose first one it is otherwise. `ids`
    says how ids of the same person are compared, `pairing` whether unknown senders are offered a
    pairing code. `sender_role` is set if the platform authenticates its senders itself. `shared`:
    several profiles may use the same credentials.
    """

    prefix: str
    label: str
    variables: tuple[tuple[str, str, bool], ...] = ()
    url: str = ""
    name: str = ""
    home: str = HOME_CHANNEL
    home_prefix: str = ""
    other_home: str = ""
    ids: Literal["exact", "lowercase", "phone"] = "exact"
    pairing: bool = True
    sender_role: Literal["", "member", "guest"] = ""
    shared: bool = False

    @property
    def platform(self) -> str:
        return self.name or self.prefix.lower()


PLATFORMS = (
    PlatformFacts("TELEGRAM", "Telegram", (
        ("BOT_TOKEN", "bot token", True),
        ("GROUP_ALLOWED_CHATS", "groups in which everyone may talk to the agent", False),
        ("REQUIRE_MENTION", "whether to answer in groups only when mentioned", False),
        ("MENTION_PATTERNS", "regular expressions that count as a mention", False),
        ("EXCLUSIVE_BOT_MENTIONS", "whether messages naming only other bots are ignored", False),
        ("FREE_RESPONSE_CHATS", "groups in which no mention is needed", False),
        ("FREE_RESPONSE_TOPICS", "topics in which no mention is needed, as chat:topic", False),
        ("ALLOWED_CHATS", "the only groups to answer in", False),
        ("ALLOWED_TOPICS", "the only topics to answer in", False),
        ("IGNORED_THREADS", "topics to ignore", False),
        ("GUEST_MODE", "whether mentions are answered in other groups too", False),
        ("DISABLE_LINK_PREVIEWS", "whether link previews are off", False),
        ("PROXY", "HTTP or SOCKS proxy", False),
        ("WEBHOOK_URL", "public URL for updates instead of polling", False),
        ("WEBHOOK_HOST", "address to listen on for updates", False),
        ("WEBHOOK_PORT", "port to listen on for updates", False),
        ("WEBHOOK_SECRET", "secret that Telegram sends with each update", True),
    ), "https://t.me/BotFather"),
    PlatformFacts("DISCORD", "Discord", (
        ("BOT_TOKEN", "bot token", True),
        ("ALLOWED_ROLES", "roles whose members may talk to the agent", False),
        ("DM_ROLE_AUTH_GUILD", "server whose roles count in direct messages", False),
        ("REQUIRE_MENTION", "whether to answer in servers only when mentioned", False),
        ("THREAD_REQUIRE_MENTION", "whether the bot's threads need a mention too", False),
        ("FREE_RESPONSE_CHANNELS", "channels in which no mention is needed", False),
        ("ALLOWED_CHANNELS", "the only channels to answer in", False),
        ("IGNORED_CHANNELS", "channels to ignore", False),
        ("NO_THREAD_CHANNELS", "channels in which a mention does not open a thread", False),
        ("AUTO_THREAD", "whether a mention opens a thread", False),
        ("IGNORE_NO_MENTION", "whether messages naming only others are ignored", False),
        ("BOTS_REQUIRE_INLINE_MENTION", "whether bots must name the bot in their text", False),
        ("HISTORY_BACKFILL", "whether a mention comes with the messages before it", False),
        ("HISTORY_BACKFILL_LIMIT", "maximum number of those messages", False),
        ("MISSED_MESSAGE_BACKFILL", "whether messages missed in an outage are fetched", False),
        ("MAX_ATTACHMENT_BYTES", "largest file that is downloaded", False),
        ("SLASH_COMMANDS", "whether Discord lists the commands", False),
        ("HIDE_SLASH_COMMANDS", "whether only administrators see them", False),
        ("COMMAND_SYNC_POLICY", "safe, bulk or off", False),
        ("PROXY", "HTTP or SOCKS proxy", False),
    ), "https://discord.com/developers/applications"),
    PlatformFacts("SLACK", "Slack", (
        ("BOT_TOKEN", "bot token (xoxb-)", True),
        ("APP_TOKEN", "app token for the socket (xapp-)", True),
        ("REQUIRE_MENTION", "whether to answer in channels only when mentioned", False),
        ("STRICT_MENTION", "whether each message must mention the bot", False),
        ("MENTION_PATTERNS", "regular expressions that count as a mention", False),
        ("FREE_RESPONSE_CHANNELS", "channels in which no mention is needed", False),
        ("ALLOWED_CHANNELS", "the only channels to answer in", False),
        ("REPLY_IN_THREAD", "whether answers in channels open a thread", False),
        ("REPLY_BROADCAST", "whether answers in threads also appear in the channel", False),
        ("RICH_BLOCKS", "whether answers are sent as blocks", False),
        ("PROXY", "HTTP proxy", False),
    ), "https://api.slack.com/apps"),
    PlatformFacts("WHATSAPP", "WhatsApp", (
        ("ENABLED", "whether the bridge is started", False),
        ("MODE", "own number or a number for the bot", False),
    ), ids="phone"),
    PlatformFacts("WHATSAPP_CLOUD", "WhatsApp Cloud", (
        ("ACCESS_TOKEN", "access token", True),
        ("PHONE_NUMBER_ID", "phone number id", False),
        ("VERIFY_TOKEN", "webhook token", True),
        ("APP_SECRET", "app secret", True),
        ("APP_ID", "app id, for the check of the webhook by setup", False),
        ("WABA_ID", "business account id, checked by setup", False),
        ("API_VERSION", "version of the Graph API", False),
        ("WEBHOOK_HOST", "address to listen on for messages", False),
        ("WEBHOOK_PORT", "port where messages arrive", False),
        ("WEBHOOK_PATH", "path where messages arrive", False),
        ("REPLY_PREFIX", "text before each post", False),
        ("PROXY", "HTTP or SOCKS proxy", False),
    ), "https://developers.facebook.com/apps", ids="phone"),
    PlatformFacts("SIGNAL", "Signal", (
        ("HTTP_URL", "address of the signal-cli daemon", False),
        ("ACCOUNT", "account phone number", False),
        ("GROUP_ALLOWED_USERS", "groups that are read, by id, or *", False),
        ("REQUIRE_MENTION", "whether to answer in groups only when mentioned", False),
        ("REACTIONS", "whether to react to messages", False),
        ("IGNORE_STORIES", "whether stories are ignored", False),
        ("PROXY", "HTTP or SOCKS proxy", False),
    )),
    PlatformFacts("MATRIX", "Matrix", (
        ("HOMESERVER", "homeserver address", False),
        ("USER_ID", "full account name", False),
        ("ACCESS_TOKEN", "access token", True),
        ("PASSWORD", "password, if there is no token", True),
        ("RECOVERY_KEY", "the account's recovery key, with which the device is signed", True),
        ("RECOVERY_KEY_OUTPUT_FILE", "file for the recovery key of an account without one", False),
        ("ENCRYPTION", "whether encrypted rooms are served", False),
        ("E2EE_MODE", "encrypted rooms: off, optional or required", False),
        ("DEVICE_ID", "device id for the first login", False),
        ("REQUIRE_MENTION", "whether to answer in rooms only when mentioned", False),
        ("THREAD_REQUIRE_MENTION", "whether the agent's threads need a mention too", False),
        ("FREE_RESPONSE_ROOMS", "rooms in which no mention is needed", False),
        ("ALLOWED_ROOMS", "the only rooms to answer in", False),
        ("ALLOW_PUBLIC_ROOMS", "whether invitations to public rooms are accepted", False),
        ("ALLOW_ROOM_MENTIONS", "whether posts may notify a whole room", False),
        ("AUTO_THREAD", "whether a mention opens a thread", False),
        ("DM_AUTO_THREAD", "whether a message in a direct chat opens a thread", False),
        ("DM_MENTION_THREADS", "whether a mention in a direct chat opens a thread", False),
        ("SESSION_SCOPE", "auto, room or thread", False),
        ("IGNORE_USER_PATTERNS", "regular expressions of people to ignore", False),
        ("PROCESS_NOTICES", "whether notices are read", False),
        ("MAX_MEDIA_BYTES", "largest file that is downloaded", False),
        ("MAX_MESSAGE_LENGTH", "longest post in bytes", False),
        ("ROOM_IDENTITY_TTL_SECONDS", "how long names of rooms are remembered", False),
        ("APPROVAL_TIMEOUT_SECONDS", "how long an approval can be answered", False),
        ("APPROVAL_REQUIRE_SENDER", "whether only the requester's reaction approves", False),
        ("PROXY", "proxy for connections to the homeserver", True),
    ), home="HOME_ROOM"),
    PlatformFacts("MATTERMOST", "Mattermost", (
        ("URL", "server address", False),
        ("TOKEN", "bot token", True),
        ("REQUIRE_MENTION", "whether to answer in channels only when mentioned", False),
        ("FREE_RESPONSE_CHANNELS", "channels in which no mention is needed", False),
        ("ALLOWED_CHANNELS", "the only channels to answer in", False),
        ("REPLY_MODE", "thread to answer in threads, or off", False),
        ("PROXY", "HTTP or SOCKS proxy", False),
    )),
    PlatformFacts("EMAIL", "E-mail", (
        ("ADDRESS", "the agent's address", False),
        ("PASSWORD", "mailbox password", True),
        ("IMAP_HOST", "server for reading", False),
        ("IMAP_PORT", "port for reading", False),
        ("SMTP_HOST", "server for sending", False),
        ("SMTP_PORT", "port for sending", False),
        ("POLL_INTERVAL", "seconds between two checks of the mailbox", False),
        ("AUTHSERV_ID", "the only server whose Authentication-Results are trusted", False),
        ("TRUST_FROM_HEADER", "whether senders need no authentication", False),
        ("PROXY", "HTTP or SOCKS proxy", False),
        ("HOME_ADDRESS", "default address for outgoing messages", False),
    ), home="HOME_ADDRESS", ids="lowercase", pairing=False),
    PlatformFacts("SMS", "SMS", (
        ("WEBHOOK_URL", "public address where messages arrive", False),
        ("WEBHOOK_HOST", "address to listen on for messages", False),
        ("WEBHOOK_PORT", "port where messages arrive", False),
        ("INSECURE_NO_SIGNATURE", "whether calls need no signature", False),
        ("PROXY", "HTTP or SOCKS proxy", False),
    ), ids="phone"),
    PlatformFacts("TWILIO", "Twilio", (
        ("ACCOUNT_SID", "account id", False),
        ("AUTH_TOKEN", "account token", True),
        ("PHONE_NUMBER", "the agent's phone number", False),
    ), "https://console.twilio.com", name="sms"),
    PlatformFacts("IRC", "IRC", (
        ("SERVER", "server", False),
        ("PORT", "port", False),
        ("USE_TLS", "whether the connection is encrypted", False),
        ("NICKNAME", "the agent's nickname", False),
        ("CHANNEL", "channels to join, each with its key after a space", False),
        ("SERVER_PASSWORD", "server password", True),
        ("NICKSERV_PASSWORD", "nickname password", True),
        ("SASL_MECHANISM", "auto, plain, external or none", False),
        ("SASL_USERNAME", "account, if it is not the nickname", False),
        ("SASL_PASSWORD", "its password, if it is not that of NickServ", True),
        ("CLIENT_CERT", "PEM file with a certificate and its key", False),
        ("TRUST_NICKNAMES", "whether people are identified by their nicknames", False),
        ("PROXY", "HTTP or SOCKS proxy", False),
        ("REQUIRE_MENTION", "whether to answer in channels only when mentioned", False),
        ("FREE_RESPONSE_CHANNELS", "channels in which no mention is needed", False),
        ("ALLOWED_CHANNELS", "the only channels to answer in", False),
    ), ids="lowercase", other_home="CHANNEL"),
    PlatformFacts("XMPP", "XMPP", (
        ("JID", "the agent's address", False),
        ("PASSWORD", "account password", True),
        ("HOST", "server, if it is not found in DNS", False),
        ("PORT", "its port", False),
        ("USE_TLS", "whether the connection is encrypted", False),
        ("MUC_ROOMS", "rooms to join, each with its password after a space", False),
        ("MUC_NICK", "nickname in rooms", False),
        ("PROXY", "HTTP or SOCKS proxy", False),
        ("REQUIRE_MENTION", "whether to answer in rooms only when mentioned", False),
        ("FREE_RESPONSE_CHANNELS", "rooms in which no mention is needed", False),
        ("ALLOWED_CHANNELS", "the only rooms to answer in", False),
    ), ids="lowercase"),
    PlatformFacts("LINE", "LINE", (
        ("CHANNEL_ACCESS_TOKEN", "access token", True),
        ("CHANNEL_SECRET", "channel secret", True),
    ), "https://developers.line.biz/console"),
    PlatformFacts("TEAMS", "Microsoft Teams", (
        ("CLIENT_ID", "app id", False),
        ("CLIENT_SECRET", "app secret", True),
        ("TENANT_ID", "tenant id", False),
    ), "https://dev.teams.microsoft.com"),
    PlatformFacts("GOOGLE_CHAT", "Google Chat", (
        ("SERVICE_ACCOUNT_JSON", "service account, as JSON or a file", True),
        ("PROJECT_ID", "project", False),
        ("SUBSCRIPTION_NAME", "subscription that delivers the messages", False),
    )),
    PlatformFacts("FEISHU", "Feishu", (
        ("APP_ID", "app id", False),
        ("APP_SECRET", "app secret", True),
        ("ENCRYPT_KEY", "event encryption key", True),
        ("VERIFICATION_TOKEN", "event verification token", True),
        ("DOMAIN", "feishu or lark", False),
    ), "https://open.feishu.cn/app"),
    PlatformFacts("DINGTALK", "DingTalk", (
        ("CLIENT_ID", "app id", False),
        ("CLIENT_SECRET", "app secret", True),
    )),
    PlatformFacts("WECOM", "WeCom", (
        ("BOT_ID", "bot id", False),
        ("SECRET", "bot secret", True),
    )),
    PlatformFacts("WECOM_CALLBACK", "WeCom callback", (
        ("CORP_ID", "company id", False),
        ("CORP_SECRET", "app secret", True),
        ("AGENT_ID", "app id", False),
        ("TOKEN", "callback token", True),
        ("ENCODING_AES_KEY", "callback encryption key", True),
    )),
    PlatformFacts("WEIXIN", "Weixin", (
        ("ACCOUNT_ID", "account id", False),
        ("TOKEN", "account token", True),
    )),
    PlatformFacts("QQ", "QQ", (
        ("APP_ID", "app id", False),
        ("CLIENT_SECRET", "app secret", True),
        ("GROUP_ALLOWED_USERS", "groups in which everyone may talk to the agent", False),
        ("PROXY", "HTTP or SOCKS proxy", False),
    ), "https://q.qq.com", name="qqbot", home_prefix="QQBOT"),
    PlatformFacts("YUANBAO", "Yuanbao", (
        ("APP_ID", "app id", False),
        ("APP_SECRET", "app secret", True),
    )),
    PlatformFacts("BLUEBUBBLES", "BlueBubbles (iMessage)", (
        ("SERVER_URL", "server address", False),
        ("PASSWORD", "server password", True),
    )),
    PlatformFacts("HASS", "Home Assistant", (
        ("URL", "address of Home Assistant", False),
        ("TOKEN", "long-lived token", True),
        ("PROXY", "HTTP or SOCKS proxy", False),
    ), name="homeassistant", sender_role="member", shared=True),
    PlatformFacts("NTFY", "ntfy", (
        ("TOPIC", "topic to listen on", False),
        ("SERVER_URL", "server address", False),
        ("TOKEN", "token, if the topic needs one", True),
    )),
    PlatformFacts("SIMPLEX", "SimpleX", (("WS_URL", "address of the SimpleX program", False),)),
    PlatformFacts("PHOTON", "Photon (iMessage)", (("API_KEY", "key", True),)),
    PlatformFacts("RAFT", "Raft", (("API_KEY", "key", True),)),
    PlatformFacts("MSGRAPH", "Microsoft Graph webhook", (
        ("CLIENT_STATE", "secret sent with each notification", True),
        ("WEBHOOK_PORT", "port where notifications arrive", False),
    ), name="msgraph_webhook"),
)  # fmt: skip

ROOT_BLOCKS = frozenset(facts.platform for facts in PLATFORMS)
"""Platforms whose settings may be at the root of the file."""

_WEBHOOK = PlatformFacts("WEBHOOK", "Webhooks", sender_role="guest")
"""Not a messaging platform: it has no users to list."""


FACTS = {facts.platform: facts for facts in reversed((*PLATFORMS, _WEBHOOK))}
"""The facts of each platform; of several entries, the first."""


def facts_of(platform: str) -> PlatformFacts:
    unknown = PlatformFacts(platform.upper().replace("-", "_"), platform)
    return FACTS.get(platform, unknown)
