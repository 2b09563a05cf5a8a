"""Objects of Mattermost's API, with the fields that the channel reads."""

from collections.abc import Mapping

from msgspec import Raw, Struct

DIRECT = "D"
WRITTEN = frozenset({"", "me", "slack_attachment"})
"""Types of posts that people wrote; all others are system notices."""


class FileInfo(Struct, frozen=True, kw_only=True):
    id: str
    name: str = ""
    size: int = 0
    mime_type: str = ""


class PostMetadata(Struct, frozen=True, kw_only=True):
    files: tuple[FileInfo, ...] | None = None


class Post(Struct, frozen=True, kw_only=True):
    """A message; times are in milliseconds, 0 if it never happened."""

    id: str
    channel_id: str
    user_id: str = ""
    root_id: str = ""
    message: str = ""
    type: str = ""
    create_at: int = 0
    update_at: int = 0
    edit_at: int = 0
    delete_at: int = 0
    file_ids: tuple[str, ...] | None = None
    props: Mapping[str, object] | None = None
    metadata: PostMetadata | None = None

    @property
    def from_program(self) -> bool:
        props = self.props or {}
        return any(props.get(name) == "true" for name in ("from_bot", "from_webhook"))


class PostList(Struct, frozen=True, kw_only=True):
    """Posts by id; `order` has the newest first."""

    order: tuple[str, ...] | None = None
    posts: Mapping[str, Raw] | None = None


class Channel(Struct, frozen=True, kw_only=True):
    id: str
    type: str = ""
    display_name: str = ""
    name: str = ""
    team_id: str = ""
    last_post_at: int = 0


class User(Struct, frozen=True, kw_only=True):
    id: str
    username: str = ""
    is_bot: bool = False


class Team(Struct, frozen=True, kw_only=True):
    id: str
    display_name: str = ""


class Reaction(Struct, frozen=True, kw_only=True):
    user_id: str
    post_id: str
    emoji_name: str
    create_at: int = 0


class Upload(Struct, frozen=True, kw_only=True):
    file_infos: tuple[FileInfo, ...] = ()


class Broadcast(Struct, frozen=True, kw_only=True):
    channel_id: str = ""


class Frame(Struct, frozen=True, kw_only=True):
    """What the websocket sends: a numbered event, or the reply to an action."""

    event: str = ""
    data: Mapping[str, object] | None = None
    broadcast: Broadcast | None = None
    seq: int = 0
    status: str = ""
    seq_reply: int = 0

    def text(self, name: str) -> str:
        value = (self.data or {}).get(name)
        return value if isinstance(value, str) else ""
