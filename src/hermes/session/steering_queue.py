"""Words to a turn that is running: durable before they count, heard at its next step."""

from collections.abc import Sequence

import anyio
import msgspec
from msgspec import Raw

from hermes.ports.store import CompleteItem, EnqueueItem, QueueItem, Store, Write
from hermes.schema.events import RunEnded
from hermes.schema.messages import Message, User

MAX_WAITING = 100
"""How many words may wait for one step."""


class SteeringQueue:
    """Of one turn. After a crash, what was not heard is taken up by the session's next turn.

    What the turn did not hear before its end is left to whoever said it; with `bequeath`,
    when there is nobody any more, it waits for the next turn, too.
    """

    def __init__(self, store: Store, session: str) -> None:
        self._store = store
        self._session = session
        self._begun = anyio.Event()
        self._closed = False
        self._kept_for_next_turn = False
        self._waiting: list[User] = []
        self._given: list[str] = []

    def begin(self) -> None:
        """The turn has taken up what waited in the inbox: what comes now is for its steps."""
        self._begun.set()

    def keep_for_next_turn(self) -> None:
        self._kept_for_next_turn = True

    async def add(self, word: User) -> bool:
        """False when the turn cannot hear it any more."""
        await self._begun.wait()
        if self._closed or len(self._waiting) >= MAX_WAITING:
            return False
        body = Raw(msgspec.json.encode(word))
        parcel = QueueItem(key=word.id, lane="inbox", topic=self._session, body=body)
        with anyio.CancelScope(shield=True):
            await self._store.commit(EnqueueItem(parcel))
            if self._closed:
                await self._store.commit(CompleteItem(word.id))
                return False
            self._waiting.append(word)
        return True

    async def heard(self) -> Sequence[User]:
        """What the turn takes up now."""
        heard, self._waiting = self._waiting, []
        self._given += [word.id for word in heard]
        return heard

    def closing(self, ended: RunEnded, said: Sequence[Message]) -> Sequence[Write]:
        """Settles them with the turn's last word; nothing is heard after it."""
        self._closed = True
        left = [] if self._kept_for_next_turn else [word.id for word in self._waiting]
        self._waiting = []
        return [CompleteItem(key) for key in (*self._given, *left)]

    async def end(self) -> None:
        """Also for a turn that had no last word."""
        self._closed = True
        self._begun.set()
        waiting, self._waiting = self._waiting, []
        if waiting and not self._kept_for_next_turn:
            await self._store.commit(*(CompleteItem(word.id) for word in waiting))
