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
from hermes.approvals.questions import Answerer
from hermes.schema.events import Event, QuestionAsked
from hermes.schema.messages import Result, text_of
from hermes.schema.questions import ApprovalChoice
from hermes.schema.scope import Scope
from hermes.schema.sessions import Session
from hermes.testing.scripted_model import ScriptedModel, answer_script
from support.app_profile import open_profile
from support.cli_process import TEST_TIMEOUT, wait_for_data
from support.turns import EventRecorder, assistant_message, tool_call, user_message

SERVER_SCRIPT = str(Path(__file__).with_name("mcp_server.py"))


def stdio_server(root: Path, **variables: str) -> dict[str, object]:
    """Settings of a server that is started as a process."""
    env = {"PLAYGROUND": str(root), **variables}
    return {"command": sys.executable, "args": [SERVER_SCRIPT], "env": env}


@contextmanager
def http_server(root: Path, *flags: str) -> Iterator[str]:
    """Run a server and yield its URL."""
    argv = [sys.executable, SERVER_SCRIPT, "--http", *flags]
    env = {"PLAYGROUND": str(root)}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env=env) as server:
        assert server.stdout is not None
        try:
            port = wait_for_data(server.stdout.fileno()).decode().strip()
            yield f"http://127.0.0.1:{port}/{'sse' if '--sse' in flags else 'mcp'}"
        finally:
            server.kill()


@asynccontextmanager
async def mcp_harness(
    root: Path, servers: Mapping[str, object], **more: object
) -> AsyncGenerator["McpHarness"]:
    settings = {"mcp_discovery_timeout": TEST_TIMEOUT, "mcp_servers": servers, **more}
    async with open_profile(root, msgspec.json.encode(settings).decode()) as app:
        yield McpHarness(app, root)


class McpHarness:
    def __init__(self, app: App, root: Path) -> None:
        self.app = app
        self.root = root
        self.events: list[Event] = []
        self._answering: Callable[[QuestionAsked], None] | None = None
        self._turns = 0
        self.scope = Scope(
            profile="default", session="s1", run="r1", workspace=str(root / "work"), source="cli",
            attended=True,
        )  # fmt: skip

    async def plan(self, **scope: object) -> Plan:
        question = structs.replace(self.scope, **scope)
        session = Session(id="s1", started_at=self.app.clock.now(), cwd=question.workspace)
        plan = await self.app.planner.plan(session, question, [])
        assert isinstance(plan, Plan)
        return plan

    async def names(self, **scope: object) -> set[str]:
        plan = await self.plan(**scope)
        return {name for name in plan.tools if name.startswith("mcp__")}

    async def call_tools(
        self, *calls: tuple[str, Mapping[str, object]], **scope: object
    ) -> list[Result]:
        """Run a turn in which the model makes these calls in order."""
        self._turns += 1
        plan = await self.plan(**{"run": f"r{self._turns}", **scope})
        steps = [[assistant_message(tool_call(name, **args))] for name, args in calls]
        model = ScriptedModel(*steps, answer_script("Done."))
        events_ = EventRecorder()

        async def record(event: Event) -> None:
            self.events.append(event)
            await events_(event)
            if isinstance(event, QuestionAsked) and self._answering:
                self._answering(event)

        plan = structs.replace(plan, model=model, approvals=lambda: self.app.approvals)
        await run_turn(plan, [user_message("hi")], record)
        return events_.results

    async def text(self, name: str, /, **args: object) -> str:
        [result] = await self.call_tools((f"mcp__play__{name}", args))
        return text_of(result)

    async def call_with_answers(
        self, choice: ApprovalChoice | str, *calls: tuple[str, Mapping[str, object]]
    ) -> tuple[list[Result], int]:
        """Like `call_tools`, answering each question; also return the number of questions."""
        before = self.question_count
        with anyio.fail_after(TEST_TIMEOUT):
            async with anyio.create_task_group() as person:
                self._answering = partial(person.start_soon, self._answer, choice)
                found = await self.call_tools(*calls)
                self._answering = None
        return found, self.question_count - before

    async def _answer(self, choice: ApprovalChoice | str, approval_question: QuestionAsked) -> None:
        approvals, me, question = (
            self.app.approvals,
            Answerer(session="s1"),
            approval_question.question.id,
        )
        if isinstance(choice, ApprovalChoice):
            await approvals.answer(me, choice, question=question)
        else:
            await approvals.reply(me, choice, question=question)

    @property
    def question_count(self) -> int:
        return len(self.questions)

    @property
    def questions(self) -> list[str]:
        return [one.question.text for one in self.events if isinstance(one, QuestionAsked)]


async def wait_until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(TEST_TIMEOUT):
        while not condition():  # noqa: ASYNC110 - files and processes set no event
            await anyio.sleep(0.01)


def is_alive(pid: str) -> bool:
    return Path(f"/proc/{pid}").exists()


def lines(path: Path) -> Sequence[str]:
    return path.read_text().splitlines() if path.exists() else []
