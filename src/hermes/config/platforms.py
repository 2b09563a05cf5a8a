"""Environment variables of the messaging platforms."""

from msgspec import Struct


class PlatformVariables(Struct, frozen=True):
    """The variables of a platform: suffix, description, whether it is a secret."""

    prefix: str
    label: str
    variables: tuple[tuple[str, str, bool], ...]
    url: str = ""


PLATFORMS = (
    PlatformVariables(
        "TELEGRAM",
        "Telegram",
        (
            ("BOT_TOKEN", "token of the bot", True),
            ("GROUP_ALLOWED_CHATS", "groups in which everyone may talk to the agent", False),
            ("WEBHOOK_URL", "public URL for updates instead of polling", False),
            ("WEBHOOK_SECRET", "secret that Telegram sends with each update", True),
        ),
        "https://t.me/BotFather",
    ),
    PlatformVariables(
        "DISCORD",
        "Discord",
        (
            ("BOT_TOKEN", "token of the bot", True),
            ("ALLOWED_ROLES", "roles whose members may talk to the agent", False),
            ("REQUIRE_MENTION", "whether to answer in groups only when mentioned", False),
        ),
        "https://discord.com/developers/applications",
    ),
    PlatformVariables(
        "SLACK",
        "Slack",
        (
            ("BOT_TOKEN", "bot token (xoxb-)", True),
            ("APP_TOKEN", "app token for the socket (xapp-)", True),
        ),
        "https://api.slack.com/apps",
    ),
    PlatformVariables(
        "WHATSAPP",
        "WhatsApp",
        (
            ("ENABLED", "whether the bridge is started", False),
            ("MODE", "own number or a number for the bot", False),
        ),
    ),
    PlatformVariables(
        "WHATSAPP_CLOUD",
        "WhatsApp Cloud",
        (
            ("ACCESS_TOKEN", "access token", True),
            ("PHONE_NUMBER_ID", "id of the number", False),
            ("VERIFY_TOKEN", "token of the webhook", True),
            ("APP_SECRET", "secret of the app", True),
        ),
        "https://developers.facebook.com/apps",
    ),
    PlatformVariables(
        "SIGNAL",
        "Signal",
        (
            ("HTTP_URL", "address of the signal-cli daemon", False),
            ("ACCOUNT", "number of the account", False),
        ),
    ),
    PlatformVariables(
        "MATRIX",
        "Matrix",
        (
            ("HOMESERVER", "address of the homeserver", False),
            ("USER_ID", "full name of the account", False),
            ("ACCESS_TOKEN", "access token", True),
            ("PASSWORD", "password, when there is no token", True),
            ("RECOVERY_KEY", "key to recover encrypted messages", True),
            ("ENCRYPTION", "whether encrypted rooms are read", False),
            ("DEVICE_ID", "id of the device", False),
        ),
    ),
    PlatformVariables(
        "MATTERMOST",
        "Mattermost",
        (
            ("URL", "address of the server", False),
            ("TOKEN", "token of the bot", True),
        ),
    ),
    PlatformVariables(
        "EMAIL",
        "E-mail",
        (
            ("ADDRESS", "address of the agent", False),
            ("PASSWORD", "password of the mailbox", True),
            ("IMAP_HOST", "server for reading", False),
            ("IMAP_PORT", "port for reading", False),
            ("SMTP_HOST", "server for sending", False),
            ("SMTP_PORT", "port for sending", False),
            ("HOME_ADDRESS", "default address for outgoing messages", False),
        ),
    ),
    PlatformVariables(
        "SMS",
        "SMS",
        (
            ("WEBHOOK_PORT", "port where messages arrive", False),
            ("WEBHOOK_URL", "public address where messages arrive", False),
        ),
    ),
    PlatformVariables(
        "TWILIO",
        "Twilio",
        (
            ("ACCOUNT_SID", "id of the account", False),
            ("AUTH_TOKEN", "token of the account", True),
            ("PHONE_NUMBER", "number of the agent", False),
        ),
        "https://console.twilio.com",
    ),
    PlatformVariables(
        "IRC",
        "IRC",
        (
            ("SERVER", "server", False),
            ("PORT", "port", False),
            ("NICKNAME", "nick of the agent", False),
            ("CHANNEL", "channel to join", False),
            ("SERVER_PASSWORD", "password of the server", True),
            ("NICKSERV_PASSWORD", "password of the nick", True),
        ),
    ),
    PlatformVariables(
        "LINE",
        "LINE",
        (
            ("CHANNEL_ACCESS_TOKEN", "access token", True),
            ("CHANNEL_SECRET", "secret of the channel", True),
        ),
        "https://developers.line.biz/console",
    ),
    PlatformVariables(
        "TEAMS",
        "Microsoft Teams",
        (
            ("CLIENT_ID", "id of the app", False),
            ("CLIENT_SECRET", "secret of the app", True),
            ("TENANT_ID", "id of the tenant", False),
        ),
        "https://dev.teams.microsoft.com",
    ),
    PlatformVariables(
        "GOOGLE_CHAT",
        "Google Chat",
        (
            ("SERVICE_ACCOUNT_JSON", "service account, as JSON or a file", True),
            ("PROJECT_ID", "project", False),
            ("SUBSCRIPTION_NAME", "subscription that delivers the messages", False),
        ),
    ),
    PlatformVariables(
        "FEISHU",
        "Feishu",
        (
            ("APP_ID", "id of the app", False),
            ("APP_SECRET", "secret of the app", True),
            ("ENCRYPT_KEY", "key of the events", True),
            ("VERIFICATION_TOKEN", "token of the events", True),
            ("DOMAIN", "feishu or lark", False),
        ),
        "https://open.feishu.cn/app",
    ),
    PlatformVariables(
        "DINGTALK",
        "DingTalk",
        (
            ("CLIENT_ID", "id of the app", False),
            ("CLIENT_SECRET", "secret of the app", True),
        ),
    ),
    PlatformVariables(
        "WECOM",
        "WeCom",
        (
            ("BOT_ID", "id of the bot", False),
            ("SECRET", "secret of the bot", True),
        ),
    ),
    PlatformVariables(
        "WECOM_CALLBACK",
        "WeCom callback",
        (
            ("CORP_ID", "id of the company", False),
            ("CORP_SECRET", "secret of the app", True),
            ("AGENT_ID", "id of the app", False),
            ("TOKEN", "token of the callback", True),
            ("ENCODING_AES_KEY", "key of the callback", True),
        ),
    ),
    PlatformVariables(
        "WEIXIN",
        "Weixin",
        (
            ("ACCOUNT_ID", "id of the account", False),
            ("TOKEN", "token of the account", True),
        ),
    ),
    PlatformVariables(
        "QQ",
        "QQ",
        (
            ("APP_ID", "id of the app", False),
            ("CLIENT_SECRET", "secret of the app", True),
            ("GROUP_ALLOWED_USERS", "who may talk to the agent in groups", False),
        ),
    ),
    PlatformVariables(
        "YUANBAO",
        "Yuanbao",
        (
            ("APP_ID", "id of the app", False),
            ("APP_SECRET", "secret of the app", True),
        ),
    ),
    PlatformVariables(
        "BLUEBUBBLES",
        "BlueBubbles (iMessage)",
        (
            ("SERVER_URL", "address of the server", False),
            ("PASSWORD", "password of the server", True),
        ),
    ),
    PlatformVariables(
        "HASS",
        "Home Assistant",
        (
            ("URL", "address of Home Assistant", False),
            ("TOKEN", "long-lived token", True),
        ),
    ),
    PlatformVariables(
        "NTFY",
        "ntfy",
        (
            ("SERVER_URL", "address of the server", False),
            ("TOPIC", "topic to listen on", False),
            ("TOKEN", "token, when the topic needs one", True),
        ),
    ),
    PlatformVariables(
        "SIMPLEX",
        "SimpleX",
        (("WS_URL", "address of the SimpleX program", False),),
    ),
    PlatformVariables(
        "PHOTON",
        "Photon (iMessage)",
        (("API_KEY", "key", True),),
    ),
    PlatformVariables(
        "RAFT",
        "Raft",
        (("API_KEY", "key", True),),
    ),
    PlatformVariables(
        "MSGRAPH",
        "Microsoft Graph webhook",
        (
            ("CLIENT_STATE", "secret that comes with each notice", True),
            ("WEBHOOK_PORT", "port where notices arrive", False),
        ),
    ),
)
