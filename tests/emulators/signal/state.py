"""The state of the emulated Signal: events for the agent, its messages, and what is shown."""

import random
from collections.abc import Callable, Mapping

from msgspec import Struct, field

from hermes.kit.clock import SystemClock
from support.chat_platform.state import NO_FAULTS, FaultRates

ACCOUNT = "+15550000001"
ANN = "+15551230000"
ANN_UUID = "aaaaaaaa-0000-4000-8000-000000000001"
GROUP = "Pmpi+EfPWmsxiomLe9Nx2XF9HOE483p6iKiFj65iMwI="
MAX_EVENTS = 1000


class EmulatedPost(Struct):
    """A message of the agent; `chat` is a person, the account itself, or a group."""

    timestamp: int
    chat: str
    text: str
    styles: list[str] = field(default_factory=list[str])
    quoted: str = ""
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])


class EmulatedSignal:
    """One account. The last events are kept, as the daemon does."""

    def __init__(self, faults: FaultRates = NO_FAULTS, seed: int = 0) -> None:
        self.faults = faults
        self.chance = random.Random(seed)  # noqa: S311 - faults of tests
        self.on_change: Callable[[], None] = lambda: None
        self.events: list[tuple[int, dict[str, object]]] = []
        self.posts: list[EmulatedPost] = []
        self.reactions: dict[str, str] = {}
        """The agent's reactions by author and time of the message."""
        self.typing: set[str] = set()
        self.files: dict[str, bytes] = {}
        self.members = {ANN, ANN_UUID}
        self.groups = {GROUP}
        self.changed_keys: set[str] = set()
        self._clock = SystemClock()
        self._time = 0

    def now(self) -> int:
        """Milliseconds; never the same twice."""
        self._time = max(int(self._clock.now().timestamp() * 1000), self._time + 1)
        return self._time

    def emit(self, envelope: Mapping[str, object]) -> int:
        """Send an event to whoever listens and return its number."""
        number = self.events[-1][0] + 1 if self.events else 1
        self.events.append((number, {"envelope": dict(envelope), "account": ACCOUNT}))
        del self.events[:-MAX_EVENTS]
        self.on_change()
        return number

    def say(self, text: str | None, *, group: str = "", **more: object) -> int:
        """Write a message as Ann and return its time."""
        timestamp = self.now()
        message = {"timestamp": timestamp, "message": text, "expiresInSeconds": 0, **more}
        if group:
            message["groupInfo"] = {"groupId": group, "groupName": "Family", "type": "DELIVER"}
        self.emit({**self.source(timestamp), "dataMessage": message})
        return timestamp

    def source(self, timestamp: int) -> dict[str, object]:
        return {
            "source": ANN, "sourceNumber": ANN, "sourceUuid": ANN_UUID, "sourceName": "Ann",
            "sourceDevice": 1, "timestamp": timestamp,
        }  # fmt: skip

    def edit(self, target: int, text: str) -> int:
        timestamp = self.now()
        message = {"timestamp": timestamp, "message": text}
        edit = {"targetSentTimestamp": target, "dataMessage": message}
        self.emit({**self.source(timestamp), "editMessage": edit})
        return timestamp

    def note_to_self(self, text: str, *, to: str = ACCOUNT) -> None:
        """The owner writes on another device."""
        timestamp = self.now()
        sent = {
            "destination": to, "destinationNumber": to, "timestamp": timestamp, "message": text
        }  # fmt: skip
        source = {**self.source(timestamp), "sourceNumber": ACCOUNT, "sourceUuid": None}
        self.emit({**source, "syncMessage": {"sentMessage": sent}})

    def shown(self, chat: str) -> list[EmulatedPost]:
        return [one for one in self.posts if one.chat == chat]
