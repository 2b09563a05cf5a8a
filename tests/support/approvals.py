"""An approval service on a real store, for tests."""

import anyio
from msgspec import Raw, structs

from hermes.approvals.policy import ApprovalRules
from hermes.approvals.questions import QuestionForwarder, QuestionTimeouts
from hermes.approvals.service import Answerer, ApprovalService
from hermes.approvals.smart_review import AskModel
from hermes.ports.approvals import ApprovalRequest, Decision, Isolation
from hermes.ports.store import QueueItem
from hermes.schema.events import Event, QuestionAsked
from hermes.schema.questions import ApprovalChoice, Question
from hermes.schema.scope import Role, Scope
from hermes.store.sqlite import SqliteStore
from hermes.testing.clock import FakeClock

SCOPE = Scope("default", "s1", "r1", "/w", attended=True, source="cli")
APPROVAL_REQUEST = ApprovalRequest(  # noqa: S604 - not a subprocess argument
    tool="terminal", action="rm -rf build", reaching=Isolation.OPEN, shell=True, folder="/w",
    reason="to rebuild",
)  # fmt: skip
RESUMED_SCOPE = structs.replace(SCOPE, key="agent:main:test:dm:1", call="call_1")
"""Scope of a turn that resumes after a restart while its message is in the inbox."""
ALLOWED = Decision(allowed=True, why="A person allowed it once.")
OWNER_ANSWERER = Answerer(session="s1")
MEMBER_ANSWERER = Answerer(session="s1", principal="m", role=Role.MEMBER)


class ApprovalHarness:
    """A service on a real store, and the events of a run."""

    forwarder: QuestionForwarder | None = None

    def __init__(self, store: SqliteStore, clock: FakeClock) -> None:
        self.store, self.clock = store, clock
        self.events: list[Event] = []
        self._event_added = anyio.Event()
        self.timeouts = QuestionTimeouts(terminal=60.0)
        self.service = self.restart()

    def restart(self, judge: AskModel | None = None, **rules: object) -> ApprovalService:
        """Replace the service, as a restart does."""
        settings = ApprovalRules(**({"home": "/h"} | rules))  # pyright: ignore[reportArgumentType]
        self.service = ApprovalService(
            self.store, self.clock, settings, self.timeouts, judge, self.forwarder
        )
        return self.service

    async def queue_turn(self, key: str = RESUMED_SCOPE.key) -> None:
        """Put the message that began a turn into the inbox."""
        item = QueueItem(key=f"message for {key}", queue="inbox", topic=key, body=Raw(b"{}"))
        await self.store.queues.put(item)

    async def emit(self, event: Event) -> None:
        self.events.append(event)
        self._event_added.set()

    async def decide(
        self, request: ApprovalRequest = APPROVAL_REQUEST, scope: Scope = SCOPE
    ) -> Decision:
        return await self.service.decide(scope, request, self.emit)

    @property
    def questions(self) -> list[Question]:
        return [one.question for one in self.events if isinstance(one, QuestionAsked)]

    async def wait_for_question(self, count: int = 1) -> Question:
        with anyio.fail_after(60):
            while len(self.questions) < count:
                self._event_added = anyio.Event()
                await self._event_added.wait()
        return self.questions[-1]


class PendingApproval:
    """A request that waits for its decision."""

    def __init__(
        self,
        harness: ApprovalHarness,
        request: ApprovalRequest = APPROVAL_REQUEST,
        scope: Scope = SCOPE,
    ) -> None:
        self._harness, self._request, self._scope = harness, request, scope
        self.decision: Decision | None = None

    async def run(self) -> None:
        self.decision = await self._harness.decide(self._request, self._scope)


async def answer_request(
    harness: ApprovalHarness, choice: ApprovalChoice, who: Answerer = OWNER_ANSWERER, **more: object
) -> Decision:
    request = more.pop("request", APPROVAL_REQUEST)
    assert isinstance(request, ApprovalRequest)
    pending = PendingApproval(harness, request)
    before = len(harness.questions)
    async with anyio.create_task_group() as group:
        group.start_soon(pending.run)
        await harness.wait_for_question(before + 1)
        await harness.service.answer(who, choice, **more)  # pyright: ignore[reportArgumentType]
    assert pending.decision is not None
    return pending.decision
