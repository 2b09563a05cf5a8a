"""A real codex for tests: installed once, run with the mock model."""

import fcntl
import hashlib
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from msgspec import Struct, structs

from hermes.agent.plan import RuntimePlan
from hermes.agent.turn import run_turn
from hermes.kit.clock import SystemClock
from hermes.kit.ids import new_id
from hermes.kit.redact import Redactor
from hermes.ports.approvals import ApprovalRequest, Approvals, Decision
from hermes.ports.plugins import Program
from hermes.ports.runtime import ReadSteering, no_steering
from hermes.ports.sandbox import Process
from hermes.ports.tool import Tool
from hermes.ports.turn import Emit
from hermes.runtimes.codex.runtime import CodexRuntime
from hermes.runtimes.codex.service import (
    CodexService,
    CodexServiceDeps,
    CodexTimeouts,
    open_service,
)
from hermes.runtimes.codex.threads import ThreadSettings
from hermes.runtimes.codex.turn import CodexDeps
from hermes.sandbox.spawner import Spawner, SpawnRequest
from hermes.schema.events import Event, MessageAdded, Outcome, RunEnded
from hermes.schema.messages import Media, Message, Text, User
from hermes.schema.scope import Scope
from hermes.store.blobs import FileBlobs
from hermes.store.sqlite import SqliteStore, open_store

ROOT = Path(__file__).resolve().parents[2]
CODEX_REQUIREMENTS = ROOT / "requirements" / "codex.txt"
INSTALL_TIMEOUT = 240.0
"""Seconds to download 142 MB."""


def codex_program() -> str:
    """Return the pinned version, installed next to the test tools; fail loudly if that fails."""
    venv = Path(sys.prefix)
    mark = hashlib.sha256(CODEX_REQUIREMENTS.read_bytes()).hexdigest()[:12]
    folder = venv / f"codex-{mark}"
    program = folder / "codex_cli_bin" / "bin" / "codex"
    with (venv / ".codex.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            _install(folder)
    return str(program)


def _install(folder: Path) -> None:
    for old in folder.parent.glob("codex-*"):
        shutil.rmtree(old)
    fresh = folder.with_name(f".{folder.name}")
    shutil.rmtree(fresh, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    pip += ["--no-deps", "--require-hashes", "--only-binary", ":all:", "--target", str(fresh)]
    command = [*pip, "-r", str(CODEX_REQUIREMENTS)]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_TIMEOUT)
    except subprocess.CalledProcessError as error:
        why = str(error.stderr)[-2000:]
        raise RuntimeError(f"codex for tests could not be installed:\n{why}") from error
    except subprocess.TimeoutExpired as error:
        why = f"codex for tests could not be downloaded in {INSTALL_TIMEOUT:g} s"
        raise RuntimeError(why) from error
    fresh.rename(folder)


CONFIG = """
model = "mock-model"
model_provider = "mock"
{sandbox}
check_for_update_on_startup = false
[model_providers.mock]
name = "Mock"
base_url = "{url}"
wire_api = "responses"
requires_openai_auth = false
request_max_retries = 0
stream_max_retries = 0
stream_idle_timeout_ms = 60000
[analytics]
enabled = false
[features]
plugins = false
remote_plugin = false
apps = false
"""


def codex_config(url: str, sandbox: str = "danger-full-access") -> str:
    """Without its own sandbox setting it gets ours."""
    chosen = f'sandbox_mode = "{sandbox}"' if sandbox else ""
    return CONFIG.format(url=url, sandbox=chosen)


class CodexSetup(Struct, kw_only=True):
    """The options of a codex harness; `before` and `config` are codex's own settings."""

    url: str
    path: Path
    program: str
    sandbox: str = "danger-full-access"
    before: str = ""
    config: str = ""
    timeouts: CodexTimeouts = CodexTimeouts()
    settings: ThreadSettings = ThreadSettings()
    approvals: Approvals | None = None
    tools: Mapping[str, Tool] = {}


class FakeApprovals:
    """Answers every question alike, and records the requests."""

    def __init__(self, *, allowed: bool, answer: str | None = None) -> None:
        self.wishes: list[ApprovalRequest] = []
        self.questions: list[tuple[str, Sequence[str]]] = []
        self._allowed = allowed
        self._words = answer

    async def decide(self, scope: Scope, request: ApprovalRequest, emit: Emit) -> Decision:
        self.wishes.append(request)
        return Decision(self._allowed)

    async def ask_person(
        self, scope: Scope, text: str, choices: Sequence[str], emit: Emit
    ) -> str | None:
        self.questions.append((text, choices))
        return self._words


class CodexHarness:
    """One session; `said` is its history over all turns, `events` those of the last turn."""

    def __init__(
        self, runtime: CodexRuntime, service: CodexService, bench: CodexSetup, door: Spawner
    ) -> None:
        self.runtime = runtime
        self.service = service
        self.setup = bench
        self.door = door
        self.messages: list[Message] = []
        self.events: list[Event] = []
        self.ended: RunEnded | None = None
        self.session = "ses_1"

    def choose(self, settings: ThreadSettings) -> None:
        """Apply settings from the next turn on."""
        parts = structs.replace(self.runtime.deps, settings=settings)
        self.runtime = CodexRuntime(parts)

    async def ask(
        self,
        text: str,
        *media: Media,
        system: str = "",
        meanwhile: ReadSteering = no_steering,
        listen: Emit | None = None,
    ) -> Outcome:
        self.events, self.ended = [], None
        workspace = self.setup.path / "work"
        scope = Scope("default", self.session, new_id("run"), str(workspace))
        plan = RuntimePlan(
            scope=scope,
            runtime=self.runtime,
            system=system,
            history=list(self.messages),
            steer=meanwhile,
            tools=self.setup.tools,
            approvals=None if (found := self.setup.approvals) is None else lambda: found,
        )

        async def record(event: Event) -> None:
            self.events.append(event)
            if isinstance(event, MessageAdded):
                self.messages.append(event.message)
            elif isinstance(event, RunEnded):
                self.ended = event
            if listen is not None:
                await listen(event)

        return await run_turn(plan, [User(new_id("msg"), (Text(text), *media))], record)


@asynccontextmanager
async def codex_harness(setup: CodexSetup) -> AsyncGenerator[CodexHarness]:
    """Open codex in a folder; reopened in the same folder, it continues where it was."""
    home = setup.path / "codex"
    for folder in (home, setup.path / "work"):
        folder.mkdir(parents=True, exist_ok=True)
    settings = f"{setup.before}\n{codex_config(setup.url, setup.sandbox)}{setup.config}"
    (home / "config.toml").write_text(settings)
    clock = SystemClock()
    async with open_store(setup.path / "hermes.db", clock) as store:
        with Spawner() as door:
            async with _opened(setup, home, door, store) as house:
                yield house


@asynccontextmanager
async def _opened(
    bench: CodexSetup, home: Path, door: Spawner, store: SqliteStore
) -> AsyncGenerator[CodexHarness]:
    def launch(command: Program) -> AbstractAsyncContextManager[Process]:
        start = SpawnRequest(argv=command.argv, cwd=command.cwd, env=command.env, has_stdin=True)
        return door.open(start)

    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(bench.path), "CODEX_HOME": str(home)}
    parts = CodexServiceDeps(
        launch=launch,
        program=bench.program,
        env=env,
        cwd=str(bench.path),
        log=bench.path / "codex.log",
        redactor=Redactor(),
        timeouts=bench.timeouts,
    )
    async with open_service(parts) as service:
        runtime = CodexRuntime(
            CodexDeps(
                service=service,
                store=store,
                clock=SystemClock(),
                settings=bench.settings,
                blobs=FileBlobs(bench.path / "blobs"),
                approvals=bench.approvals,
            )
        )
        yield CodexHarness(runtime, service, bench, door)


def codex_pids(path: Path) -> list[int]:
    """Return the app-servers of this test, found by their home folder."""
    found: list[int] = []
    mark = f"CODEX_HOME={path}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found
