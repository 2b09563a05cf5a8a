"""Pinned notes, which are added to the conversation and repeated below every summary."""

from collections.abc import Sequence

import msgspec
from msgspec import Raw, Struct

from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
from hermes.kit.text import one_line
from hermes.ports.records import PutRecord, StateRecord
from hermes.ports.store import AppendMessage, Fence, Store
from hermes.schema.errors import UsageError
from hermes.schema.messages import Text, Trust, User

PIN_KIND = "pin"
MAX_PINS = 20
MAX_PIN = 500


class _PinBody(Struct, frozen=True):
    text: str


class Pins:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def texts(self, session: str) -> Sequence[str]:
        return [text for _, text in await self._open(session)]

    async def add(self, session: str, text: str, fence: Fence) -> None:
        """Raises `UsageError` if the text is too long or there are too many pins."""
        text = one_line(text, MAX_PIN + 1)
        if len(text) > MAX_PIN:
            raise UsageError(
                f"A pin can have at most {MAX_PIN} characters.", hint="Shorten the text."
            )
        if len(await self._open(session)) >= MAX_PINS:
            raise UsageError(f"There are already {MAX_PINS} pins.", hint="Remove one: /unpin 1")
        note = f"[Pinned by the person; it counts until they take it back] {text}"
        pin = self._record(new_id("pin"), session, text, is_open=True)
        await self._commit(pin, note, fence)

    async def remove(self, session: str, number: int, fence: Fence) -> str:
        """Remove pin `number`, counted from 1. Raises `UsageError`."""
        pins = await self._open(session)
        if not 1 <= number <= len(pins):
            raise UsageError(f"There is no pin {number}.", hint="List them with /pin.")
        record, text = pins[number - 1]
        closed = self._record(record.id, session, text, is_open=False)
        await self._commit(closed, f"[The person took this pin back] {text}", fence)
        return text

    async def _commit(self, pin: StateRecord, note: str, fence: Fence) -> None:
        message = User(new_id("msg"), (Text(note),), Trust.PROGRAM)
        added = AppendMessage(pin.session, "", message, self._clock.now())
        await self._store.commit(PutRecord(pin), added, fence=fence)

    async def _open(self, session: str) -> list[tuple[StateRecord, str]]:
        find = self._store.records.find
        pins = await find(PIN_KIND, session=session, only_open=True, limit=MAX_PINS)
        return [(pin, msgspec.json.decode(pin.body, type=_PinBody).text) for pin in pins]

    def _record(self, identity: str, session: str, text: str, *, is_open: bool) -> StateRecord:
        return StateRecord(
            kind=PIN_KIND,
            id=identity,
            session=session,
            state="pinned" if is_open else "taken back",
            at=self._clock.now(),
            body=Raw(msgspec.json.encode(_PinBody(text))),
            open=is_open,
        )
