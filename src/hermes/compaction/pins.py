"""Pinned notes, which are added to the conversation and repeated below every summary."""

from collections.abc import Sequence

from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
from hermes.kit.text import one_line
from hermes.ports.compaction_records import AddPin, Pin, RemovePin
from hermes.ports.store import AppendMessage, Fence, Store
from hermes.schema.errors import UsageError
from hermes.schema.messages import Text, Trust, User

MAX_PINS = 20
MAX_PIN = 500


class Pins:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def texts(self, session: str) -> Sequence[str]:
        return [pin.text for pin in await self._store.compaction.pins(session)]

    async def add(self, session: str, text: str, fence: Fence) -> None:
        """Raises `UsageError` if the text is too long or there are too many pins."""
        text = one_line(text, MAX_PIN + 1)
        if len(text) > MAX_PIN:
            raise UsageError(
                f"A pin can have at most {MAX_PIN} characters.", hint="Shorten the text."
            )
        if len(await self._store.compaction.pins(session)) >= MAX_PINS:
            raise UsageError(f"There are already {MAX_PINS} pins.", hint="Remove one: /unpin 1")
        note = f"[Pinned by the user; it applies until they unpin it] {text}"
        await self._commit(session, AddPin(Pin(new_id("pin"), session, text)), note, fence)

    async def remove(self, session: str, number: int, fence: Fence) -> str:
        """Remove pin `number`, counted from 1. Raises `UsageError`."""
        pins = await self._store.compaction.pins(session)
        if not 1 <= number <= len(pins):
            raise UsageError(f"There is no pin {number}.", hint="List them with /pin.")
        pin = pins[number - 1]
        note = f"[The user removed this pin] {pin.text}"
        await self._commit(session, RemovePin(pin.id), note, fence)
        return pin.text

    async def _commit(
        self, session: str, change: AddPin | RemovePin, note: str, fence: Fence
    ) -> None:
        message = User(new_id("msg"), (Text(note),), Trust.PROGRAM)
        added = AppendMessage(session, "", message, self._clock.now())
        await self._store.commit(change, added, fence=fence)
