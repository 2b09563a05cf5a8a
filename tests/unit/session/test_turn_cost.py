"""The cost of a turn in commits, thread calls, tasks and statements."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from hermes.kit.failpoints import watch_failpoints
from hermes.ports.bus import RUN_TOPIC
from hermes.ports.store import OpenSession
from hermes.schema.events import Outcome, RunEnded
from hermes.schema.messages import Usage
from hermes.schema.sessions import Session
from hermes.session.followed_run import RunReading
from hermes.session.turn_request import TurnRequest
from hermes.store.connection import Connection
from hermes.store.database_file import open_writer
from hermes.store.engine import Engine
from hermes.store.sqlite import SqliteStore
from hermes.testing.clock import FakeClock
from hermes.testing.scripted_model import Script, answer_script
from support.conversation import ConversationHarness
from support.turns import EventRecorder, FakeTool, assistant_message, tool_call, user_message

R = TypeVar("R")


class CountingEngine(Engine):
    """Counts calls to the writer thread and the statements they run."""

    def __init__(self, connection: Connection, path: Path) -> None:
        super().__init__(connection, path)
        self.errands: Counter[str] = Counter()
        self.statements = 0
        self._counting = False
        traced: Any = connection
        traced.exec_trace = self._trace

    def _trace(self, *_: object) -> bool:
        # Background indexing does not count.
        self.statements += self._counting
        return True

    async def write(self, work: Callable[[Connection], R], *, droppable: bool = False) -> R:
        self.errands["write"] += 1

        def counted(connection: Connection) -> R:
            self._counting = True
            try:
                return work(connection)
            finally:
                self._counting = False

        return await super().write(counted, droppable=droppable)

    async def read(self, work: Callable[[Connection], R]) -> R:
        self.errands["read"] += 1
        return await super().read(work)


class Counted:
    def __init__(self, engine: CountingEngine, talk: ConversationHarness, session: Session) -> None:
        self._engine = engine
        self._talk = talk
        self._session = session

    async def turn(self, *, new: bool = False, opened: bool = False) -> Counter[str]:
        """Runs one, and says what it took."""
        counts: Counter[str] = Counter()

        def reached(name: str) -> None:
            counts["commits"] += name == "writer.after_commit"

        def made(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **more: Any):
            counts["tasks"] += 1
            return asyncio.Task(work, loop=loop, **more)

        turn = TurnRequest(session=self._session, message=user_message(), new=new, opened=opened)
        runner, events = self._talk.runner, EventRecorder()
        reading = RunReading(events, runner.bus, turn.run)
        before = self._engine.errands.copy()
        loop = asyncio.get_running_loop()
        loop.set_task_factory(made)
        try:
            topic = RUN_TOPIC.format(turn.run)
            with watch_failpoints(reached), runner.bus.subscribe(topic, events.on_event):
                await runner.run(turn, reading)
        finally:
            loop.set_task_factory(None)
        ended = events.events[-1]
        assert isinstance(ended, RunEnded)
        assert ended.outcome is Outcome.DONE
        return counts + (self._engine.errands - before)

    async def open(self) -> None:
        await self._talk.store.commit(OpenSession(self._session))

    async def statements(self, *, new: bool = False) -> int:
        """How many one turn takes."""
        before = self._engine.statements
        await self.turn(new=new)
        return self._engine.statements - before


@asynccontextmanager
async def counted(folder: Path, *scripts: Script) -> AsyncGenerator[Counted]:
    clock = FakeClock()
    engine = CountingEngine(open_writer(folder / "hermes.db"), folder / "hermes.db")
    store = SqliteStore(engine, clock)
    try:
        harness = ConversationHarness(store, clock, scripts, [FakeTool("look")])
        yield Counted(engine, harness, Session(id="s", started_at=clock.now()))
    finally:
        await store.close()


async def test_first_turn_is_two_commits_and_two_tasks(tmp_path: Path) -> None:
    """One task renews leases, one stores answers that take longer than a second."""
    async with counted(tmp_path, answer_script("Good day.")) as harness:
        took = await harness.turn(new=True)
    assert took == {"commits": 2, "write": 2, "tasks": 2}


async def test_next_turn_adds_one_commit_and_reads_nothing(tmp_path: Path) -> None:
    """The tasks still run from the first turn."""
    async with counted(tmp_path, answer_script("one"), answer_script("two")) as harness:
        await harness.turn(new=True)
        took = await harness.turn()
    assert took == {"commits": 3, "write": 3}


async def test_first_turn_of_an_opened_session_reads_nothing(tmp_path: Path) -> None:
    async with counted(tmp_path, answer_script("one")) as harness:
        await harness.open()
        took = await harness.turn(opened=True)
    assert took["read"] == 0


async def test_read_only_call_adds_two_commits(tmp_path: Path) -> None:
    """One for the answer with the call, one for the result."""
    async with counted(
        tmp_path, [assistant_message(tool_call("look"))], answer_script("seen")
    ) as harness:
        took = await harness.turn(new=True)
    assert (took["commits"], took["write"], took["read"]) == (4, 4, 0)


async def test_first_turn_is_eleven_statements(tmp_path: Path) -> None:
    """Five for the lease, the session and the question, six for the answer and the end."""
    async with counted(tmp_path, [assistant_message("Good day.", usage=Usage(10, 2))]) as harness:
        assert await harness.statements(new=True) == 11
