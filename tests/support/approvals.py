"""An approval desk on a real store, with what a run told and somebody who answers."""

import anyio
from msgspec import Raw, structs

from hermes.approvals.policy import ApprovalRules
from hermes.approvals.service import Answerer, ApprovalService, QuestionTimeouts
from hermes.approvals.smart_review import AskModel
from hermes.ports.approvals import ApprovalRequest, Decision, Isolation
from hermes.ports.store import QueueItem
from hermes.schema.events import Event, QuestionAsked
from hermes.schema.questions import ApprovalChoice, Question
from hermes.schema.scope import Role, Scope
from hermes.store.sqlite import SqliteStore
from hermes.testing.clock import FakeClock

SCOPE = Scope("default", "s1", "r1", "/w", attended=True, source="cli")
APPROVAL_REQUEST = ApprovalRequest(  # noqa: S604 - a word of our own
    tool="terminal", action="rm -rf build", reaching=Isolation.OPEN, shell=True, folder="/w",
    reason="to build anew",
)  # fmt: skip
RESUMED_SCOPE = structs.replace(SCOPE, key="agent:main:test:dm:1", call="call_1")
"""One that is taken up again after the next start, while the inbox holds what it began with."""
ALLOWED = Decision(allowed=True, why="A person allowed it, this once.")
OWNER_ANSWERER = Answerer(session="s1")
MEMBER_ANSWERER = Answerer(session="s1", principal="m", role=Role.MEMBER)


class ApprovalHarness:
    """A desk on a real store, and what a run told."""

    def __init__(self, store: SqliteStore, clock: FakeClock) -> None:
        self.store, self.clock = store, clock
        self.told: list[Event] = []
        self._heard = anyio.Event()
        self.desk = self.opened()

    def opened(self, judge: AskModel | None = None, **rules: object) -> ApprovalService:
        """A desk as after a start."""
        settings = ApprovalRules(**({"home": "/h"} | rules))  # pyright: ignore[reportArgumentType]
        self.desk = ApprovalService(self.store, self.clock, settings, QuestionTimeouts(), judge)
        return self.desk

    async def begun(self, key: str = RESUMED_SCOPE.key) -> None:
        """The inbox holds what a turn was begun with."""
        letter = QueueItem(key=f"letter for {key}", lane="inbox", topic=key, body=Raw(b"{}"))
        await self.store.queues.put(letter)

    async def tell(self, event: Event) -> None:
        self.told.append(event)
        self._heard.set()

    async def rule(
        self, wish: ApprovalRequest = APPROVAL_REQUEST, scope: Scope = SCOPE
    ) -> Decision:
        return await self.desk.rule(scope, wish, self.tell)

    @property
    def questions(self) -> list[Question]:
        return [one.question for one in self.told if isinstance(one, QuestionAsked)]

    async def asked(self, count: int = 1) -> Question:
        with anyio.fail_after(60):
            while len(self.questions) < count:
                self._heard = anyio.Event()
                await self._heard.wait()
        return self.questions[-1]


class PendingApproval:
    """A wish under way."""

    def __init__(
        self, house: ApprovalHarness, wish: ApprovalRequest = APPROVAL_REQUEST, scope: Scope = SCOPE
    ) -> None:
        self._house, self._wish, self._scope = house, wish, scope
        self.decision: Decision | None = None

    async def run(self) -> None:
        self.decision = await self._house.rule(self._wish, self._scope)


async def answer_request(
    house: ApprovalHarness, choice: ApprovalChoice, who: Answerer = OWNER_ANSWERER, **more: object
) -> Decision:
    wish = more.pop("wish", APPROVAL_REQUEST)
    assert isinstance(wish, ApprovalRequest)
    under_way = PendingApproval(house, wish)
    before = len(house.questions)
    async with anyio.create_task_group() as group:
        group.start_soon(under_way.run)
        await house.asked(before + 1)
        await house.desk.answer(who, choice, **more)  # pyright: ignore[reportArgumentType]
    assert under_way.decision is not None
    return under_way.decision
