"""The state of the fake platform: written messages, update feeds, visible posts and faults."""

import random
from collections import deque
from collections.abc import Mapping, Sequence
from enum import Enum, auto

from msgspec import Struct, field, structs

GROUP_PREFIX = "group-"


class CallFault(Enum):
    """The outcome of one call to the platform."""

    NONE = auto()
    REFUSED = auto()
    THROTTLED = auto()
    DROPPED = auto()
    """The connection breaks before the call has an effect."""
    LOST_REPLY = auto()
    """The call has its effect, but the connection breaks before the response."""


class FaultRates(Struct, frozen=True, kw_only=True):
    """Probabilities of faults, and the maximum delay of a call in seconds.

    `repeated` applies to updates that are delivered a second time; `shuffled` mixes the chats but
    keeps the order within each.
    """

    repeated: float = 0.0
    shuffled: bool = False
    refused: float = 0.0
    throttled: float = 0.0
    dropped: float = 0.0
    lost_reply: float = 0.0
    cut_poll: float = 0.0
    delay: float = 0.0
    wait: float = 0.1
    """Seconds to wait, as sent in throttling responses."""

    def draw(self, chance: random.Random) -> CallFault:
        drawn = chance.random()
        for rate, fault in (
            (self.refused, CallFault.REFUSED),
            (self.throttled, CallFault.THROTTLED),
            (self.dropped, CallFault.DROPPED),
            (self.lost_reply, CallFault.LOST_REPLY),
        ):
            if drawn < rate:
                return fault
            drawn -= rate
        return CallFault.NONE


NO_FAULTS = FaultRates()
SOME_FAULTS = FaultRates(
    repeated=0.3,
    shuffled=True,
    refused=0.01,
    throttled=0.01,
    dropped=0.01,
    lost_reply=0.01,
    cut_poll=0.05,
    delay=0.002,
)


class WrittenMessage(Struct, frozen=True):
    """A message from a person to an account; `name` is the display name of the person."""

    id: str
    account: str
    chat: str
    person: str
    text: str
    name: str = ""
    reply_to: str | None = None
    change: str = ""
    """`edit`, `delete`, `reaction` or `press` for something that happened to `target`."""
    target: str = ""
    value: str = ""

    @property
    def in_group(self) -> bool:
        """Whether the chat id marks a group."""
        return self.chat.startswith(GROUP_PREFIX)


class PlatformPost(Struct):
    """A post with its current text; `forms` are all its texts so far."""

    id: str
    account: str
    chat: str
    text: str
    reply_to: str | None = None
    forms: list[str] = field(default_factory=list[str])
    buttons: dict[str, str] = field(default_factory=dict[str, str])
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])


class Update(Struct, frozen=True):
    """An update in an account's feed; the same message may appear again with another number."""

    n: int
    spoken: WrittenMessage


class ChatEntry(Struct, frozen=True):
    """One entry of a chat as its people see it."""

    who: str
    text: str
    post: str = ""
    edited: bool = False


class Feed(Struct):
    """The unacknowledged updates of an account."""

    updates: deque[Update] = field(default_factory=deque[Update])
    count: int = 0
    given: int = 0

    def put(self, spoken: WrittenMessage) -> None:
        self.count += 1
        self.updates.append(Update(self.count, spoken))

    def after(self, cursor: int, limit: int) -> list[Update]:
        """Acknowledge everything up to the cursor and return the next updates."""
        while self.updates and self.updates[0].n <= cursor:
            self.updates.popleft()
        found = [self.updates[index] for index in range(min(limit, len(self.updates)))]
        self.given += len(found)
        return found


class FakePlatform:
    """The state of the platform, independent of any gateway."""

    def __init__(self, fault_rates: FaultRates = NO_FAULTS, seed: int = 0) -> None:
        self.fault_rates = fault_rates
        self.chance = random.Random(seed)  # noqa: S311 - must be repeatable, not secret
        self.written: list[WrittenMessage] = []
        self.names: dict[tuple[str, str], str] = {}
        """Display names by account and person, where they differ from the id."""
        self.posts: dict[str, PlatformPost] = {}
        self.typing: set[tuple[str, str]] = set()
        self.reactions: list[tuple[str, str]] = []
        self.calls = 0
        self.changes: list[str] = []
        """The id of the post of each change, in order."""
        self._feeds: dict[str, Feed] = {}
        self._lines: dict[tuple[str, str], list[ChatEntry]] = {}

    def feed(self, account: str) -> Feed:
        return self._feeds.setdefault(account, Feed())

    def unacknowledged(self) -> int:
        """Return the number of unacknowledged updates."""
        return sum(len(feed.updates) for feed in self._feeds.values())

    def lines(self, account: str, chat: str) -> list[ChatEntry]:
        return self._lines.setdefault((account, chat), [])

    def say(
        self, account: str, chat: str, person: str, text: str, reply_to: str | None = None
    ) -> WrittenMessage:
        """Add a message of a person, possibly a reply, to the account's feed."""
        spoken = self._spoken(0, account, chat, person, text)
        self._add([structs.replace(spoken, reply_to=reply_to)])
        return self.written[-1]

    def change(
        self, account: str, chat: str, person: str, change: str, target: str, value: str = ""
    ) -> WrittenMessage:
        """Edit, delete or react to a message, or press a button; `value` is the new content."""
        text = value if change == "edit" else ""
        spoken = self._spoken(0, account, chat, person, text)
        self._add([structs.replace(spoken, change=change, target=target, value=value)])
        return self.written[-1]

    def repeat(self, spoken: WrittenMessage) -> None:
        """Send an update again, as platforms do that did not see its acknowledgement."""
        self.feed(spoken.account).put(spoken)

    def say_all(self, said: Sequence[tuple[str, str, str, str]]) -> list[WrittenMessage]:
        """Add several messages; the feeds receive them with the configured faults."""
        new = [self._spoken(index, *message) for index, message in enumerate(said)]
        self._add(new)
        return new

    def _spoken(
        self, place: int, account: str, chat: str, person: str, text: str
    ) -> WrittenMessage:
        name = self.names.get((account, person), person)
        return WrittenMessage(f"u{len(self.written) + place}", account, chat, person, text, name)

    def _add(self, new: Sequence[WrittenMessage]) -> None:
        self.written += new
        for spoken in new:
            line = ChatEntry(spoken.person, spoken.text, spoken.id)
            self.lines(spoken.account, spoken.chat).append(line)
        for spoken in self._repeated(self._shuffled_chats(new)):
            self.feed(spoken.account).put(spoken)

    def post(self, account: str, chat: str, text: str, reply_to: str | None) -> PlatformPost:
        shown = PlatformPost(f"p{len(self.posts)}", account, chat, text, reply_to, [text])
        self.posts[shown.id] = shown
        self.changes.append(shown.id)
        self.lines(account, chat).append(ChatEntry(account, text, shown.id))
        return shown

    def edit(self, account: str, post: str, text: str) -> bool:
        """Change a post; return False if the account has no such post."""
        shown = self.posts.get(post)
        if shown is None or shown.account != account:
            return False
        shown.text = text
        shown.forms.append(text)
        self.changes.append(post)
        self.lines(account, shown.chat).append(ChatEntry(account, text, post, edited=True))
        return True

    def posts_in(self, account: str, chat: str) -> list[PlatformPost]:
        """Return the posts visible in a chat, oldest first."""
        return [one for one in self.posts.values() if (one.account, one.chat) == (account, chat)]

    def by_chat(self) -> Mapping[tuple[str, str], tuple[list[WrittenMessage], list[PlatformPost]]]:
        """Return the written messages and visible posts of each chat of each account."""
        chats: dict[tuple[str, str], tuple[list[WrittenMessage], list[PlatformPost]]] = {}
        for spoken in self.written:
            chats.setdefault((spoken.account, spoken.chat), ([], []))[0].append(spoken)
        for shown in self.posts.values():
            chats.setdefault((shown.account, shown.chat), ([], []))[1].append(shown)
        return chats

    def _shuffled_chats(self, said: Sequence[WrittenMessage]) -> list[WrittenMessage]:
        """Mix the chats, but keep the order within each."""
        if not self.fault_rates.shuffled:
            return list(said)
        queues: dict[tuple[str, str], deque[WrittenMessage]] = {}
        for spoken in said:
            queues.setdefault((spoken.account, spoken.chat), deque()).append(spoken)
        chats = [chat for chat, queue in queues.items() for _ in queue]
        self.chance.shuffle(chats)
        return [queues[chat].popleft() for chat in chats]

    def _repeated(self, said: Sequence[WrittenMessage]) -> list[WrittenMessage]:
        """Insert some messages a second time at a later position."""
        out: list[tuple[float, WrittenMessage]] = []
        for position, spoken in enumerate(said):
            out.append((position, spoken))
            if self.chance.random() < self.fault_rates.repeated:
                later = position + self.chance.random() * (len(said) - position) + 0.5
                out.append((later, spoken))
        return [spoken for _, spoken in sorted(out, key=lambda one: one[0])]
