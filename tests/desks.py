"""An approval desk on a real store, with what a run told and somebody who answers."""

import anyio
from msgspec import Raw, structs

from hermes.approvals.desk import Answerer, ApprovalDesk, Limits
from hermes.approvals.policy import Rules
from hermes.approvals.smart import Judge
from hermes.ports.counsel import Reaching, Ruling, Wish
from hermes.ports.store import Parcel
from hermes.schema.events import Asked, Event
from hermes.schema.questions import Choice, Question
from hermes.schema.scope import Role, Scope
from hermes.store.sqlite import SqliteStore
from hermes.testing.clock import FakeClock

SCOPE = Scope("default", "s1", "r1", "/w", attended=True, source="cli")
WISH = Wish(  # noqa: S604 - a word of our own
    tool="terminal", action="rm -rf build", reaching=Reaching.OPEN, shell=True, folder="/w",
    reason="to build anew",
)  # fmt: skip
TURN = structs.replace(SCOPE, key="agent:main:test:dm:1", call="call_1")
"""One that is taken up again after the next start, while the inbox holds what it began with."""
ALLOWED = Ruling(allowed=True, why="A person allowed it, this once.")
ME = Answerer(session="s1")
MEMBER = Answerer(session="s1", principal="m", role=Role.MEMBER)


class House:
    """A desk on a real store, and what a run told."""

    def __init__(self, store: SqliteStore, clock: FakeClock) -> None:
        self.store, self.clock = store, clock
        self.told: list[Event] = []
        self._heard = anyio.Event()
        self.desk = self.opened()

    def opened(self, judge: Judge | None = None, **rules: object) -> ApprovalDesk:
        """A desk as after a start."""
        settings = Rules(**({"home": "/h"} | rules))  # pyright: ignore[reportArgumentType]
        self.desk = ApprovalDesk(self.store, self.clock, settings, Limits(), judge)
        return self.desk

    async def begun(self, key: str = TURN.key) -> None:
        """The inbox holds what a turn was begun with."""
        letter = Parcel(key=f"letter for {key}", lane="inbox", topic=key, body=Raw(b"{}"))
        await self.store.lanes.put(letter)

    async def tell(self, event: Event) -> None:
        self.told.append(event)
        self._heard.set()

    async def rule(self, wish: Wish = WISH, scope: Scope = SCOPE) -> Ruling:
        return await self.desk.rule(scope, wish, self.tell)

    @property
    def questions(self) -> list[Question]:
        return [one.question for one in self.told if isinstance(one, Asked)]

    async def asked(self, count: int = 1) -> Question:
        with anyio.fail_after(60):
            while len(self.questions) < count:
                self._heard = anyio.Event()
                await self._heard.wait()
        return self.questions[-1]


class UnderWay:
    """A wish under way."""

    def __init__(self, house: House, wish: Wish = WISH, scope: Scope = SCOPE) -> None:
        self._house, self._wish, self._scope = house, wish, scope
        self.ruling: Ruling | None = None

    async def run(self) -> None:
        self.ruling = await self._house.rule(self._wish, self._scope)


async def answered(house: House, choice: Choice, who: Answerer = ME, **more: object) -> Ruling:
    wish = more.pop("wish", WISH)
    assert isinstance(wish, Wish)
    under_way = UnderWay(house, wish)
    before = len(house.questions)
    async with anyio.create_task_group() as group:
        group.start_soon(under_way.run)
        await house.asked(before + 1)
        await house.desk.answer(who, choice, **more)  # pyright: ignore[reportArgumentType]
    assert under_way.ruling is not None
    return under_way.ruling
