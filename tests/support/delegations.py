"""Delegations with a real store, a scripted model and an inbox for their reports."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

import anyio
import msgspec
from msgspec import Raw

from hermes.kit.tasks import background_tasks
from hermes.ports.model import ModelRequest
from hermes.ports.store import EnqueueItem, OpenSession, QueueItem, Write
from hermes.schema.errors import StoreError
from hermes.schema.messages import Trust, text_of
from hermes.schema.scope import OWNER, Scope
from hermes.schema.sessions import Session, SessionFilter
from hermes.store.memory import MemoryDatabase
from hermes.store.sqlite import SqliteStore
from hermes.subagents.delegations import (
    DelegationDeps,
    DelegationRules,
    Delegations,
)
from hermes.testing.clock import FakeClock
from hermes.testing.scripted_model import Script, ScriptStep, answer_script
from support.conversation import ConversationHarness, conversation_harness
from support.polling import pause
from support.turns import FakeTool


@asynccontextmanager
async def open_delegations(deps: DelegationDeps) -> AsyncGenerator[Delegations]:
    """As in a profile: the delegations are cancelled at the end of the block."""
    async with background_tasks() as group:
        delegations = Delegations(deps, group)
        group.start_soon(delegations.recover)
        yield delegations


SCOPE = Scope("default", "parent", "run_1", "/work", source="cli")


class FakeFollowups:
    """Puts follow-ups into the inbox and records woken scopes."""

    def __init__(self) -> None:
        self.woken: list[str] = []

    def rows(
        self, scope: Scope, key: str, text: str, *, trust: Trust = Trust.DATA
    ) -> Sequence[Write]:
        body = Raw(msgspec.json.encode(text))
        return [EnqueueItem(QueueItem(key=key, queue="inbox", topic=scope.session, body=body))]

    def wake(self, scope: Scope) -> None:
        self.woken.append(scope.session)


class DelegationHarness:
    def __init__(
        self, talking: ConversationHarness, clock: FakeClock, rules: DelegationRules
    ) -> None:
        self.store: SqliteStore = talking.store
        self.model = talking.model
        self.planner = talking.planner
        self.clock = clock
        self.followups = FakeFollowups()
        self.deps = DelegationDeps(
            store=self.store,
            runner=talking.runner,
            clock=clock,
            followups=self.followups,
            rules=rules,
        )

    async def inbox_texts(self) -> list[str]:
        found = await self.store.queues.claim("inbox", "parent", "me", timedelta(0), 100)
        return [msgspec.json.decode(one.body) for one in found]

    async def next_report(self) -> str:
        with anyio.fail_after(60):
            while not self.followups.woken:
                await pause()
        (letter,) = await self.inbox_texts()
        return letter


@asynccontextmanager
async def delegation_harness(
    *scripts: Script,
    tools: Sequence[FakeTool] = (),
    rules: DelegationRules | None = None,
    database: MemoryDatabase | None = None,
) -> AsyncGenerator[tuple[DelegationHarness, Delegations]]:
    clock = FakeClock()
    async with conversation_harness(
        *scripts, tools=tools, clock=clock, database=database
    ) as talking:
        built = DelegationHarness(talking, clock, rules or DelegationRules())
        with suppress(StoreError):  # it exists when the harness is reopened
            await built.store.commit(OpenSession(Session(id="parent", started_at=clock.now())))
        async with open_delegations(built.deps) as delegations:
            yield built, delegations


async def subagent_sessions(built: DelegationHarness) -> list[Session]:
    found = await built.store.archive_for(OWNER).list(SessionFilter(reviews=True))
    return [digest.session for digest in found if digest.session.parent == "parent"]


async def ignore_progress(text: str) -> None:
    """Ignore it."""


def echo_task(request: ModelRequest) -> Sequence[ScriptStep]:
    """Answer with the last line of the task."""
    task = text_of(request.messages[-1])
    return answer_script(f"did {task.splitlines()[-1]}")


async def wait_for_requests(built: DelegationHarness, count: int = 1) -> None:
    with anyio.fail_after(60):
        while len(built.model.requests) < count:
            await pause()


async def wait_until_settled(built: DelegationHarness, delegations: Delegations) -> None:
    with anyio.fail_after(60):
        while delegations.running_in("parent", ""):
            await pause()
    assert not await built.store.delegations.running()
