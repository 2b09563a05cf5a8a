"""What a person pinned: told to the model at once, and again below every summary."""

from collections.abc import Sequence

import msgspec
from msgspec import Raw, Struct

from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
from hermes.kit.text import one_line
from hermes.ports.matters import Matter, PutMatter
from hermes.ports.store import Append, Fence, Store
from hermes.schema.errors import UsageError
from hermes.schema.messages import Text, Trust, User

PIN = "pin"
MOST = 20
LONGEST = 500


class _Body(Struct, frozen=True):
    text: str


class Pins:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def of(self, session: str) -> Sequence[str]:
        return [text for _, text in await self._open(session)]

    async def add(self, session: str, text: str, fence: Fence) -> None:
        """Raises `UsageError` when it is too long, or too many are there."""
        text = one_line(text, LONGEST + 1)
        if len(text) > LONGEST:
            raise UsageError(f"A pin has at most {LONGEST} characters.", hint="Say it shorter.")
        if len(await self._open(session)) >= MOST:
            raise UsageError(f"There are {MOST} pins already.", hint="Take one away: /unpin 1")
        said = f"[Pinned by the person; it counts until they take it back] {text}"
        message = User(new_id("msg"), (Text(said),), Trust.HOUSE)
        now = self._clock.now()
        pin = self._matter(new_id("pin"), session, text, is_open=True)
        await self._store.commit(PutMatter(pin), Append(session, "", message, now), fence=fence)

    async def remove(self, session: str, number: int, fence: Fence) -> str:
        """The `number`-th, from 1 on. Raises `UsageError`."""
        pins = await self._open(session)
        if not 1 <= number <= len(pins):
            raise UsageError("There is no pin of that number.", hint="/pin lists them.")
        matter, text = pins[number - 1]
        said = f"[The person took this pin back] {text}"
        message = User(new_id("msg"), (Text(said),), Trust.HOUSE)
        closed = self._matter(matter.id, session, text, is_open=False)
        now = self._clock.now()
        await self._store.commit(PutMatter(closed), Append(session, "", message, now), fence=fence)
        return text

    async def _open(self, session: str) -> list[tuple[Matter, str]]:
        found = await self._store.matters.find(PIN, session=session, only_open=True, limit=MOST)
        return [(one, msgspec.json.decode(one.body, type=_Body).text) for one in found]

    def _matter(self, identity: str, session: str, text: str, *, is_open: bool) -> Matter:
        return Matter(
            kind=PIN,
            id=identity,
            session=session,
            state="pinned" if is_open else "taken back",
            at=self._clock.now(),
            body=Raw(msgspec.json.encode(_Body(text))),
            open=is_open,
        )
