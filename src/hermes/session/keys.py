"""From a place in a chat to the name of its session; existing names stay byte-identical."""

from msgspec import Struct

DIRECT = "dm"
_DEFAULT_PROFILES = (None, "", "default")


class SessionSource(Struct, kw_only=True):
    """Where a message came from, as its platform tells it."""

    platform: str
    chat_id: str = ""
    chat_type: str = DIRECT
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


def build_session_key(
    source: SessionSource,
    *,
    group_sessions_per_user: bool = True,
    thread_sessions_per_user: bool = False,
    profile: str | None = None,
) -> str:
    """`agent:<profile or main>:<platform>:<kind>:<chat>[:<thread>][:<user>]`."""
    space = "main" if profile in _DEFAULT_PROFILES else profile
    head = f"agent:{space}:{source.platform}:{source.chat_type}"
    if source.chat_type == DIRECT:
        places = _direct(source)
    else:
        per_user = thread_sessions_per_user if source.thread_id else group_sessions_per_user
        places = [source.chat_id, source.thread_id, source.user_id if per_user else None]
    return ":".join([head, *(place for place in places if place)])


def _direct(source: SessionSource) -> list[str | None]:
    if source.chat_id:
        return [source.chat_id, source.thread_id]
    return [source.user_id or source.thread_id]
