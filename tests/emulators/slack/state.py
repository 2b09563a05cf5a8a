"""The state of the emulator: workspaces, channels and messages, and what people do in them."""

import random
import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

from msgspec import Struct, field

from hermes.kit.clock import Clock, SystemClock
from support.chat_platform.state import NO_FAULTS, FaultRates

Json: TypeAlias = dict[str, object]

SCOPES = frozenset(
    {
        "app_mentions:read", "assistant:write", "channels:history", "channels:read", "chat:write",
        "commands", "files:read", "files:write", "groups:history", "groups:read", "im:history",
        "im:read", "im:write", "mpim:history", "mpim:read", "reactions:read", "reactions:write",
        "users:read",
    }
)  # fmt: skip
RESPONSE_SECONDS, MAX_RESPONSES = 30 * 60.0, 5
STATUS_SECONDS = 120.0
_MENTION = re.compile(r"<@(\w+)>")


class EmulatedWorkspace(Struct):
    """A workspace in which the app is installed."""

    team: str
    token: str
    bot: str
    bot_id: str
    name: str = "Acme"
    scopes: frozenset[str] = SCOPES


class EmulatedChannel(Struct):
    """A channel or direct messages; events come only from those that the bot is in."""

    id: str
    team: str
    name: str = ""
    person: str = ""
    member: bool = True
    archived: bool = False

    @property
    def kind(self) -> str:
        return "im" if self.person else "channel"


class EmulatedMessage(Struct):
    """A message with all its texts so far, its files, and reactions as person and name."""

    object: Json
    forms: list[str]
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    reactions: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    @property
    def id(self) -> str:
        return str(self.object["ts"])

    @property
    def channel(self) -> str:
        return str(self.object["channel"])

    @property
    def thread(self) -> str:
        return str(self.object.get("thread_ts", ""))

    @property
    def author(self) -> str:
        return str(self.object["user"])

    @property
    def text(self) -> str:
        return self.forms[-1]

    def buttons(self) -> dict[str, str]:
        """Values of buttons with their labels."""
        found: dict[str, str] = {}
        for block in tables(self.object.get("blocks")):
            if block["type"] != "actions":
                continue
            for one in tables(block.get("elements")):
                found[str(one["value"])] = str(table(one["text"])["text"])
        return found


class ResponseUrl(Struct):
    """Where responses to a command are posted."""

    channel: str
    created_at: float
    uses: int = 0


class EmulatedSlack:
    """One app in one or more workspaces. `on_event` gets what happens, `on_change` follows it."""

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
        self.app_tokens: set[str] = set()
        self.workspaces: dict[str, EmulatedWorkspace] = {}
        """By token."""
        self.channels: dict[str, EmulatedChannel] = {}
        self.messages: dict[tuple[str, str], EmulatedMessage] = {}
        self.changes: list[EmulatedMessage] = []
        """Messages of the bot, again at each change."""
        self.people: dict[str, str] = {}
        self.uploads: dict[str, Json] = {}
        self.contents: dict[str, bytes] = {}
        self._statuses: dict[tuple[str, str], tuple[str, float]] = {}
        """With the time at which they were set."""
        self.titles: dict[tuple[str, str], str] = {}
        self.prompts: dict[tuple[str, str], object] = {}
        self.file_url = ""
        self.response_urls: dict[str, ResponseUrl] = {}
        self.on_envelope: Callable[[str, Json], str] = _ignore_envelope
        self.on_change: Callable[[], None] = _ignore
        self._last = 0
        self._numbers = 0

    def install(self, token: str, name: str = "Acme") -> EmulatedWorkspace:
        """Install the app in a new workspace."""
        workspace = EmulatedWorkspace(
            self.number("T"), token, self.number("U"), self.number("B"), name
        )
        self.workspaces[token] = workspace
        return workspace

    @property
    def workspace(self) -> EmulatedWorkspace:
        """The first workspace."""
        return next(iter(self.workspaces.values()))

    def workspace_of(self, team: str) -> EmulatedWorkspace:
        return next(one for one in self.workspaces.values() if one.team == team)

    def number(self, prefix: str) -> str:
        self._numbers += 1
        return f"{prefix}0EMU{self._numbers:05}"

    def timestamp(self) -> str:
        """Timestamps grow; they are the ids of messages."""
        now = int(self.clock.now().timestamp() * 1_000_000)
        self._last = max(self._last + 1, now)
        return f"{self._last // 1_000_000}.{self._last % 1_000_000:06}"

    # Places

    def add_channel(self, name: str = "general", team: str = "", *, member: bool = True) -> str:
        number = self.number("C")
        self.channels[number] = EmulatedChannel(
            number, team or self.workspace.team, name, member=member
        )
        return number

    def direct(self, person: str, team: str = "") -> str:
        """The direct messages between a person and the bot."""
        team = team or self.workspace.team
        for one in self.channels.values():
            if (one.person, one.team) == (person, team):
                return one.id
        number = self.number("D")
        self.channels[number] = EmulatedChannel(number, team, person=person)
        return number

    # What people do

    def say(
        self,
        channel: str,
        text: str = "",
        *,
        person: str,
        thread: str = "",
        files: dict[str, bytes] | None = None,
        **more: object,
    ) -> str:
        """Write a message and return its timestamp; `text` is what was typed."""
        written = as_sent(text)
        ts = self.timestamp()
        fields: Json = {
            "type": "message", "user": person, "text": written, "ts": ts, "channel": channel,
            "team": self.channels[channel].team, "client_msg_id": self.number("client-"), **more,
        }  # fmt: skip
        if thread:
            fields["thread_ts"] = thread
        if files:
            shared = [self._shared_file(name, data) for name, data in files.items()]
            fields |= {"files": shared, "subtype": "file_share"}
        message = self.add(fields, files or {})
        self._emit_message(message)
        return ts

    def add(self, fields: Json, files: dict[str, bytes] | None = None) -> EmulatedMessage:
        message = EmulatedMessage(fields, [str(fields.get("text", ""))], files or {})
        self.messages[message.channel, message.id] = message
        if message.thread and (parent := self.messages.get((message.channel, message.thread))):
            count = parent.object.get("reply_count", 0)
            parent.object |= {
                "thread_ts": parent.id, "latest_reply": message.id,
                "reply_count": (count if isinstance(count, int) else 0) + 1,
            }  # fmt: skip
            if parent.id != message.id:
                message.object["parent_user_id"] = parent.author
        self.on_change()
        return message

    def emit_again(self, message: EmulatedMessage) -> None:
        """The same message in an event of its own, as `app_mention` beside `message` is."""
        self._emit_message(message)

    def _emit_message(self, message: EmulatedMessage) -> None:
        channel = self.channels[message.channel]
        if not channel.member:
            return
        event = {**message.object, "channel_type": channel.kind, "event_ts": message.id}
        self.emit(channel.team, event)
        bot = self.workspace_of(channel.team).bot
        if not channel.person and bot in _MENTION.findall(message.text):
            self.emit(channel.team, {**event, "type": "app_mention"})

    def edit(self, channel: str, ts: str, text: str) -> None:
        message = self.messages[channel, ts]
        before, text = dict(message.object), as_sent(text)
        edited = {"user": message.author, "ts": self.timestamp()}
        message.object |= {"text": text, "edited": edited}
        message.forms.append(text)
        self._emit_change(
            channel, "message_changed", message=dict(message.object), previous_message=before
        )

    def delete(self, channel: str, ts: str) -> None:
        message = self.messages.pop((channel, ts))
        self._emit_change(
            channel, "message_deleted", deleted_ts=ts, previous_message=message.object
        )

    def _emit_change(self, channel: str, subtype: str, **more: object) -> None:
        place = self.channels[channel]
        event: Json = {
            "type": "message", "subtype": subtype, "hidden": True, "channel": channel,
            "channel_type": place.kind, "ts": self.timestamp(), **more,
        }  # fmt: skip
        self.emit(place.team, event)
        self.on_change()

    def react(self, channel: str, ts: str, name: str, person: str) -> None:
        item = {"type": "message", "channel": channel, "ts": ts}
        event: Json = {
            "type": "reaction_added", "user": person, "reaction": name, "item": item,
            "event_ts": self.timestamp(),
        }  # fmt: skip
        self.emit(self.channels[channel].team, event)

    def press(self, channel: str, ts: str, value: str, person: str) -> str:
        """Press a button and return the envelope's id."""
        message = self.messages[channel, ts]
        if value not in message.buttons():
            raise KeyError(value)
        place = self.channels[channel]
        payload: Json = {
            "type": "block_actions", "trigger_id": self.number("trigger-"),
            "user": {"id": person, "username": person, "team_id": place.team},
            "team": {"id": place.team, "domain": "acme"},
            "channel": {"id": channel, "name": place.name},
            "container": {"type": "message", "message_ts": ts, "channel_id": channel,
                          "thread_ts": message.thread or None, "is_ephemeral": False},
            "message": message.object, "api_app_id": "A0EMU", "is_enterprise_install": False,
            "response_url": self.response_url(channel),
            "actions": [{"type": "button", "action_id": "choice", "block_id": "b", "value": value,
                         "action_ts": self.timestamp()}],
        }  # fmt: skip
        if not message.thread:
            del payload["container"]["thread_ts"]  # pyright: ignore[reportIndexIssue]
        return self.on_envelope("interactive", payload)

    def command(self, channel: str, name: str, person: str, text: str = "") -> str:
        """Use a slash command and return the envelope's id."""
        place = self.channels[channel]
        payload: Json = {
            "command": f"/{name}", "text": text, "team_id": place.team, "channel_id": channel,
            "channel_name": place.name or "directmessage", "user_id": person, "user_name": person,
            "trigger_id": self.number("trigger-"), "api_app_id": "A0EMU",
            "response_url": self.response_url(channel), "is_enterprise_install": "false",
        }  # fmt: skip
        return self.on_envelope("slash_commands", payload)

    def response_url(self, channel: str) -> str:
        """An address for responses to one payload."""
        number = self.number("response-")
        self.response_urls[number] = ResponseUrl(channel, self.clock.monotonic())
        return f"{self.file_url}/response/{number}"

    def respond(self, number: str, text: str) -> str:
        """Post a response. Returns why it is refused, or nothing."""
        url = self.response_urls.get(number)
        if url is None:
            return "no_service"
        if self.clock.monotonic() - url.created_at > RESPONSE_SECONDS:
            return "expired_url"
        if url.uses >= MAX_RESPONSES:
            return "used_url"
        url.uses += 1
        team = self.workspace_of(self.channels[url.channel].team)
        fields: Json = {
            "type": "message", "user": team.bot, "text": text, "ts": self.timestamp(),
            "channel": url.channel,
        }  # fmt: skip
        self.changes.append(self.add(fields))
        return ""

    def set_status(self, place: tuple[str, str], status: str) -> None:
        """Show a status in a thread, or remove it."""
        if status:
            self._statuses[place] = (status, self.clock.monotonic())
        else:
            self._statuses.pop(place, None)
        self.on_change()

    def status(self, channel: str, thread: str) -> str:
        """The status that a thread shows now."""
        status, since = self._statuses.get((channel, thread), ("", 0.0))
        return status if self.clock.monotonic() - since < STATUS_SECONDS else ""

    def open_assistant(self, person: str) -> tuple[str, str]:
        """Open a conversation in the assistant pane; return its channel and thread."""
        channel, ts = self.direct(person), self.timestamp()
        team = self.channels[channel].team
        bot = self.workspace_of(team).bot
        self.add({"type": "message", "user": bot, "text": "", "ts": ts, "channel": channel})
        thread: Json = {"user_id": person, "channel_id": channel, "thread_ts": ts}
        event: Json = {
            "type": "assistant_thread_started",
            "assistant_thread": thread,
            "event_ts": ts,
        }
        self.emit(team, event)
        return channel, ts

    def emit(self, team: str, event: Json) -> str:
        """Send an event of the Events API and return the envelope's id."""
        workspace = self.workspace_of(team)
        payload: Json = {
            "token": "verification", "team_id": team, "api_app_id": "A0EMU", "event": event,
            "type": "event_callback", "event_id": self.number("Ev"),
            "event_time": int(self.clock.now().timestamp()),
            "authorizations": [{"enterprise_id": None, "team_id": team, "user_id": workspace.bot,
                                "is_bot": True, "is_enterprise_install": False}],
        }  # fmt: skip
        return self.on_envelope("events_api", payload)

    # What is seen

    def posts(self, channel: str) -> list[EmulatedMessage]:
        """Posts of the bot in a channel, oldest first."""
        bots = {one.bot for one in self.workspaces.values()}
        return [
            one
            for (place, _), one in self.messages.items()
            if place == channel and one.author in bots and (one.text or one.files)
        ]

    def _shared_file(self, name: str, data: bytes) -> Json:
        number = self.number("F")
        self.contents[number] = data
        url = f"{self.file_url}/files-pri/{number}/{name}"
        return {
            "id": number, "name": name, "title": name, "mimetype": _type(name), "size": len(data),
            "mode": "hosted", "url_private": url, "url_private_download": url,
        }  # fmt: skip


def table(value: object) -> Json:
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def tables(value: object) -> Sequence[Json]:
    return value if isinstance(value, list) else []  # pyright: ignore[reportUnknownVariableType]


def _type(name: str) -> str:
    return {"txt": "text/plain", "png": "image/png", "mp4": "video/mp4"}.get(
        name.rpartition(".")[2], "application/octet-stream"
    )


def as_sent(text: str) -> str:
    """What somebody typed, as Slack sends it: three characters are entities, mentions are not."""
    entities = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
    return re.sub(r"<@\w+>|[&<>]", lambda found: entities.get(found[0], found[0]), text)


def _ignore() -> None:
    """Do nothing; the default callback."""


def _ignore_envelope(kind: str, payload: Json) -> str:
    """Do nothing; the default callback."""
    return ""
