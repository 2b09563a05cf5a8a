"""Messages to a running turn: stored first, then picked up at its next step."""

from collections.abc import Sequence

import anyio
import msgspec
from msgspec import Raw

from hermes.ports.store import CompleteItem, EnqueueItem, QueueItem, Store, Write
from hermes.schema.events import RunEnded
from hermes.schema.messages import Message, User

MAX_WAITING = 100
"""Maximum number of messages waiting for one step."""


class SteeringQueue:
    """The steering messages of one turn; after a crash, the session's next turn gets them.

    Messages not picked up before the end stay with their sender; after `keep_for_next_turn`,
    used when the sender is gone, they wait for the next turn instead.
    """

    def __init__(self, store: Store, session: str) -> None:
        self._store = store
        self._session = session
        self._started = anyio.Event()
        self._closed = False
        self._kept_for_next_turn = False
        self._waiting: list[User] = []
        self._taken: list[str] = []

    def start(self) -> None:
        """Start accepting messages, once the turn has claimed the inbox."""
        self._started.set()

    def keep_for_next_turn(self) -> None:
        self._kept_for_next_turn = True

    async def add(self, message: User) -> bool:
        """False if the turn cannot take the message any more."""
        await self._started.wait()
        if self._closed or len(self._waiting) >= MAX_WAITING:
            return False
        body = Raw(msgspec.json.encode(message))
        item = QueueItem(key=message.id, lane="inbox", topic=self._session, body=body)
        with anyio.CancelScope(shield=True):
            await self._store.commit(EnqueueItem(item))
            if self._closed:
                await self._store.commit(CompleteItem(message.id))
                return False
            self._waiting.append(message)
        return True

    async def take(self) -> Sequence[User]:
        """The messages that the turn takes now."""
        taken, self._waiting = self._waiting, []
        self._taken += [message.id for message in taken]
        return taken

    def final_writes(self, ended: RunEnded, said: Sequence[Message]) -> Sequence[Write]:
        """Complete the items with the end of the turn; later messages are refused."""
        self._closed = True
        left = [] if self._kept_for_next_turn else [message.id for message in self._waiting]
        self._waiting = []
        return [CompleteItem(key) for key in (*self._taken, *left)]

    async def end(self) -> None:
        """Close the queue, also for a turn without an end event."""
        self._closed = True
        self._started.set()
        waiting, self._waiting = self._waiting, []
        if waiting and not self._kept_for_next_turn:
            await self._store.commit(*(CompleteItem(message.id) for message in waiting))
