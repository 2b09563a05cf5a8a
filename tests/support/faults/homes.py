"""A home that is broken in some way, and the messages observed there."""

import io
import os
from argparse import Namespace
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import anyio

from hermes.app.build import App, AppOptions, open_app
from hermes.app.storage import open_archive
from hermes.cli.arguments import build_parser
from hermes.cli.boundary import run_guarded
from hermes.cli.context import CliContext
from hermes.config.env import Env
from hermes.config.home import Home, resolve_home
from hermes.ipc.client import AgentClient, ConversationOptions
from hermes.ipc.conversation_service import open_in_process
from hermes.kit.clock import SystemClock
from hermes.schema.scope import OWNER
from hermes.schema.sessions import SessionFilter
from support.faults.scenarios import SECRET_KEY, ExpectedMessage, FaultScenario


class ObservedMessages(NamedTuple):
    """The observed messages, and the exit code if it was a command."""

    expected: ExpectedMessage
    messages: Sequence[str]
    code: int | None = None


class FaultHome:
    """A home set up for a fault scenario."""

    def __init__(self, root: Path, scenario: FaultScenario, url: str) -> None:
        self.scenario = scenario
        self.root = root
        self.path = root / "home"
        self.path.mkdir(mode=0o700)
        self.work = root / "work"
        self.work.mkdir()
        self.url = scenario.url or url
        self.env = Env(
            {
                "HOME": str(root),
                "PATH": os.environ["PATH"],
                "HERMES_HOME": str(self.path),
                "OPENAI_BASE_URL": self.url,
                "OPENAI_API_KEY": SECRET_KEY,
                "HERMES_INFERENCE_PROVIDER": "openai",
                "HERMES_INFERENCE_MODEL": "mock",
                **scenario.env,
            }
        )
        if scenario.config:
            (self.path / "config.yaml").write_text(scenario.config)
        scenario.broken(self.path)

    @property
    def home(self) -> Home:
        return resolve_home(self.env)

    @contextmanager
    def client(self) -> Iterator[AgentClient]:
        start = ConversationOptions(cwd=str(self.work), person=True)
        with open_in_process(self.home, self.env, start) as client:
            yield client

    @asynccontextmanager
    async def app(self) -> AsyncGenerator[App]:
        async with open_app(self.home, self.env, AppOptions(workspace=str(self.work))) as app:
            yield app

    def context(self, stdin: io.TextIOBase | None = None) -> CliContext:
        return CliContext(self.env, None, (stdin or io.StringIO(), io.StringIO(), io.StringIO()))

    def arguments(self, *words: str) -> Namespace:
        folder = () if "--cwd" in self.scenario.words else ("--cwd", str(self.work))
        return build_parser("chat").parse_args([*words, *folder, *self.scenario.words])

    def contents(self) -> dict[str, bytes]:
        """Return the user's files, without logs and locks."""
        if self.path.is_file():
            return {"": self.path.read_bytes()}
        ours = {".log", ".lock", ".db-wal", ".db-shm"}
        files = [one for one in self.path.rglob("*") if one.is_file() and one.suffix not in ours]
        return {str(one.relative_to(self.path)): one.read_bytes() for one in files}

    def questions(self) -> list[str]:
        async def look() -> list[str]:
            async with open_archive(self.home, SystemClock()) as store:
                return [one.preview for one in await store.archive_for(OWNER).list(SessionFilter())]

        return anyio.run(look)


def run_verb(verb: Callable[[], int], context: CliContext) -> tuple[str, int]:
    """Run a command; return everything it prints and its exit code."""
    screen = io.StringIO()
    with redirect_stdout(screen), redirect_stderr(screen):
        code = run_guarded(verb)
    return context.stdout.getvalue() + context.stderr.getvalue() + screen.getvalue(), code
