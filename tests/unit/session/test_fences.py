"""Whatever a run writes, it writes under its lease: who has lost the session changes nothing."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw

from hermes.ports.counsel import Left
from hermes.ports.store import Append, Fence, OpenSession, Parcel, Write
from hermes.schema.errors import LeaseLost, StoreError
from hermes.schema.events import Outcome
from hermes.schema.messages import Message, Result, Text, User
from hermes.schema.sessions import Session
from hermes.session.accepting import Turn
from hermes.session.lease import LEASE, Lease
from hermes.session.recovery import close_lost_calls
from hermes.session.runner import Runner
from hermes.testing.clock import FakeClock
from hermes.testing.scripted import ScriptedModel, says
from talks import ScriptedPlanner, StoreWith, Talk, half_a_cent, talk
from workbench import Ear, FakeTool, answer, call, user

pytestmark = pytest.mark.anyio

CLOCK = FakeClock()
ELSEWHERE = "elsewhere/boot/7/1"
SESSION = Session(id="s1", started_at=CLOCK.now())


class Watched:
    """A runner, and what it committed without a fence."""

    def __init__(self, one: Talk) -> None:
        self.unfenced: list[Write] = []
        self._store = one.store
        planner = ScriptedPlanner(ScriptedModel(says("Well.")), {"act": FakeTool("act")})
        store = StoreWith(one.store, commit=self._commit)
        self.runner = Runner(store, CLOCK, planner, half_a_cent, "default")  # type: ignore[arg-type]

    async def _commit(self, *writes: Write, fence: Fence | None = None) -> None:
        if fence is None:
            self.unfenced += writes
        await self._store.commit(*writes, fence=fence)


async def said_before(one: Talk, *messages: Message) -> None:
    said = [Append("s1", "run_0", message, CLOCK.now()) for message in messages]
    await one.store.commit(OpenSession(SESSION), *said)


@asynccontextmanager
async def watched(folder: Path, *messages: Message) -> AsyncGenerator[Watched]:
    async with talk(folder) as one:
        await said_before(one, *messages)
        yield Watched(one)


async def test_results_that_were_handed_in(tmp_path: Path) -> None:
    handed = call("weather")
    results = (Result("r1", handed.id, (Text("rain"),)),)
    async with watched(tmp_path, user(), answer(handed)) as one:
        turn = Turn(session=SESSION, asked=None, listen=Ear(), results=results, new=False)
        assert await one.runner.run(turn) is Outcome.DONE
        assert one.unfenced == []


async def test_ends_of_lost_calls(tmp_path: Path) -> None:
    async with watched(tmp_path, user(), answer(call("act"))) as one:
        turn = Turn(session=SESSION, asked=user("and?"), listen=Ear())
        assert await one.runner.run(turn) is Outcome.DONE
        assert one.unfenced == []


async def test_what_was_heard_before_and_is_settled_now(tmp_path: Path) -> None:
    heard = user("heard")
    async with talk(tmp_path) as talking:
        await said_before(talking, heard)
        body = Raw(msgspec.json.encode(heard))
        await talking.store.lanes.put(Parcel(key=heard.id, lane="inbox", topic="s1", body=body))
        one = Watched(talking)
        turn = Turn(session=SESSION, asked=User("u2", (Text("more"),)), listen=Ear())
        assert await one.runner.run(turn) is Outcome.DONE
        assert one.unfenced == []


@pytest.mark.parametrize("left", [Left(), Left(told={"c1": "Not done."})])
async def test_who_lost_the_session_closes_no_calls(tmp_path: Path, left: Left) -> None:
    async with talk(tmp_path) as one:
        asked: list[Message] = [user(), answer(call("act"))]
        await said_before(one, *asked)
        lease = Lease(one.store, "s1", "we/boot/1/1")
        await lease.take()
        await one.store.leases.release("s1", lease.generation)
        await one.store.leases.hold("s1", ELSEWHERE, LEASE)
        with pytest.raises(LeaseLost):
            await close_lost_calls(one.store, CLOCK, lease.fence, asked, left)
        await one.conversation.resume("s1")
        assert len(await one.rows()) == 2


async def test_a_lease_is_given_back_whatever_else_fails(tmp_path: Path) -> None:
    class Questions:
        async def left(self, session: str, *, resumed: bool) -> Left:
            return Left()

        async def over(self, session: str) -> None:
            raise StoreError("The disk is full.")

        async def sweep(self) -> None: ...

    async with talk(tmp_path, says("Good day.")) as one:
        await one.say("hello")
        one.runner.minds(Questions())
        one.planner.broken = "There is no such model."
        with pytest.raises(StoreError, match="disk is full"):
            await one.say("and now?")
        assert not await one.store.leases.held(one.conversation.session.id)
