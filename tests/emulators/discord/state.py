"""The state of the emulator: bots, servers, channels and messages, and what people do in them."""

import random
import re
from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct, field

from hermes.kit.clock import Clock, SystemClock
from support.chat_platform.state import NO_FAULTS, FaultRates

Json: TypeAlias = dict[str, object]

EPOCH_MS = 1_420_070_400_000
MESSAGE_CONTENT_LIMITED = 1 << 19
TEXT, DIRECT, VOICE, THREAD, FORUM = 0, 1, 2, 11, 15
VOICE_MESSAGE = 1 << 13
INTERACTION_SECONDS = 3.0
TOKEN_SECONDS = 15 * 60.0
_MENTION = re.compile(r"<@!?(\d+)>")


class EmulatedBot(Struct):
    """One bot account and its application."""

    token: str
    id: str
    application: str
    username: str = "hermes"
    flags: int = MESSAGE_CONTENT_LIMITED
    commands: list[Json] = field(default_factory=list[Json])
    starts_left: int = 1000
    started_at: float = float("-inf")

    @property
    def user(self) -> Json:
        return {
            "id": self.id, "username": self.username, "discriminator": "0000", "avatar": None,
            "global_name": None, "bot": True,
        }  # fmt: skip


class EmulatedMessage(Struct):
    """A message with all its texts so far, its files, and reactions as person and emoji."""

    object: Json
    forms: list[str]
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    reactions: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    @property
    def id(self) -> str:
        return str(self.object["id"])

    @property
    def text(self) -> str:
        return self.forms[-1]

    @property
    def author(self) -> str:
        return str(_table(self.object["author"])["id"])

    def buttons(self) -> dict[str, str]:
        """Values of buttons and of entries in menus, with their labels."""
        found: dict[str, str] = {}
        for row in _tables(self.object.get("components")):
            for one in _tables(row["components"]):
                for option in _tables(one.get("options")):
                    found[str(option["value"])] = str(option["label"])
                if one["type"] == 2:
                    found[str(one["custom_id"])] = str(one["label"])
        return found


class EmulatedInteraction(Struct):
    """`response` is the answer within the deadline."""

    object: Json
    created_at: float
    response: Json | None = None


class EmulatedDiscord:
    """All bots see the same servers. `on_event` gets what happens, `on_change` follows it."""

    def __init__(
        self,
        *,
        faults: FaultRates = NO_FAULTS,
        seed: int = 0,
        clock: Clock | None = None,
        limited: bool = True,
    ) -> None:
        self.faults = faults
        self.chance = random.Random(seed)  # noqa: S311 - must be repeatable
        self.clock: Clock = clock or SystemClock()
        self.limited = limited
        self.bots: dict[str, EmulatedBot] = {}
        self.guilds: dict[str, Json] = {}
        self.channels: dict[str, Json] = {}
        self.messages: dict[tuple[str, str], EmulatedMessage] = {}
        self.changes: list[EmulatedMessage] = []
        """Messages of bots, again at each change."""
        self.interactions: dict[str, EmulatedInteraction] = {}
        self.nonces: dict[tuple[str, str], tuple[str, str]] = {}
        self.uploads: dict[str, bytes] = {}
        self.typing: set[str] = set()
        self.unwelcome: set[str] = set()
        """Channels in which bots may not write."""
        self.threadless: set[str] = set()
        """Channels in which bots may not open threads."""
        self.known_people: set[str] = set()
        self.gateway_url = ""
        self.roles: dict[tuple[str, str], list[str]] = {}
        self.file_url = ""
        self.on_event: Callable[[str, Json], None] = _ignore_event
        self.on_change: Callable[[], None] = _ignore
        self._last_id = 0

    def add_bot(self, token: str, **options: object) -> EmulatedBot:
        number = self.snowflake()
        bot = EmulatedBot(token, number, number, **options)  # pyright: ignore[reportArgumentType]
        self.bots[token] = bot
        return bot

    @property
    def bot(self) -> EmulatedBot:
        """The first bot."""
        return next(iter(self.bots.values()))

    def snowflake(self) -> str:
        """Ids grow, and contain the time."""
        now = int(self.clock.now().timestamp() * 1000) - EPOCH_MS
        self._last_id = max(self._last_id + 1, now << 22)
        return str(self._last_id)

    # Places

    def add_guild(self, name: str = "Server") -> str:
        number = self.snowflake()
        self.guilds[number] = {"id": number, "name": name, "owner_id": "1"}
        return number

    def add_channel(
        self, guild: str, name: str = "general", kind: int = TEXT, **more: object
    ) -> str:
        number = self.snowflake()
        self.channels[number] = {
            "id": number, "type": kind, "guild_id": guild, "name": name, "position": 0,
            "permission_overwrites": [], "nsfw": False, "parent_id": None,
            "last_message_id": None, **more,
        }  # fmt: skip
        self.emit("CHANNEL_CREATE", self.channels[number])
        return number

    def direct(self, person: str) -> str:
        """The channel of direct messages between a person and the first bot."""
        for channel in self.channels.values():
            recipients = _tables(channel.get("recipients"))
            if channel["type"] == DIRECT and recipients and recipients[0]["id"] == person:
                return str(channel["id"])
        number = self.snowflake()
        self.channels[number] = {
            "id": number, "type": DIRECT, "recipients": [person_object(person)],
            "last_message_id": None,
        }  # fmt: skip
        return number

    def open_thread(
        self, parent: str, name: str, owner: str, *, message: str = "", person: str = ""
    ) -> Json:
        """Open a thread; from a message it has the message's id."""
        number = message or self.snowflake()
        thread: Json = {
            "id": number, "type": THREAD, "guild_id": self.channels[parent]["guild_id"],
            "parent_id": parent, "name": name, "owner_id": owner or person,
            "last_message_id": None, "message_count": 0, "member_count": 1,
            "rate_limit_per_user": 0,
            "thread_metadata": {
                "archived": False, "auto_archive_duration": 1440, "locked": False,
                "archive_timestamp": "2026-01-01T00:00:00+00:00",
            },
        }  # fmt: skip
        self.channels[number] = thread
        self.emit("THREAD_CREATE", {**thread, "newly_created": True})
        return thread

    def posts(self, channel: str) -> list[EmulatedMessage]:
        """The messages of bots in a channel, oldest first."""
        own = {bot.id for bot in self.bots.values()}
        return [
            one for (at, _), one in self.messages.items() if at == channel and one.author in own
        ]

    def history(self, channel: str) -> list[EmulatedMessage]:
        found = [one for (at, _), one in self.messages.items() if at == channel]
        return sorted(found, key=lambda one: int(one.id))

    # What people do

    def say(
        self,
        channel: str,
        text: str = "",
        *,
        person: str,
        reply_to: str = "",
        files: dict[str, tuple[bytes, str]] | None = None,
        **more: object,
    ) -> str:
        """Write a message with any further fields; return its id."""
        self.known_people.add(person)
        attachments: list[Json] = []
        for name, (data, kind) in (files or {}).items():
            number = self.snowflake()
            self.uploads[number] = data
            attachments.append(
                {"id": number, "filename": name, "size": len(data), "content_type": kind,
                 "url": f"{self.file_url}/{number}/{name}", "proxy_url": ""}
            )  # fmt: skip
        content: Json = {"content": text, "attachments": attachments, **more}
        if reply_to:
            content |= self.reply_fields(channel, reply_to)
        return self.add_message(channel, person_object(person), content).id

    def edit(self, channel: str, message: str, text: str) -> None:
        found = self.messages[channel, message]
        found.forms.append(text)
        found.object |= {
            "content": text, "edited_timestamp": self.timestamp(),
            "mentions": self._mentions(text),
        }  # fmt: skip
        self._emit_message("MESSAGE_UPDATE", found)

    def delete(self, channel: str, message: str) -> None:
        del self.messages[channel, message]
        self.emit("MESSAGE_DELETE", {"id": message, **self._where(channel)})

    def react(self, channel: str, message: str, emoji: str, person: str) -> None:
        self.messages[channel, message].reactions.append((person, emoji))
        self.emit("MESSAGE_REACTION_ADD", {
            "user_id": person, "message_id": message, "emoji": {"id": None, "name": emoji},
            "burst": False, "type": 0, **self._where(channel, person),
        })  # fmt: skip

    def press(self, channel: str, message: str, value: str, person: str) -> str:
        """Press a button, or choose an entry of a menu; return the interaction's id."""
        found = self.messages[channel, message]
        data: Json = {"component_type": 2, "custom_id": value}
        for row in _tables(found.object.get("components")):
            for one in _tables(row["components"]):
                if one["type"] == 3:
                    data = {"component_type": 3, "custom_id": one["custom_id"], "values": [value]}
        return self._interact(channel, 3, data, person, message=found.object)

    def command(self, channel: str, name: str, person: str, arguments: str = "") -> str:
        """Choose a command of Discord's own list; return the interaction's id."""
        options = [{"type": 3, "name": "arguments", "value": arguments}] if arguments else []
        data: Json = {"id": self.snowflake(), "type": 1, "name": name, "options": options}
        return self._interact(channel, 2, data, person)

    # Messages

    def add_message(
        self, channel: str, author: Json, content: Json, files: dict[str, bytes] | None = None
    ) -> EmulatedMessage:
        text = str(content.get("content") or "")
        message: Json = {
            "id": self.snowflake(), "channel_id": channel, "author": author, "type": 0,
            "timestamp": self.timestamp(), "edited_timestamp": None, "tts": False,
            "mention_everyone": False, "mentions": self._mentions(text), "mention_roles": [],
            "attachments": [], "embeds": [], "pinned": False, "components": [], "flags": 0,
            **content, "content": text,
        }  # fmt: skip
        found = EmulatedMessage(message, [text], files or {})
        self.messages[channel, found.id] = found
        self.channels[channel]["last_message_id"] = found.id
        self.typing.discard(channel)
        self._emit_message("MESSAGE_CREATE", found)
        if author.get("bot"):
            self.changed(found)
        return found

    def changed(self, post: EmulatedMessage) -> None:
        self.changes.append(post)
        self.on_change()

    def emit(self, name: str, data: Json) -> None:
        self.on_event(name, data)
        self.on_change()

    def emit_again(self, message: EmulatedMessage) -> None:
        """Send the event of a message once more."""
        self._emit_message("MESSAGE_CREATE", message)

    def emit_update(self, message: EmulatedMessage) -> None:
        self._emit_message("MESSAGE_UPDATE", message)

    def timestamp(self) -> str:
        return self.clock.now().isoformat()

    def is_overdue(self, interaction: EmulatedInteraction) -> bool:
        return self.clock.monotonic() - interaction.created_at > INTERACTION_SECONDS

    def has_expired(self, interaction: EmulatedInteraction) -> bool:
        return self.clock.monotonic() - interaction.created_at > TOKEN_SECONDS

    def _emit_message(self, name: str, message: EmulatedMessage) -> None:
        channel = str(message.object["channel_id"])
        where = self._where(channel, message.author)
        member = where.pop("member", None)
        event: Json = {**message.object, **where}
        if member is not None:
            event["member"] = {key: value for key, value in _table(member).items() if key != "user"}
        self.emit(name, event)

    def _where(self, channel: str, person: str = "") -> Json:
        guild = self.channels[channel].get("guild_id")
        where: Json = {"channel_id": channel}
        if guild:
            where["guild_id"] = guild
            if person:
                roles = self.roles.get((str(guild), person), [])
                where["member"] = {
                    "user": person_object(person), "roles": roles, "deaf": False, "mute": False,
                    "joined_at": "2026-01-01T00:00:00+00:00", "flags": 0,
                }  # fmt: skip
        return where

    def _mentions(self, text: str) -> list[Json]:
        bots = {bot.id: bot.user for bot in self.bots.values()}
        found = dict.fromkeys(_MENTION.findall(text))
        return [bots.get(one) or person_object(one) for one in found]

    def reply_fields(self, channel: str, message: str) -> Json:
        replied = self.messages.get((channel, message))
        return {
            "type": 19, "message_reference": {"message_id": message, "channel_id": channel},
            "referenced_message": replied.object if replied else None,
        }  # fmt: skip

    def _interact(
        self, channel: str, kind: int, data: Json, person: str, message: Json | None = None
    ) -> str:
        number = self.snowflake()
        where = self._where(channel, person)
        event: Json = {
            "id": number, "application_id": self.bot.application, "type": kind, "data": data,
            "token": f"token-{number}", "version": 1, "channel": self.channels[channel],
            "locale": "en-US", "entitlements": [], "authorizing_integration_owners": {},
            "attachment_size_limit": 20_971_520, "app_permissions": "0", **where,
        }  # fmt: skip
        if "guild_id" not in where:
            event["user"] = person_object(person)
        if message is not None:
            event["message"] = message
        self.interactions[number] = EmulatedInteraction(event, self.clock.monotonic())
        self.emit("INTERACTION_CREATE", event)
        return number


def person_object(number: str) -> Json:
    return {
        "id": number, "username": f"person{number}", "global_name": f"Person {number}",
        "discriminator": "0", "avatar": None, "bot": False,
    }  # fmt: skip


def _table(value: object) -> Json:
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def _tables(value: object) -> list[Json]:
    return value if isinstance(value, list) else []  # pyright: ignore[reportUnknownVariableType]


def _ignore() -> None:
    """Do nothing; the default callback."""


def _ignore_event(name: str, data: Json) -> None:
    """Do nothing; the default callback."""
