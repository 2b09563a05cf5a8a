"""Facts about rooms: whether they are encrypted or direct, and who is in them."""

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from hermes.channels.matrix.client_api import ClientApi, MissingObject
from hermes.channels.matrix.objects import Event, MemberContent
from hermes.channels.matrix.position import Position
from hermes.kit.clock import Clock
from hermes.kit.json_errors import JSON_ERRORS
from hermes.kit.lru_map import LruMap
from hermes.ports.channel import Offline, TargetGone, UnknownOutcome

MAX_ROOMS = 2_000
DIRECT = "m.direct"
_STATE = frozenset(
    {
        "m.room.encryption", "m.room.member", "m.room.name", "m.room.canonical_alias",
        "m.room.join_rules", "m.room.history_visibility", "m.room.topic",
    }
)  # fmt: skip


class Person(Struct, frozen=True, kw_only=True):
    """A member, or someone who is invited."""

    joined: bool
    name: str = ""


class RoomFacts(Struct, frozen=True, kw_only=True):
    encrypted: bool = False
    name: str = ""
    public: bool = False
    invited_may_read: bool = True
    people: Mapping[str, Person] = {}

    @property
    def readers(self) -> list[str]:
        """The people whose devices get the keys of new messages."""
        return [
            user for user, person in self.people.items() if person.joined or self.invited_may_read
        ]

    def name_of(self, user: str) -> str:
        known = self.people.get(user)
        return (known.name if known else "") or user.removeprefix("@").partition(":")[0]


class _Text(Struct, frozen=True, kw_only=True):
    name: str = ""
    alias: str = ""
    join_rule: str = ""
    history_visibility: str = ""
    algorithm: str = ""


class _Cached(Struct, frozen=True):
    facts: RoomFacts
    until: float


class _Reader(Struct, kw_only=True):
    """Collects the facts of one room from its state."""

    name: str = ""
    alias: str = ""
    encrypted: bool = False
    public: bool = False
    invited_may_read: bool = True
    people: dict[str, Person] = field(default_factory=dict[str, Person])

    def read(self, event: Event) -> None:
        if event.kind == "m.room.member":
            self._member(event)
            return
        content = event.read(_Text)
        match event.kind:
            case "m.room.encryption":
                self.encrypted = bool(content.algorithm)
            case "m.room.name":
                self.name = content.name
            case "m.room.canonical_alias":
                self.alias = content.alias
            case "m.room.join_rules":
                self.public = content.join_rule == "public"
            case "m.room.history_visibility":
                self.invited_may_read = content.history_visibility != "joined"
            case _:
                pass

    def _member(self, event: Event) -> None:
        content = event.read(MemberContent)
        if content.membership in {"join", "invite"} and event.state_key:
            joined = content.membership == "join"
            self.people[event.state_key] = Person(joined=joined, name=content.displayname or "")


class RoomDirectory:
    """Facts are fetched when they are needed and kept for `ttl` seconds, or until they change.

    A room that was encrypted once stays so: `position` remembers it.
    """

    def __init__(self, api: ClientApi, clock: Clock, position: Position, *, ttl: float) -> None:
        self._api = api
        self._clock = clock
        self._position = position
        self._ttl = ttl
        self._cache: LruMap[str, _Cached] = LruMap(MAX_ROOMS)
        self._direct: frozenset[str] = frozenset()

    def observe(self, room: str, events: Sequence[Event]) -> None:
        """Drop cached facts that the state in a sync may have changed."""
        for event in events:
            if event.state_key is None or event.kind not in _STATE:
                continue
            if not self._is_known(room, event):
                self._cache.drop(room)
            if event.kind == "m.room.encryption":
                self._position.mark_encrypted(room)

    def _is_known(self, room: str, event: Event) -> bool:
        """Whether the cached facts have a member already: syncs repeat those who have written."""
        if (cached := self._cache.get(room)) is None or event.kind != "m.room.member":
            return False
        reader = _Reader()
        try:
            reader.read(event)
        except JSON_ERRORS:
            return False
        return bool(reader.people) and reader.people.items() <= cached.facts.people.items()

    def read_direct(self, event: Event) -> None:
        """Read which rooms are direct chats, from the account's data."""
        try:
            content = event.read(dict[str, list[str]])
        except JSON_ERRORS:
            return
        self._direct = frozenset(room for rooms in content.values() for room in rooms)

    async def add_direct(self, user: str, other: str, room: str) -> None:
        """Record in the account's data that the room is a direct chat with someone."""
        content = await self._api.account_data(user, DIRECT, dict[str, list[str]]) or {}
        content[other] = [*(known for known in content.get(other, []) if known != room), room]
        await self._api.set_account_data(user, DIRECT, content)
        self._direct |= {room}

    async def is_direct(self, room: str) -> bool:
        """Marked as such, or an unnamed room of two."""
        if room in self._direct:
            return True
        facts = await self.facts(room)
        return len(facts.people) <= 2 and not facts.name and not facts.public

    async def direct_room(self, user: str, other: str) -> str:
        """The latest direct chat of the account with someone; empty if there is none."""
        content = await self._api.account_data(user, DIRECT, dict[str, list[str]]) or {}
        return (content.get(other) or [""])[-1]

    async def is_encrypted(self, room: str) -> bool:
        """Ask the server unless it is known: encryption may have been turned on just now."""
        if (await self.facts(room)).encrypted:
            return True
        try:
            found = await self._api.encryption_of(room)
        except UnknownOutcome as error:
            raise Offline(str(error)) from error
        if found:
            self._cache.drop(room)
            self._position.mark_encrypted(room)
        return found

    async def facts(self, room: str) -> RoomFacts:
        """Raises `TargetGone` if the room does not exist for us."""
        cached = self._cache.get(room)
        now = self._clock.monotonic()
        if cached is not None and now < cached.until:
            return cached.facts
        try:
            events = await self._api.state(room)
        except UnknownOutcome as error:
            raise Offline(str(error)) from error
        except MissingObject as error:
            raise TargetGone(str(error)) from error
        facts = self._read(room, events)
        self._cache.put(room, _Cached(facts, now + self._ttl))
        return facts

    def _read(self, room: str, events: Sequence[Event]) -> RoomFacts:
        reader = _Reader()
        for event in events:
            try:
                reader.read(event)
            except JSON_ERRORS:
                # Anyone who may change the state can put invalid content there.
                if event.kind == "m.room.encryption":
                    reader.encrypted = True
        if reader.encrypted:
            self._position.mark_encrypted(room)
        return RoomFacts(
            encrypted=reader.encrypted or room in self._position.encrypted,
            name=reader.name or reader.alias,
            public=reader.public,
            invited_may_read=reader.invited_may_read,
            people=reader.people,
        )
