"""Run the turns of a profile in codex, if configured."""

import re
import shutil
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup
from anyio.to_thread import run_sync
from msgspec import Struct, structs

from hermes.agent.plan import Plan, RuntimePlan
from hermes.app.planner import StandardPlanner
from hermes.app.prompt_context import file_provenance
from hermes.config.env import Env
from hermes.config.home import Home, user_home
from hermes.config.schema import Config
from hermes.config.sections.execution import McpServer
from hermes.config.sections.models import Compression
from hermes.config.variables import secret_values
from hermes.kit.clock import Clock
from hermes.kit.redact import Redactor
from hermes.kit.tasks import background_tasks
from hermes.models.settings import ModelOverrides
from hermes.ports.approvals import Approvals
from hermes.ports.sandbox import Process
from hermes.ports.store import Blobs, Store
from hermes.ports.tool import SupportsRestore, Tool
from hermes.sandbox.child_env import base_env
from hermes.sandbox.filesystem_policy import HOME_SECRETS
from hermes.sandbox.spawner import Spawner, SpawnRequest
from hermes.schema.errors import SandboxError, UsageError
from hermes.schema.messages import Message
from hermes.schema.scope import Scope
from hermes.schema.sessions import Session
from hermes.session.runner import Planner

if TYPE_CHECKING:
    from hermes.ports.turn import TurnHooks
    from hermes.runtimes.codex.service import CodexServiceDeps, ProcessCommand
    from hermes.runtimes.codex.turn import CodexDeps
    from hermes.tools.provenance.command_provenance import WatchedCommand
    from hermes.tools.provenance.file_provenance import FileProvenance

AUTO_RUNTIME, CODEX_RUNTIME = "auto", "codex_app_server"
CODEX_PROVIDERS = frozenset({"", "auto", "openai", "openai-codex"})
"""Providers whose models codex can use; sessions with other providers stay here."""
MIN_VERSION = (0, 163, 0)
"""The oldest tested version."""
CODEX_VARIABLES = ("CODEX_HOME", "CODEX_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL")
SHARED_TOOLS = frozenset(
    {
        "clarify",
        "cronjob",
        "delegate_task",
        "image_generate",
        "memory",
        "send_message",
        "session_search",
        "skill_manage",
        "skill_view",
        "skills_list",
        "text_to_speech",
        "vision_analyze",
        "web_extract",
        "web_search",
    }
)
"""Our tools that codex may call; it has its own for files and commands."""
EXCLUDED_SOURCES = frozenset({"api_server", "subagent"})
"""Sources whose clients choose the tools of a turn, which codex would ignore."""
NEVER_COMPACT = 1_000_000_000_000
"""More tokens than any thread has: codex then compacts only at 90 % of its window."""
REQUIRED_TOOL = "terminal"
"""Without permission to run commands here, codex is not used either."""


class CodexHostDeps(Struct, frozen=True, kw_only=True):
    """What the codex integration needs from the profile."""

    home: Home
    config: Config
    env: Env
    flags: ModelOverrides
    spawner: Spawner
    store: Store
    clock: Clock
    blobs: Blobs
    approvals: Approvals
    proxied: bool
    hooks: "TurnHooks | None" = None

    @property
    def hooked_approvals(self) -> Approvals:
        """Approvals for codex itself: hooks are asked first."""
        if self.hooks is None:
            return self.approvals
        from hermes.app.shell_hooks import HookedApprovals  # noqa: PLC0415 - hooks are rare

        return HookedApprovals(self.approvals, self.hooks)


def codex_program(env: Mapping[str, str]) -> str:
    """The executable; a bare name if it is not found, so that starting it fails clearly."""
    configured = env.get("CODEX_PATH", "").strip()
    return configured or shutil.which("codex", path=env.get("PATH")) or "codex"


def codex_service_deps(
    home: Home, config: Config, env: Env, spawner: Spawner, program: str
) -> "CodexServiceDeps":
    from hermes.runtimes.codex.service import CodexServiceDeps  # noqa: PLC0415 - rarely used

    def launch(command: "ProcessCommand") -> AbstractAsyncContextManager[Process]:
        return spawner.open(
            SpawnRequest(
                argv=command.argv, cwd=command.cwd, env=command.env, has_stdin=True, label="codex"
            )
        )

    hidden = secret_values(env) if config.security.redact_secrets else ()
    return CodexServiceDeps(
        launch=launch,
        program=program,
        env=codex_env(env),
        cwd=str(home.path),
        log=home.logs / "codex.log",
        redactor=Redactor(hidden),
    )


def codex_env(env: Mapping[str, str]) -> dict[str, str]:
    """Base variables and the keys of codex's own provider; none of our other secrets."""
    return base_env(env) | {name: env[name] for name in CODEX_VARIABLES if name in env}


def codex_mcp_settings(servers: Mapping[str, McpServer]) -> dict[str, object]:
    """Translate MCP servers into codex's own settings."""
    given: dict[str, object] = {}
    for name, server in servers.items():
        if not server.enabled:
            continue
        fields: dict[str, object] = (
            {"url": server.url, "http_headers": dict(server.headers)}
            if server.url
            else {"command": server.command, "args": [*server.args], "env": dict(server.env)}
        )
        fields["tool_timeout_sec"] = server.timeout
        fields["startup_timeout_sec"] = server.connect_timeout
        given[name] = {key: value for key, value in fields.items() if value}
    return given


def thread_config(config: Config) -> dict[str, object]:
    """Settings of each thread in addition to codex's own."""
    given: dict[str, object] = {}
    if servers := codex_mcp_settings(config.mcp_servers):
        given["mcp_servers"] = servers
    if config.compression.codex_app_server_auto == "off":
        given["model_auto_compact_token_limit"] = NEVER_COMPACT
    return given


def compaction_share(settings: Compression) -> float:
    """The share of its window at which we compact a thread; 0 leaves it to codex."""
    return settings.threshold if settings.codex_app_server_auto == "hermes" else 0.0


def git_executed_paths(env: Mapping[str, str], workspace: str) -> list[str]:
    """Paths that codex commands must not write, because the owner's git would execute them."""
    from hermes.sandbox.git_config_paths import owner_git_config  # noqa: PLC0415 - only for codex
    from hermes.sandbox.git_guard import GitGuard  # noqa: PLC0415 - as above

    owner = owner_git_config(env, str(user_home(env)))
    return sorted(GitGuard([workspace], can_protect=True, owner=owner).read_only)


def blocked_paths(home: Home, env: Mapping[str, str], workspace: str) -> list[str]:
    """Paths that codex commands must not read: this home and the user's keys.

    Parents of the working directory stay open, but their other content is blocked.
    """
    user = user_home(env)
    secrets = [path for name in HOME_SECRETS for path in user.glob(name)]
    folder = Path(workspace).resolve()
    blocked: set[str] = set()
    pending = [home.root, *secrets]
    while pending:
        path = pending.pop()
        if folder == path.resolve():
            continue
        if folder.is_relative_to(path.resolve()):
            pending += path.iterdir()
        elif path.exists():
            blocked.add(str(path))
    return sorted(blocked)


class Codex:
    """Chooses the runtime, and opens codex on first use."""

    def __init__(self, deps: CodexHostDeps, group: TaskGroup) -> None:
        self._deps = deps
        self._group = group
        self._opening = anyio.Lock()
        self._parts: CodexDeps | None = None
        self.enabled = deps.config.main_model.openai_runtime == CODEX_RUNTIME

    def current(self) -> str:
        return CODEX_RUNTIME if self.enabled else AUTO_RUNTIME

    def status(self) -> str:
        """The runtime, and how much of the account codex reports as used."""
        used = self._parts.service.limits.description if self._parts is not None else ""
        return f"{self.current()} (used: {used})" if used else self.current()

    async def choose(self, name: str) -> str:
        """Switch the runtime permanently, starting with the next message. Returns a message."""
        deps = self._deps
        if name not in {AUTO_RUNTIME, CODEX_RUNTIME}:
            raise UsageError(
                f"/codex-runtime takes {AUTO_RUNTIME} or {CODEX_RUNTIME}, not {name!r}."
            )
        found = await self.version() if name == CODEX_RUNTIME else ""

        from hermes.config.editor import set_setting  # noqa: PLC0415 - a turn never does

        await run_sync(set_setting, deps.home, deps.env, "model.openai_runtime", name)
        self.enabled = name == CODEX_RUNTIME
        if self.enabled:
            return f"codex {found} runs turns, starting with the next message."
        return "Hermes runs turns itself, starting with the next message."

    async def version(self) -> str:
        """Raises `UsageError` if codex is missing or too old."""
        program = codex_program(self._deps.env)
        start = SpawnRequest(
            argv=(program, "--version"), cwd="/", env=codex_env(self._deps.env), label="codex"
        )
        output = b""
        try:
            with anyio.fail_after(20):
                async with self._deps.spawner.open(start) as child:
                    while data := await child.read():
                        output = (output + data)[:10_000]
                    await child.wait()
        except (SandboxError, TimeoutError) as error:
            raise UsageError(
                f"Codex cannot be started: {error}",
                hint="Install it (npm package @openai/codex) or set CODEX_PATH.",
            ) from error
        found = re.search(rb"codex-cli (\d+)\.(\d+)\.(\d+)", output)
        if found is None or tuple(map(int, found.groups())) < MIN_VERSION:
            oldest = ".".join(map(str, MIN_VERSION))
            raise UsageError(f"Codex {oldest} or newer is required.", hint="Update codex.")
        return ".".join(part.decode() for part in found.groups())

    def planner(self, standard: StandardPlanner, usual: Planner) -> "CodexPlanner":
        return CodexPlanner(self, standard, usual, self._deps)

    async def open(self) -> "CodexDeps":
        """Open it; the process starts with the first turn."""
        async with self._opening:
            if self._parts is None:
                self._parts = self._open()
            return self._parts

    def _open(self) -> "CodexDeps":
        from hermes.runtimes.codex.service import CodexService  # noqa: PLC0415 - as above
        from hermes.runtimes.codex.turn import CodexDeps  # noqa: PLC0415 - as above

        deps = self._deps
        program = codex_program(deps.env)
        parts = codex_service_deps(deps.home, deps.config, deps.env, deps.spawner, program)
        return CodexDeps(
            service=CodexService(parts, self._group),
            store=deps.store,
            clock=deps.clock,
            blobs=deps.blobs,
            approvals=deps.hooked_approvals,
            watch_command=self._watch_command,
        )

    def _watch_command(
        self, command: str, folder: str, began: float | None, others: str, scope: Scope
    ) -> "WatchedCommand":
        """Observe a codex command as our own commands are observed."""
        from hermes.tools.provenance.command_provenance import WatchedCommand  # noqa: PLC0415 - as above

        running = Path(others) if others else None
        return WatchedCommand(self._provenance, command, folder, began, running, scope=scope)

    @cached_property
    def _provenance(self) -> "FileProvenance":
        """Records file provenance in the same file as our own tools."""
        return file_provenance(self._deps.home, self._deps.clock)


class _CodexModel(Struct, frozen=True):
    """What is known of the model that codex uses."""

    name: str
    provider: str = "openai"
    window: int = 272_000


class CodexPlanner:
    """Plans turns for codex while it is enabled, and leaves the rest to the `usual` planner."""

    def __init__(
        self, codex: Codex, standard: StandardPlanner, usual: Planner, deps: CodexHostDeps
    ) -> None:
        self._codex = codex
        self._standard = standard
        self._usual = usual
        self._deps = deps

    async def plan(
        self, session: Session, scope: Scope, history: Sequence[Message]
    ) -> Plan | RuntimePlan:
        if self._applies_to(session, scope):
            offered = self._standard.offered(scope)
            if REQUIRED_TOOL in offered:
                return await self._runtime_plan(session, scope, history, offered)
        return await self._usual.plan(session, scope, history)

    def _applies_to(self, session: Session, scope: Scope) -> bool:
        deps = self._deps
        if not self._codex.enabled or (deps.proxied and scope.address is not None):
            return False
        if deps.flags.base_url or scope.source in EXCLUDED_SOURCES:
            return False
        default = deps.flags.provider or deps.config.main_model.provider
        return (session.provider or default) in CODEX_PROVIDERS

    async def _runtime_plan(
        self,
        session: Session,
        scope: Scope,
        history: Sequence[Message],
        offered: Mapping[str, Tool],
    ) -> RuntimePlan:
        from hermes.runtimes.codex.runtime import CodexRuntime  # noqa: PLC0415 - rarely used
        from hermes.runtimes.codex.threads import ThreadSettings  # noqa: PLC0415 - as above

        deps = self._deps
        model = session.model or deps.flags.model or deps.config.main_model.default
        settings = ThreadSettings(
            model=model.removeprefix("openai/"),
            effort=session.effort or deps.config.agent.reasoning_effort or "",
            config=thread_config(deps.config),
            parent=session.parent,
            compact_at=compaction_share(deps.config.compression),
            closed=await run_sync(blocked_paths, deps.home, deps.env, scope.workspace),
            read_only=await run_sync(git_executed_paths, deps.env, scope.workspace),
        )
        tools = {name: tool for name, tool in offered.items() if name in SHARED_TOOLS}
        for tool in tools.values():
            if isinstance(tool, SupportsRestore):
                tool.restore(session.id, history)
        parts = structs.replace(await self._codex.open(), settings=settings)
        return RuntimePlan(
            scope=scope,
            runtime=CodexRuntime(parts),
            system=self._standard.prompt(session, scope, _CodexModel(model or "codex"), tools),
            history=history,
            tools=tools,
            approvals=deps.approvals,
            clock=deps.clock,
            hooks=self._standard.hooks,
        )


@asynccontextmanager
async def open_codex(deps: CodexHostDeps) -> AsyncGenerator[Codex]:
    """Open codex for a profile; leaving the block ends its process."""
    async with background_tasks() as group:
        yield Codex(deps, group)
