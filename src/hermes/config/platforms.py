"""Environment variables of the messaging platforms."""

from msgspec import Struct


class PlatformVariables(Struct, frozen=True):
    """A platform's variables: suffix, description, and whether it is a secret."""

    prefix: str
    label: str
    variables: tuple[tuple[str, str, bool], ...]
    url: str = ""


PLATFORMS = (
    PlatformVariables("TELEGRAM", "Telegram", (
        ("BOT_TOKEN", "bot token", True),
        ("GROUP_ALLOWED_CHATS", "groups in which everyone may talk to the agent", False),
        ("WEBHOOK_URL", "public URL for updates instead of polling", False),
        ("WEBHOOK_SECRET", "secret that Telegram sends with each update", True),
    ), "https://t.me/BotFather"),
    PlatformVariables("DISCORD", "Discord", (
        ("BOT_TOKEN", "bot token", True),
        ("ALLOWED_ROLES", "roles whose members may talk to the agent", False),
        ("REQUIRE_MENTION", "whether to answer in groups only when mentioned", False),
    ), "https://discord.com/developers/applications"),
    PlatformVariables("SLACK", "Slack", (
        ("BOT_TOKEN", "bot token (xoxb-)", True),
        ("APP_TOKEN", "app token for the socket (xapp-)", True),
    ), "https://api.slack.com/apps"),
    PlatformVariables("WHATSAPP", "WhatsApp", (
        ("ENABLED", "whether the bridge is started", False),
        ("MODE", "own number or a number for the bot", False),
    )),
    PlatformVariables("WHATSAPP_CLOUD", "WhatsApp Cloud", (
        ("ACCESS_TOKEN", "access token", True),
        ("PHONE_NUMBER_ID", "phone number id", False),
        ("VERIFY_TOKEN", "webhook token", True),
        ("APP_SECRET", "app secret", True),
    ), "https://developers.facebook.com/apps"),
    PlatformVariables("SIGNAL", "Signal", (
        ("HTTP_URL", "address of the signal-cli daemon", False),
        ("ACCOUNT", "account phone number", False),
    )),
    PlatformVariables("MATRIX", "Matrix", (
        ("HOMESERVER", "homeserver address", False),
        ("USER_ID", "full account name", False),
        ("ACCESS_TOKEN", "access token", True),
        ("PASSWORD", "password, if there is no token", True),
        ("RECOVERY_KEY", "key to recover encrypted messages", True),
        ("ENCRYPTION", "whether encrypted rooms are read", False),
        ("DEVICE_ID", "device id", False),
    )),
    PlatformVariables("MATTERMOST", "Mattermost", (
        ("URL", "server address", False),
        ("TOKEN", "bot token", True),
    )),
    PlatformVariables("EMAIL", "E-mail", (
        ("ADDRESS", "the agent's address", False),
        ("PASSWORD", "mailbox password", True),
        ("IMAP_HOST", "server for reading", False),
        ("IMAP_PORT", "port for reading", False),
        ("SMTP_HOST", "server for sending", False),
        ("SMTP_PORT", "port for sending", False),
        ("HOME_ADDRESS", "default address for outgoing messages", False),
    )),
    PlatformVariables("SMS", "SMS", (
        ("WEBHOOK_PORT", "port where messages arrive", False),
        ("WEBHOOK_URL", "public address where messages arrive", False),
    )),
    PlatformVariables("TWILIO", "Twilio", (
        ("ACCOUNT_SID", "account id", False),
        ("AUTH_TOKEN", "account token", True),
        ("PHONE_NUMBER", "the agent's phone number", False),
    ), "https://console.twilio.com"),
    PlatformVariables("IRC", "IRC", (
        ("SERVER", "server", False),
        ("PORT", "port", False),
        ("NICKNAME", "the agent's nickname", False),
        ("CHANNEL", "channel to join", False),
        ("SERVER_PASSWORD", "server password", True),
        ("NICKSERV_PASSWORD", "nickname password", True),
    )),
    PlatformVariables("LINE", "LINE", (
        ("CHANNEL_ACCESS_TOKEN", "access token", True),
        ("CHANNEL_SECRET", "channel secret", True),
    ), "https://developers.line.biz/console"),
    PlatformVariables("TEAMS", "Microsoft Teams", (
        ("CLIENT_ID", "app id", False),
        ("CLIENT_SECRET", "app secret", True),
        ("TENANT_ID", "tenant id", False),
    ), "https://dev.teams.microsoft.com"),
    PlatformVariables("GOOGLE_CHAT", "Google Chat", (
        ("SERVICE_ACCOUNT_JSON", "service account, as JSON or a file", True),
        ("PROJECT_ID", "project", False),
        ("SUBSCRIPTION_NAME", "subscription that delivers the messages", False),
    )),
    PlatformVariables("FEISHU", "Feishu", (
        ("APP_ID", "app id", False),
        ("APP_SECRET", "app secret", True),
        ("ENCRYPT_KEY", "event encryption key", True),
        ("VERIFICATION_TOKEN", "event verification token", True),
        ("DOMAIN", "feishu or lark", False),
    ), "https://open.feishu.cn/app"),
    PlatformVariables("DINGTALK", "DingTalk", (
        ("CLIENT_ID", "app id", False),
        ("CLIENT_SECRET", "app secret", True),
    )),
    PlatformVariables("WECOM", "WeCom", (
        ("BOT_ID", "bot id", False),
        ("SECRET", "bot secret", True),
    )),
    PlatformVariables("WECOM_CALLBACK", "WeCom callback", (
        ("CORP_ID", "company id", False),
        ("CORP_SECRET", "app secret", True),
        ("AGENT_ID", "app id", False),
        ("TOKEN", "callback token", True),
        ("ENCODING_AES_KEY", "callback encryption key", True),
    )),
    PlatformVariables("WEIXIN", "Weixin", (
        ("ACCOUNT_ID", "account id", False),
        ("TOKEN", "account token", True),
    )),
    PlatformVariables("QQ", "QQ", (
        ("APP_ID", "app id", False),
        ("CLIENT_SECRET", "app secret", True),
        ("GROUP_ALLOWED_USERS", "who may talk to the agent in groups", False),
    )),
    PlatformVariables("YUANBAO", "Yuanbao", (
        ("APP_ID", "app id", False),
        ("APP_SECRET", "app secret", True),
    )),
    PlatformVariables("BLUEBUBBLES", "BlueBubbles (iMessage)", (
        ("SERVER_URL", "server address", False),
        ("PASSWORD", "server password", True),
    )),
    PlatformVariables("HASS", "Home Assistant", (
        ("URL", "address of Home Assistant", False),
        ("TOKEN", "long-lived token", True),
    )),
    PlatformVariables("NTFY", "ntfy", (
        ("SERVER_URL", "server address", False),
        ("TOPIC", "topic to listen on", False),
        ("TOKEN", "token, if the topic needs one", True),
    )),
    PlatformVariables("SIMPLEX", "SimpleX", (("WS_URL", "address of the SimpleX program", False),)),
    PlatformVariables("PHOTON", "Photon (iMessage)", (("API_KEY", "key", True),)),
    PlatformVariables("RAFT", "Raft", (("API_KEY", "key", True),)),
    PlatformVariables("MSGRAPH", "Microsoft Graph webhook", (
        ("CLIENT_STATE", "secret sent with each notification", True),
        ("WEBHOOK_PORT", "port where notifications arrive", False),
    )),
)  # fmt: skip
