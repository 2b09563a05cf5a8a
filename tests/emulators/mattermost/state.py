"""The state of the emulated Mattermost: people, channels, posts, files and what is shown."""

import random
from collections.abc import Callable, Mapping

import msgspec
from msgspec import Struct, field

from emulators.mattermost.limits import RateLimit
from hermes.kit.clock import SystemClock
from support.chat_platform.state import NO_FAULTS, FaultRates

BOT_NAME = "hermes"
TOKEN = "tok3n0000000000000000000000"
TEAM = "team1111111111111111111111"


def new_id(kind: str, number: int) -> str:
    """An id as the server makes them: 26 lower-case letters and digits."""
    return f"{kind}{number:0{26 - len(kind)}d}"


BOT = new_id("bot", 1)
ANN = new_id("ann", 1)


class EmulatedChannel(Struct):
    id: str
    type: str
    members: set[str]
    display_name: str = ""
    last_post_at: int = 0
    delete_at: int = 0

    def as_json(self) -> dict[str, object]:
        return {
            "id": self.id, "type": self.type, "display_name": self.display_name,
            "name": self.display_name.lower(), "team_id": "" if self.type == "D" else TEAM,
            "last_post_at": self.last_post_at, "delete_at": self.delete_at,
        }  # fmt: skip


class EmulatedFile(Struct):
    id: str
    name: str
    data: bytes
    media_type: str = "application/octet-stream"

    def as_json(self) -> dict[str, object]:
        return {
            "id": self.id, "name": self.name, "size": len(self.data),
            "mime_type": self.media_type,
        }  # fmt: skip


class EmulatedPost(Struct):
    id: str
    channel: str
    user: str
    text: str
    create_at: int
    update_at: int
    root: str = ""
    type: str = ""
    edit_at: int = 0
    delete_at: int = 0
    files: list[EmulatedFile] = field(default_factory=list[EmulatedFile])
    forms: list[str] = field(default_factory=list[str])
    reactions: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])

    def as_json(self) -> dict[str, object]:
        post: dict[str, object] = {
            "id": self.id, "channel_id": self.channel, "user_id": self.user,
            "root_id": self.root, "message": self.text, "type": self.type,
            "create_at": self.create_at, "update_at": self.update_at, "edit_at": self.edit_at,
            "delete_at": self.delete_at, "props": {}, "metadata": {},
        }  # fmt: skip
        if self.files:
            post["file_ids"] = [one.id for one in self.files]
            post["metadata"] = {"files": [one.as_json() for one in self.files]}
        return post


Event = tuple[str, Mapping[str, object], str]
"""Its name, its data, and the channel whose members get it."""


class EmulatedMattermost:
    """One team with a bot. `emit` sends an event to the bot's connections."""

    def __init__(
        self, faults: FaultRates = NO_FAULTS, seed: int = 0, limit: RateLimit | None = None
    ) -> None:
        self.faults = faults
        self.limit = limit
        self.chance = random.Random(seed)  # noqa: S311 - faults of tests
        self.on_change: Callable[[], None] = lambda: None
        self.emit: Callable[[Event], None] = lambda event: None
        self.users = {BOT: BOT_NAME, ANN: "ann"}
        self.channels: dict[str, EmulatedChannel] = {}
        self.posts: dict[str, EmulatedPost] = {}
        self.files: dict[str, EmulatedFile] = {}
        self.changes: list[EmulatedPost] = []
        """The bot's posts, again at each change."""
        self.typing: list[tuple[str, str]] = []
        self.in_team = True
        self.since_limit = 1000
        self.pending: dict[str, str] = {}
        """Posts by the `pending_post_id` that they were created with."""
        self._clock = SystemClock()
        self._time = 0

    def now(self) -> int:
        """Milliseconds; never the same twice."""
        self._time = max(int(self._clock.now().timestamp() * 1000), self._time + 1)
        return self._time

    def add_channel(self, name: str, *members: str, kind: str = "O") -> str:
        number = new_id("ch", len(self.channels))
        self.channels[number] = EmulatedChannel(number, kind, {*members}, name, self.now())
        return number

    def direct(self, person: str = ANN) -> str:
        """The channel of the person and the bot."""
        both = {BOT, person}
        found = (one for one in self.channels.values() if one.type == "D" and one.members == both)
        known = next(found, None)
        return known.id if known is not None else self.add_channel("", *both, kind="D")

    def add_file(self, name: str, data: bytes, media_type: str) -> EmulatedFile:
        file = EmulatedFile(new_id("file", len(self.files)), name, data, media_type)
        self.files[file.id] = file
        return file

    def say(
        self,
        channel: str,
        text: str,
        *,
        person: str = ANN,
        root: str = "",
        kind: str = "",
        files: list[EmulatedFile] | None = None,
    ) -> EmulatedPost:
        """Write a post, as a person, the bot, or the system with a type."""
        at = self.now()
        post = EmulatedPost(
            new_id("post", len(self.posts)), channel, person, text, at, at, root, kind
        )
        post.files = files or []
        post.forms.append(text)
        self.posts[post.id] = post
        self.channels[channel].last_post_at = at
        self.emit_post("posted", post)
        self._changed(post)
        return post

    def edit(self, number: str, text: str) -> None:
        post = self.posts[number]
        post.edit_at = post.update_at = self.now()
        post.text = text
        post.forms.append(text)
        self.emit_post("post_edited", post)
        self._changed(post)

    def delete(self, number: str) -> None:
        post = self.posts[number]
        post.delete_at = post.update_at = self.now()
        self.emit_post("post_deleted", post)
        self._changed(post)

    def react(self, number: str, name: str, *, person: str = ANN, removed: bool = False) -> None:
        post = self.posts[number]
        (post.reactions.discard if removed else post.reactions.add)((person, name))
        post.update_at = self.now()
        reaction = {
            "user_id": person, "post_id": number, "emoji_name": name, "create_at": post.update_at
        }  # fmt: skip
        event = "reaction_removed" if removed else "reaction_added"
        self.emit((event, {"reaction": _text(reaction)}, post.channel))
        self.on_change()

    def emit_post(self, event: str, post: EmulatedPost) -> None:
        data: dict[str, object] = {"post": _text(post.as_json())}
        if event == "posted":
            channel = self.channels[post.channel]
            data["channel_type"] = channel.type
            data["sender_name"] = f"@{self.users.get(post.user, '')}"
        self.emit((event, data, post.channel))

    def shown(self, channel: str) -> list[EmulatedPost]:
        """The bot's posts in a channel."""
        return [
            one
            for one in self.posts.values()
            if one.channel == channel and one.user == BOT and not one.delete_at
        ]

    def _changed(self, post: EmulatedPost) -> None:
        if post.user == BOT:
            self.changes.append(post)
        self.on_change()


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()
