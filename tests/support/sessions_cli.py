"""Run `hermes sessions` in-process with fake streams."""

import io
import json
from datetime import timedelta
from pathlib import Path

from hermes.app.storage import open_blobs
from hermes.cli.arguments import build_parser
from hermes.cli.context import CliContext
from hermes.cli.verbs.sessions import run
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.ports.store import Blobs
from hermes.testing.clock import FakeClock
from support.stored_sessions import NOON, write_store

CLOCK = FakeClock(NOON + timedelta(hours=3))


class FakeTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class SessionsResult:
    def __init__(self, code: int, context: CliContext) -> None:
        self.code = code
        self.out = context.stdout.getvalue()
        self.err = context.stderr.getvalue()

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def documents(self) -> list[dict]:
        return [json.loads(line) for line in self.lines]


class SessionsCli:
    def __init__(self, home: Path) -> None:
        self.home = home

    @property
    def database(self) -> Path:
        return self.home / "hermes.db"

    @property
    def blobs(self) -> Blobs:
        return open_blobs(Home(self.home, self.home))

    def store(self, *writes: object) -> None:
        write_store(self.database, *writes, clock=CLOCK)

    def __call__(
        self, *words: str, typed: str | None = None, columns: int | None = None
    ) -> SessionsResult:
        """`typed` makes stdin a terminal with that input, `columns` makes stdout a terminal."""
        env = Env({"HERMES_HOME": str(self.home), "COLUMNS": str(columns or "")})
        stdin = io.StringIO() if typed is None else FakeTerminal(typed)
        stdout = io.StringIO() if columns is None else FakeTerminal()
        context = CliContext(env, None, (stdin, stdout, io.StringIO()))
        args = build_parser("sessions").parse_args(words)
        return SessionsResult(run(args, context, CLOCK), context)
