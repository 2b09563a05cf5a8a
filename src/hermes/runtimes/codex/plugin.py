"""Register codex as a runtime; its process starts with the first turn."""

import re
from collections.abc import Callable, Mapping, Sequence

import anyio
import msgspec
from anyio.to_thread import run_sync
from msgspec import Raw, structs

from hermes.ports.approvals import ApprovalRequest, Approvals, Decision
from hermes.ports.plugins import PluginContext, PluginServices, Program, PromptModel, RuntimeTurn
from hermes.ports.tool import SupportsRestore, Tool
from hermes.ports.turn import Emit, TurnHooks
from hermes.runtimes.codex.runtime import CodexRuntime
from hermes.runtimes.codex.service import CodexService
from hermes.runtimes.codex.settings import (
    CODEX_PROVIDERS,
    NAME,
    codex_env,
    codex_program,
    codex_service_deps,
    compaction_share,
    thread_config,
)
from hermes.runtimes.codex.threads import ThreadSettings
from hermes.runtimes.codex.turn import CodexDeps
from hermes.schema.errors import SandboxError, UsageError
from hermes.schema.messages import Message
from hermes.schema.scope import Scope
from hermes.schema.sessions import Session

MIN_VERSION = (0, 163, 0)
"""The oldest tested version."""
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
REQUIRED_TOOL = "terminal"
"""Without permission to run commands here, codex is not used either."""
PROMPT_WINDOW = 272_000
"""The context window that the system prompt assumes."""


class HookedApprovals:
    """Asks the hooks first: for a runtime with its own tools, an approval is like a tool call."""

    def __init__(self, approvals: Approvals, hooks: TurnHooks) -> None:
        self._hooks = hooks
        self._approvals = approvals
        self.ask_person = approvals.ask_person

    async def decide(self, scope: Scope, request: ApprovalRequest, emit: Emit) -> Decision:
        argument = "command" if request.shell else "path" if request.tool == "patch" else "action"
        args = Raw(msgspec.json.encode({argument: request.action, "workdir": request.folder}))
        if why := await self._hooks.before_tool(scope, request.tool, args):
            return Decision(allowed=False, why=why)
        return await self._approvals.decide(scope, request, emit)


def register(ctx: PluginContext) -> None:
    ctx.register_switch(Codex(ctx.services))


class Codex:
    """Runs the turns of sessions with OpenAI models while it is enabled."""

    name = NAME

    def __init__(self, services: PluginServices) -> None:
        self._services = services
        self._deps: CodexDeps | None = None
        self.enabled = services.config.main_model.openai_runtime == NAME

    def usage(self) -> str:
        """How much of the account codex reports as used."""
        return self._deps.service.limits.description if self._deps is not None else ""

    async def check(self) -> str:
        """Its name and version. Raises `UsageError` if codex is missing or too old."""
        env = self._services.env
        argv = (codex_program(env), "--version")
        output = b""
        try:
            with anyio.fail_after(20):
                program = Program(argv=argv, cwd="/", env=codex_env(env), label="codex")
                async with self._services.launch(program) as process:
                    while data := await process.read():
                        output = (output + data)[:10_000]
                    await process.wait()
        except (SandboxError, TimeoutError) as error:
            raise UsageError(
                f"Codex cannot be started: {error}",
                hint="Install it (npm package @openai/codex) or set CODEX_PATH.",
            ) from error
        found = re.search(rb"codex-cli (\d+)\.(\d+)\.(\d+)", output)
        if found is None or tuple(map(int, found.groups())) < MIN_VERSION:
            oldest = ".".join(map(str, MIN_VERSION))
            raise UsageError(f"Codex {oldest} or newer is required.", hint="Update codex.")
        return "codex " + ".".join(part.decode() for part in found.groups())

    async def turn_for(
        self,
        session: Session,
        scope: Scope,
        history: Sequence[Message],
        offered: Callable[[Scope], Mapping[str, Tool]],
    ) -> RuntimeTurn | None:
        """None for other providers, and where commands are not permitted."""
        if not self._applies_to(session, scope):
            return None
        permitted = offered(scope)
        if REQUIRED_TOOL not in permitted:
            return None
        tools = {name: tool for name, tool in permitted.items() if name in SHARED_TOOLS}
        for tool in tools.values():
            if isinstance(tool, SupportsRestore):
                tool.restore(session.id, history)
        services = self._services
        model = session.model or services.model.model
        policy = await run_sync(services.workspace_policy, scope.workspace)
        settings = ThreadSettings(
            model=model.removeprefix("openai/"),
            effort=session.effort or services.config.agent.reasoning_effort or "",
            config=thread_config(services.config),
            parent=session.parent,
            compact_at=compaction_share(services.config.compression),
            closed=policy.closed,
            read_only=policy.read_only,
        )
        return RuntimeTurn(
            runtime=CodexRuntime(structs.replace(self._open(), settings=settings)),
            tools=tools,
            prompt_for=PromptModel(model or "codex", "openai", PROMPT_WINDOW),
        )

    def _applies_to(self, session: Session, scope: Scope) -> bool:
        model = self._services.model
        if not self.enabled or model.base_url or scope.source in EXCLUDED_SOURCES:
            return False
        return (session.provider or model.provider) in CODEX_PROVIDERS

    def _open(self) -> CodexDeps:
        if self._deps is None:
            services = self._services
            program = codex_program(services.env)
            deps = codex_service_deps(
                services.home, services.config, services.env, services.launch, program
            )
            self._deps = CodexDeps(
                service=CodexService(deps, services.tasks),
                store=services.store,
                clock=services.clock,
                blobs=services.blobs,
                approvals=self._approvals(),
                watch_command=services.watch_command,
            )
        return self._deps

    def _approvals(self) -> Approvals:
        """Approvals for codex itself: hooks are asked first."""
        services = self._services
        if services.hooks is None:
            return services.approvals
        from hermes.runtimes.codex.plugin import HookedApprovals  # noqa: PLC0415 - hooks are rare

        return HookedApprovals(services.approvals, services.hooks)
