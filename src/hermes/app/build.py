"""Build one profile's object graph, and close it again in order."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from hermes.agent.loop_guard import GuardLimits
from hermes.app.after_turn import BackgroundReviewDeps, BackgroundReviews, open_reviews, open_titles
from hermes.app.approvals import build_approvals
from hermes.app.chat_settings import ChatSettings
from hermes.app.codex import CODEX_RUNTIME, Codex, CodexHostDeps, open_codex
from hermes.app.compaction import CompactionDeps, build_compaction
from hermes.app.embedded_models import ModelServerPool, open_models
from hermes.app.followups import FollowupRouter
from hermes.app.learning import Learning
from hermes.app.mcp_servers import McpDeps, McpServers, open_mcp_servers
from hermes.app.message_sender import OutboxSender
from hermes.app.model_settings import model_settings
from hermes.app.models import ModelSelector
from hermes.app.planner import RuntimePlanner, StandardPlanner, TurnSettings
from hermes.app.prompt_context import PromptContext, personality_text, read_prefill
from hermes.app.proxy import ProxyDeps, build_followups, proxy_url, with_proxy
from hermes.app.storage import LoggedProgress, import_public_sessions, open_archive, open_blobs
from hermes.app.subagents import delegation_deps
from hermes.app.tool_factory import ToolFactory
from hermes.app.toolbox import Toolbox
from hermes.approvals.service import ApprovalService
from hermes.config.dotenv import profile_env
from hermes.config.effective import secrets_in
from hermes.config.env import Env
from hermes.config.home import Home, ensure_home, user_home
from hermes.config.loader import LoadedConfig, load_config
from hermes.config.schema import Config
from hermes.config.variables import secret_values
from hermes.kit.clock import Clock, SystemClock
from hermes.kit.redact import Redactor
from hermes.logs import Logs, LogScope, LogSettings, set_up_logs
from hermes.models.catalog import price
from hermes.models.key_pool import stored_secrets
from hermes.models.settings import ModelOverrides
from hermes.ports.runtime import Runtime
from hermes.ports.store import WORKER_TTL, Blobs, Store
from hermes.ports.tool import Tool
from hermes.sandbox.spawner import Spawner
from hermes.schema.messages import Text, Usage
from hermes.schema.scope import Scope
from hermes.schema.sessions import Session
from hermes.session.conversation import Conversation, MessageParts, SessionOptions, unchanged_parts
from hermes.session.heartbeat import heartbeat
from hermes.session.runner import Runner
from hermes.session.spend_guard import SpendCaps, SpendGuard
from hermes.subagents.delegations import Delegations, open_delegations
from hermes.tools.processes.registry import ProcessDeps, ProcessRegistry, open_process_registry

if TYPE_CHECKING:
    from hermes.runtimes.proxy.followups import RemoteFollowups


class AppOptions(Struct, frozen=True, kw_only=True):
    """Command-line choices; unset means as configured."""

    workspace: str
    source: str = "cli"
    model: str | None = None
    provider: str | None = None
    base_url: str | None = None
    api_key: str | None = None
    toolsets: tuple[str, ...] | None = None
    excluded_toolsets: tuple[str, ...] = ()  # toolsets that are always left out
    max_steps: int | None = None
    system_prompt: str = ""
    reviews_turns: bool = False  # the process continues after a turn, so reviews can run
    logs: bool = False  # write the home's log files; only in a process of our own
    log_scope: LogScope = LogScope.EVERYTHING
    worker_ttl: timedelta = WORKER_TTL


class App:
    """One open profile."""

    def __init__(self, home: Home, loaded: LoadedConfig, store: Store, parts: "_AppDeps") -> None:
        self.home = home
        self.config = loaded.config
        self.env = parts.env
        self.redactor = parts.redactor
        self._logs = parts.logs
        self._options = parts.options
        source = self._source = parts.options.source
        self.warnings = [
            *map(str, loaded.warnings),
            *parts.toolbox.warnings(source),
            *parts.servers.warnings(),
            *(parts.planner.hooks.warnings() if parts.planner.hooks else ()),
        ]
        self.store = store
        self.blobs = parts.blobs
        self.clock = parts.clock
        self.models = parts.models
        self.chats = parts.chats
        self.toolbox = parts.toolbox
        self.planner = parts.planner
        self.runner = parts.runner
        self.followups = parts.followups
        self.remote_followups = parts.remote_followups
        self.codex = parts.codex
        self.servers = parts.servers
        self.approvals = parts.approvals
        self.processes = parts.processes
        self.delegations = parts.delegations
        self.learning = parts.learning
        self.reviews = parts.reviews
        self.sender = parts.sender
        self.checkpoints = parts.toolbox.checkpoints
        self.conversation = self.new_conversation(parts.options)

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The tools for the platform this app was started from."""
        return self.toolbox.tools_on(self._source)

    def add_log_redactor(self, redactor: Redactor) -> None:
        """Mask another home's secrets in this home's log files."""
        if self._logs is not None:
            self._logs.add_redactor(redactor)

    def new_conversation(self, origin: SessionOptions) -> Conversation:
        """Create a conversation; any number can run at the same time."""
        # References work only at this machine: elsewhere "@" is ordinary text.
        expand = self._expanded if origin.source == "cli" else unchanged_parts
        return Conversation(self.store, self.clock, self.runner, origin, expand)

    async def _expanded(self, session: Session, parts: MessageParts) -> MessageParts:
        if not any("@" in part.text for part in parts if isinstance(part, Text)):
            return parts
        from hermes.app.references import build_references  # noqa: PLC0415 - few messages use them

        workspace, profile = session.cwd, self.home.profile
        scope = Scope(profile=profile, session=session.id, run="", workspace=workspace)
        return await build_references(self).expand(parts, scope)

    def use_runtime(self, runtime: Runtime) -> None:
        """Run every turn of the app's own conversation in this runtime, whatever is configured."""
        planner = RuntimePlanner(runtime, self.planner)
        runner = Runner(self.store, self.clock, planner, price, self.home.profile)
        runner.lease_renewer = self.runner.lease_renewer
        self.conversation = Conversation(self.store, self.clock, runner, self._options)

    def price(self, model: str, provider: str, usage: Usage) -> float | None:
        return price(model, provider, usage)

    def status(self, session: Session) -> Sequence[tuple[str, str]]:
        return [
            ("profile", self.home.profile),
            ("home", str(self.home.path)),
            ("tools", ", ".join(self.models.tools_for(session, self.tools)) or "none"),
            ("sandbox", self.toolbox.sandboxes.describe(self._source)),
            *([("runtime", self.codex.status())] if self.codex.enabled else []),
            *([("mcp", status)] if (status := self.servers.status()) else []),
        ]


class _AppDeps(Struct, frozen=True, kw_only=True):
    blobs: Blobs
    clock: Clock
    models: ModelSelector
    toolbox: Toolbox
    planner: StandardPlanner
    chats: ChatSettings
    env: Env
    logs: Logs | None
    redactor: Redactor
    runner: Runner
    followups: FollowupRouter
    remote_followups: "RemoteFollowups | None"
    codex: Codex
    servers: McpServers
    approvals: ApprovalService
    processes: ProcessRegistry
    delegations: Delegations
    learning: Learning
    reviews: BackgroundReviews
    sender: OutboxSender
    options: SessionOptions


class _AppBase(Struct, frozen=True, kw_only=True):
    """What the other parts of a profile are built on."""

    home: Home
    env: Env
    loaded: LoadedConfig
    options: AppOptions
    redactor: Redactor
    logs: Logs | None
    clock: Clock
    store: Store
    blobs: Blobs
    spawner: Spawner
    followups: FollowupRouter

    @property
    def config(self) -> Config:
        return self.loaded.config


class _DelegationRef:
    """Breaks the cycle between subagents, the runner and its tools: resolved on first use."""

    delegations: Delegations


@asynccontextmanager
async def open_app(
    home: Home, env: Env, options: AppOptions, model_servers: ModelServerPool | None = None
) -> AsyncGenerator[App]:
    """Open a profile; several profiles of a process can share their `model_servers`.

    Raises `ConfigError` if the home or its settings are wrong.
    """
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        base = await _open_base(home, env, options, stack)
        env, config, store, clock = base.env, base.config, base.store, base.clock
        models = ModelSelector(
            home, env, model_settings(config), base.blobs, clock, _flags(options)
        )
        await enter(open_models(models, env, base.spawner, model_servers))
        processes = await enter(open_process_registry(_process_deps(base)))
        learning = Learning(home, env, config, store, clock)
        delegation_ref, outgoing = _DelegationRef(), OutboxSender(home, env, store, clock)
        factory = ToolFactory(
            home, env, config, base.redactor, base.blobs, base.spawner, clock, processes,
            store=store, delegates=lambda: delegation_ref.delegations, learning=learning,
            sender=outgoing,
        )  # fmt: skip
        toolbox = factory.toolbox(options.toolsets, options.excluded_toolsets)
        chats = ChatSettings(config)
        approvals = build_approvals(config, env, store, clock, models, outgoing)
        turns = _turn_settings(base, learning)
        planner = StandardPlanner(models, toolbox, chats, turns, home.soul, clock)
        planner.set_approvals(approvals, factory.build_hooks())
        servers = await enter(open_mcp_servers(_mcp_deps(base, toolbox), planner))
        proxy_deps = ProxyDeps(
            blobs=base.blobs,
            clock=clock,
            store=store,
            followups=base.followups,
            approvals=approvals,
        )
        afterwards = build_followups(config, env, proxy_deps)
        codex = await enter(open_codex(_codex_deps(base, planner, approvals)))
        chosen = codex.planner(planner, with_proxy(planner, config, env, proxy_deps, afterwards))
        compaction_deps = CompactionDeps(store, clock, price, models, base.redactor.redact)
        compaction = build_compaction(config, compaction_deps)
        runner = Runner(store, clock, chosen, price, home.profile, compaction)
        await enter(aclosing(runner))
        runner.set_questions(approvals)
        await enter(open_titles(config, compaction_deps, runner))
        review_deps = _review_deps(base, planner, models, learning, runner)
        reviews = await enter(open_reviews(review_deps, runner))
        delegation = delegation_deps(config, store, runner, clock, base.followups)
        delegation_ref.delegations = await enter(open_delegations(delegation))
        parts = _AppDeps(
            blobs=base.blobs, clock=clock, models=models, toolbox=toolbox, planner=planner,
            chats=chats, env=env, logs=base.logs, redactor=base.redactor, runner=runner,
            followups=base.followups, remote_followups=afterwards, codex=codex, servers=servers,
            approvals=approvals, processes=processes, delegations=delegation_ref.delegations,
            learning=learning, reviews=reviews, sender=outgoing,
            options=SessionOptions(source=options.source, cwd=options.workspace),
        )  # fmt: skip
        yield App(home, base.loaded, store, parts)


async def _open_base(home: Home, env: Env, choices: AppOptions, stack: AsyncExitStack) -> _AppBase:
    ensure_home(home)
    env = profile_env(home.dotenv, env)
    loaded = load_config(home, env)
    redactor = Redactor(_secrets(home, loaded, env, choices))
    clock = SystemClock()
    logs = _logs(home, loaded.config, redactor, choices)
    if logs is not None:
        stack.callback(logs.close)
    store = await stack.enter_async_context(open_archive(home, clock, choices.worker_ttl))
    await stack.enter_async_context(heartbeat(store.workers, clock))
    await import_public_sessions(store, home, LoggedProgress())
    return _AppBase(
        home=home,
        env=env,
        loaded=loaded,
        options=choices,
        redactor=redactor,
        logs=logs,
        clock=clock,
        store=store,
        blobs=open_blobs(home),
        spawner=stack.enter_context(Spawner()),
        followups=FollowupRouter(store),
    )


def _process_deps(base: _AppBase) -> ProcessDeps:
    return ProcessDeps(
        store=base.store,
        clock=base.clock,
        followups=base.followups,
        current_scope=base.followups.current_scope,
        redact=base.redactor.redact,
        logs=base.home.cache / "output" / "processes",
    )


def _mcp_deps(base: _AppBase, toolbox: Toolbox) -> McpDeps:
    return McpDeps(
        home=base.home,
        env=base.env,
        loaded=base.loaded,
        toolbox=toolbox,
        blobs=base.blobs,
        clock=base.clock,
        redactor=base.redactor,
        workspace=base.options.workspace,
        connect_early=base.options.reviews_turns
        and base.config.main_model.openai_runtime != CODEX_RUNTIME,
    )


def _codex_deps(
    base: _AppBase, planner: StandardPlanner, approvals: ApprovalService
) -> CodexHostDeps:
    return CodexHostDeps(
        home=base.home,
        config=base.config,
        env=base.env,
        flags=_flags(base.options),
        spawner=base.spawner,
        store=base.store,
        clock=base.clock,
        blobs=base.blobs,
        approvals=approvals,
        hooks=planner.hooks,
        proxied=proxy_url(base.config, base.env) is not None,
    )


def _review_deps(
    base: _AppBase,
    planner: StandardPlanner,
    models: ModelSelector,
    learning: Learning,
    runner: Runner,
) -> BackgroundReviewDeps:
    return BackgroundReviewDeps(
        config=base.config,
        store=base.store,
        clock=base.clock,
        planner=planner,
        price=price,
        models=models,
        learning=learning,
        compaction=runner.compaction,
        profile=base.home.profile,
        enabled=base.options.reviews_turns and proxy_url(base.config, base.env) is None,
    )


def _flags(choices: AppOptions) -> ModelOverrides:
    return ModelOverrides(
        model=choices.model or "",
        provider=choices.provider or "",
        base_url=choices.base_url or "",
        api_key=choices.api_key or "",
    )


def _logs(home: Home, config: Config, redactor: Redactor, choices: AppOptions) -> Logs | None:
    if not choices.logs:
        return None
    settings = LogSettings(
        level=config.logging.level,
        max_bytes=int(config.logging.max_size_mb * 1024 * 1024),
        keep=config.logging.backup_count,
    )
    return set_up_logs(home.logs, settings, redactor, choices.log_scope)


def _turn_settings(base: _AppBase, learning: Learning) -> TurnSettings:
    config, choices = base.config, base.options
    prompts = (
        config.agent.environment_hint.strip(),
        config.agent.system_prompt,
        choices.system_prompt,
    )
    guardrails, limits = config.tool_loop_guardrails, config.limits
    caps = SpendCaps(
        session=limits.usd_per_session,
        day=limits.usd_per_day,
        principal=limits.usd_per_principal,
    )
    return TurnSettings(
        steps=choices.max_steps or config.agent.max_turns,
        guard=GuardLimits(
            warns=guardrails.warnings_enabled,
            stops=guardrails.hard_stop_enabled,
            warn_same_failure=guardrails.warn_after.exact_failure,
            warn_tool_failures=guardrails.warn_after.same_tool_failure,
            warn_no_progress=guardrails.warn_after.idempotent_no_progress,
            stop_same_failure=guardrails.hard_stop_after.exact_failure,
            stop_tool_failures=guardrails.hard_stop_after.same_tool_failure,
            stop_no_progress=guardrails.hard_stop_after.idempotent_no_progress,
        ),
        effort=config.agent.reasoning_effort or None,
        personality=partial(personality_text, config),
        prompt_context=PromptContext(base.home, config, learning, base.clock),
        user_home=user_home(base.env),
        extra_prompt="\n\n".join(filter(None, prompts)),
        efforts={
            name: effort
            for name, effort in config.agent.reasoning_overrides.items()
            if isinstance(effort, str)
        },
        prefill=read_prefill(base.home, config.prefill_messages_file.strip()),
        spend_guard=SpendGuard(base.store, base.clock, caps),
    )


def _secrets(home: Home, loaded: LoadedConfig, env: Env, choices: AppOptions) -> list[str]:
    """Every value that must not appear in a log, a result or an error."""
    if not loaded.config.security.redact_secrets:
        return []
    given = [choices.api_key] if choices.api_key else []
    stored = stored_secrets(home.auth) if home.auth.exists() else []
    return [*given, *stored, *secrets_in(loaded.raw), *secret_values(env)]
