"""What really happened on the platform: who wrote what, what was given out, what people saw."""

import random
from collections import deque
from collections.abc import Mapping, Sequence

from msgspec import Struct, field, structs

from hermes.testing.platform.faults import NO_FAULTS, FaultRates

GROUP_PREFIX = "group-"


class WrittenMessage(Struct, frozen=True):
    """What a person wrote to an account in a chat; `name` is what others call that person."""

    id: str
    account: str
    chat: str
    person: str
    text: str
    name: str = ""
    reply_to: str | None = None

    @property
    def in_group(self) -> bool:
        """A group's name says that it is one."""
        return self.chat.startswith(GROUP_PREFIX)


class PlatformPost(Struct):
    """A post as people see it now, and every form it had."""

    id: str
    account: str
    chat: str
    text: str
    reply_to: str | None = None
    forms: list[str] = field(default_factory=list[str])


class Update(Struct, frozen=True):
    """One line of an account's feed; the same `spoken` may come again under another number."""

    n: int
    spoken: WrittenMessage


class ChatEntry(Struct, frozen=True):
    """What somebody who looks at a chat sees next."""

    who: str
    text: str
    post: str = ""
    edited: bool = False


class Feed(Struct):
    """An account's updates that were not acknowledged yet."""

    updates: deque[Update] = field(default_factory=deque[Update])
    count: int = 0
    given: int = 0

    def put(self, spoken: WrittenMessage) -> None:
        self.count += 1
        self.updates.append(Update(self.count, spoken))

    def after(self, cursor: int, most: int) -> list[Update]:
        """Acknowledges everything up to the cursor."""
        while self.updates and self.updates[0].n <= cursor:
            self.updates.popleft()
        found = [self.updates[place] for place in range(min(most, len(self.updates)))]
        self.given += len(found)
        return found


class FakePlatform:
    """The platform's memory. Nothing in here depends on how a gateway fares."""

    def __init__(self, weather: FaultRates = NO_FAULTS, seed: int = 0) -> None:
        self.weather = weather
        self.chance = random.Random(seed)  # noqa: S311 - it must be repeatable, not secret
        self.spoken: list[WrittenMessage] = []
        self.names: dict[tuple[str, str], str] = {}
        """How people are called whom an account knows by another name than their id."""
        self.shown: dict[str, PlatformPost] = {}
        self.typing: set[tuple[str, str]] = set()
        self.signs: list[tuple[str, str]] = []
        self.calls = 0
        self.changes: list[str] = []
        """The post of each change, in order."""
        self._feeds: dict[str, Feed] = {}
        self._lines: dict[tuple[str, str], list[ChatEntry]] = {}

    def feed(self, account: str) -> Feed:
        return self._feeds.setdefault(account, Feed())

    def waiting(self) -> int:
        """How many updates were not acknowledged yet."""
        return sum(len(feed.updates) for feed in self._feeds.values())

    def lines(self, account: str, chat: str) -> list[ChatEntry]:
        return self._lines.setdefault((account, chat), [])

    def say(
        self, account: str, chat: str, person: str, text: str, reply_to: str | None = None
    ) -> WrittenMessage:
        """A person writes something, perhaps to a post, and the account's feed has it."""
        spoken = self._spoken(0, account, chat, person, text)
        self._hear([structs.replace(spoken, reply_to=reply_to)])
        return self.spoken[-1]

    def say_all(self, said: Sequence[tuple[str, str, str, str]]) -> list[WrittenMessage]:
        """Several people write; the feeds get it as the weather says."""
        new = [self._spoken(place, *one) for place, one in enumerate(said)]
        self._hear(new)
        return new

    def _spoken(
        self, place: int, account: str, chat: str, person: str, text: str
    ) -> WrittenMessage:
        name = self.names.get((account, person), person)
        return WrittenMessage(f"u{len(self.spoken) + place}", account, chat, person, text, name)

    def _hear(self, new: Sequence[WrittenMessage]) -> None:
        self.spoken += new
        for spoken in new:
            line = ChatEntry(spoken.person, spoken.text, spoken.id)
            self.lines(spoken.account, spoken.chat).append(line)
        for spoken in self._repeated(self._shuffled_chats(new)):
            self.feed(spoken.account).put(spoken)

    def post(self, account: str, chat: str, text: str, reply_to: str | None) -> PlatformPost:
        shown = PlatformPost(f"p{len(self.shown)}", account, chat, text, reply_to, [text])
        self.shown[shown.id] = shown
        self.changes.append(shown.id)
        self.lines(account, chat).append(ChatEntry(account, text, shown.id))
        return shown

    def edit(self, account: str, post: str, text: str) -> bool:
        """False when the account has no such post."""
        shown = self.shown.get(post)
        if shown is None or shown.account != account:
            return False
        shown.text = text
        shown.forms.append(text)
        self.changes.append(post)
        self.lines(account, shown.chat).append(ChatEntry(account, text, post, edited=True))
        return True

    def seen(self, account: str, chat: str) -> list[PlatformPost]:
        """The posts that people in a chat can read, top to bottom."""
        return [one for one in self.shown.values() if (one.account, one.chat) == (account, chat)]

    def by_chat(self) -> Mapping[tuple[str, str], tuple[list[WrittenMessage], list[PlatformPost]]]:
        """For each chat of each account, what was written and what is shown."""
        chats: dict[tuple[str, str], tuple[list[WrittenMessage], list[PlatformPost]]] = {}
        for spoken in self.spoken:
            chats.setdefault((spoken.account, spoken.chat), ([], []))[0].append(spoken)
        for shown in self.shown.values():
            chats.setdefault((shown.account, shown.chat), ([], []))[1].append(shown)
        return chats

    def _shuffled_chats(self, said: Sequence[WrittenMessage]) -> list[WrittenMessage]:
        """The order of chats is mixed, that within a chat is kept."""
        if not self.weather.shuffled:
            return list(said)
        queues: dict[tuple[str, str], deque[WrittenMessage]] = {}
        for spoken in said:
            queues.setdefault((spoken.account, spoken.chat), deque()).append(spoken)
        places = [place for place, queue in queues.items() for _ in queue]
        self.chance.shuffle(places)
        return [queues[place].popleft() for place in places]

    def _repeated(self, said: Sequence[WrittenMessage]) -> list[WrittenMessage]:
        """Some come a second time, at any later place."""
        out: list[tuple[float, WrittenMessage]] = []
        for place, spoken in enumerate(said):
            out.append((place, spoken))
            if self.chance.random() < self.weather.repeated:
                out.append((place + self.chance.random() * (len(said) - place) + 0.5, spoken))
        return [spoken for _, spoken in sorted(out, key=lambda one: one[0])]
