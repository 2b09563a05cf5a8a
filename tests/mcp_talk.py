"""A profile with MCP servers, and turns in which a scripted model calls their tools."""

import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

import anyio
import msgspec
from msgspec import structs

from hermes.agent.plan import Plan
from hermes.agent.turn import run_turn
from hermes.app.build import App
from hermes.approvals.answering import Answerer
from hermes.schema.events import Asked, Event
from hermes.schema.messages import Result, text_of
from hermes.schema.questions import Choice
from hermes.schema.scope import Scope
from hermes.schema.sessions import Session
from hermes.testing.scripted import ScriptedModel, says
from processes import PATIENCE, wait_for_data
from small_profile import profile
from workbench import Ear, answer, call, user

SERVER = str(Path(__file__).with_name("mcp_server.py"))


def program(root: Path, **variables: str) -> dict[str, object]:
    """The settings of a server that is started."""
    env = {"PLAYGROUND": str(root), **variables}
    return {"command": sys.executable, "args": [SERVER], "env": env}


@contextmanager
def site(root: Path, *flags: str) -> Iterator[str]:
    """The address of a server that runs already."""
    words = [sys.executable, SERVER, "--http", *flags]
    env = {"PLAYGROUND": str(root)}
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=env) as server:
        assert server.stdout is not None
        try:
            port = wait_for_data(server.stdout.fileno()).decode().strip()
            yield f"http://127.0.0.1:{port}/{'sse' if '--sse' in flags else 'mcp'}"
        finally:
            server.kill()


@asynccontextmanager
async def talk(root: Path, servers: Mapping[str, object], **more: object) -> AsyncGenerator["Talk"]:
    settings = {"mcp_discovery_timeout": PATIENCE, "mcp_servers": servers, **more}
    async with profile(root, msgspec.json.encode(settings).decode()) as app:
        yield Talk(app, root)


class Talk:
    def __init__(self, app: App, root: Path) -> None:
        self.app = app
        self.root = root
        self.events: list[Event] = []
        self._answering: Callable[[Asked], None] | None = None
        self._turns = 0
        self.scope = Scope(
            profile="default", session="s1", run="r1", workspace=str(root / "work"), source="cli",
            attended=True,
        )  # fmt: skip

    async def plan(self, **scope: object) -> Plan:
        asked = structs.replace(self.scope, **scope)
        session = Session(id="s1", started_at=self.app.clock.now(), cwd=asked.workspace)
        plan = await self.app.planner.plan(session, asked, [])
        assert isinstance(plan, Plan)
        return plan

    async def names(self, **scope: object) -> set[str]:
        plan = await self.plan(**scope)
        return {name for name in plan.tools if name.startswith("mcp__")}

    async def says(self, *calls: tuple[str, Mapping[str, object]], **scope: object) -> list[Result]:
        """One turn in which the model makes these calls, one after the other."""
        self._turns += 1
        plan = await self.plan(**{"run": f"r{self._turns}", **scope})
        steps = [[answer(call(name, **args))] for name, args in calls]
        model = ScriptedModel(*steps, says("Done."))
        ear = Ear()

        async def hear(event: Event) -> None:
            self.events.append(event)
            await ear(event)
            if isinstance(event, Asked) and self._answering:
                self._answering(event)

        plan = structs.replace(plan, model=model, counsel=self.app.approvals)
        await run_turn(plan, [user("hi")], hear)
        return ear.results

    async def text(self, name: str, /, **args: object) -> str:
        [result] = await self.says((f"mcp__play__{name}", args))
        return text_of(result)

    async def answered(
        self, choice: Choice | str, *calls: tuple[str, Mapping[str, object]]
    ) -> tuple[list[Result], int]:
        """The same while a person answers each question; with how many there were."""
        before = self.asked
        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as person:
                self._answering = partial(person.start_soon, self._answer, choice)
                found = await self.says(*calls)
                self._answering = None
        return found, self.asked - before

    async def _answer(self, choice: Choice | str, asked: Asked) -> None:
        desk, me, question = self.app.approvals, Answerer(session="s1"), asked.question.id
        if isinstance(choice, Choice):
            await desk.answer(me, choice, question=question)
        else:
            await desk.reply(me, choice, question=question)

    @property
    def asked(self) -> int:
        return len(self.questions)

    @property
    def questions(self) -> list[str]:
        return [one.question.text for one in self.events if isinstance(one, Asked)]


async def until(true: Callable[[], bool]) -> None:
    with anyio.fail_after(PATIENCE):
        while not true():  # noqa: ASYNC110 - files and processes set no event
            await anyio.sleep(0.01)


def is_alive(pid: str) -> bool:
    return Path(f"/proc/{pid}").exists()


def lines(path: Path) -> Sequence[str]:
    return path.read_text().splitlines() if path.exists() else []
