"""Build session keys from chat ids; existing keys stay byte-identical."""

from msgspec import Struct

DIRECT_CHAT = "dm"
_DEFAULT_PROFILES = ("", "default")


class SessionSource(Struct, kw_only=True):
    """Where a message came from, as reported by its platform."""

    platform: str
    chat_id: str = ""
    chat_type: str = DIRECT_CHAT
    chat_name: str | None = None
    user_id: str | None = None
    user_name: str | None = None
    thread_id: str | None = None
    chat_topic: str | None = None
    user_id_alt: str | None = None
    chat_id_alt: str | None = None
    is_bot: bool = False
    scope_id: str | None = None
    guild_id: str | None = None
    parent_chat_id: str | None = None
    message_id: str | None = None
    profile: str | None = None


class ChatId(Struct, frozen=True, kw_only=True):
    space: str
    platform: str
    kind: str
    chat: str = ""
    thread: str = ""
    user: str = ""

    @property
    def key(self) -> str:
        """`agent:<profile or main>:<platform>:<kind>:<chat>[:<thread>][:<user>]`."""
        head = f"agent:{self.space}:{self.platform}:{self.kind}"
        return ":".join([head, *(part for part in (self.chat, self.thread, self.user) if part)])


def platform_in(key: str) -> str:
    """The platform in a session key; empty if there is none."""
    return [*key.split(":", 3), "", "", ""][2]


def build_session_key(
    source: SessionSource,
    *,
    group_sessions_per_user: bool = True,
    thread_sessions_per_user: bool = False,
    profile: str | None = None,
) -> str:
    return chat_id_of(
        source,
        group_sessions_per_user=group_sessions_per_user,
        thread_sessions_per_user=thread_sessions_per_user,
        profile=profile,
    ).key


def chat_id_of(
    source: SessionSource,
    *,
    group_sessions_per_user: bool = True,
    thread_sessions_per_user: bool = False,
    profile: str | None = None,
) -> ChatId:
    """Compare chats by these parts: two chats have the same key if an id contains a colon."""
    per_user = thread_sessions_per_user if source.thread_id else group_sessions_per_user
    if source.chat_type == DIRECT_CHAT:
        per_user = not source.chat_id
    user_only = source.chat_type == DIRECT_CHAT and not source.chat_id and bool(source.user_id)
    return ChatId(
        space="main" if profile is None or profile in _DEFAULT_PROFILES else profile,
        platform=source.platform,
        kind=source.chat_type,
        chat=source.chat_id,
        thread="" if user_only else source.thread_id or "",
        user=(source.user_id or "") if per_user else "",
    )
