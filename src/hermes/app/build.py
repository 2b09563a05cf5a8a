"""Build one profile's object graph, and take it down again in order."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
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
from hermes.app.prompt_context import PromptContext, personality_text
from hermes.app.proxy import ProxyDeps, build_followups, proxy_url, with_proxy
from hermes.app.subagents import delegation_deps
from hermes.app.toolbox import Toolbox, ToolFactory
from hermes.approvals.service import ApprovalService
from hermes.config.dotenv import profile_env
from hermes.config.env import Env
from hermes.config.home import Home, ensure_home, user_home
from hermes.config.loader import LoadedConfig, load_config
from hermes.config.masking import secrets_in
from hermes.config.schema import Config
from hermes.config.variables import secret_values
from hermes.kit.clock import Clock, SystemClock
from hermes.kit.redact import Redactor
from hermes.logs.files import Logs, LogScope, LogSettings, set_up_logs
from hermes.models.catalog import price
from hermes.models.key_pool import stored_secrets
from hermes.models.settings import ModelOverrides
from hermes.ports.runtime import Runtime
from hermes.ports.tool import Tool
from hermes.sandbox.spawner import Spawner
from hermes.schema.messages import Message, Text, Usage
from hermes.schema.scope import Scope
from hermes.schema.sessions import Session
from hermes.session.conversation import Conversation, MessageParts, SessionOptions, unchanged_parts
from hermes.session.runner import Runner
from hermes.session.spend_guard import SpendCaps, SpendGuard
from hermes.store.blobs import FileBlobs
from hermes.store.sqlite import SqliteStore, open_store
from hermes.subagents.delegations import Delegations, open_delegations
from hermes.tools.processes.registry import ProcessDeps, ProcessRegistry, open_process_registry

if TYPE_CHECKING:
    from hermes.runtimes.proxy.followups import RemoteFollowups


class AppOptions(Struct, frozen=True, kw_only=True):
    """What the one who starts the program asks for; unset means as the settings say.

    `without` are toolsets that are left out in any case. `looks_back` is for a process that goes
    on after a turn, and so has the time to learn from it. `logs` writes the home's log files:
    for a process that is ours; the loggers of somebody else's are not.
    """

    workspace: str
    source: str = "cli"
    model: str | None = None
    provider: str | None = None
    base_url: str | None = None
    api_key: str | None = None
    toolsets: tuple[str, ...] | None = None
    without: tuple[str, ...] = ()
    max_steps: int | None = None
    system_prompt: str = ""
    looks_back: bool = False
    logs: bool = False
    log_share: LogScope = LogScope.EVERYTHING


class App:
    """One profile, open and ready to talk."""

    def __init__(
        self, home: Home, loaded: LoadedConfig, store: SqliteStore, parts: "_AppDeps"
    ) -> None:
        self.home = home
        self.config = loaded.config
        self.env = parts.env
        self.redactor = parts.redactor
        self._logs = parts.logs
        self._origin = parts.origin
        source = self._source = parts.origin.source
        self.warnings = [
            *map(str, loaded.warnings),
            *parts.toolbox.warnings(source),
            *parts.servers.warnings(),
            *(parts.planner.watch.warnings() if parts.planner.watch else ()),
        ]
        self.store = store
        self.blobs = parts.blobs
        self.clock = parts.clock
        self.models = parts.models
        self.chats = parts.chats
        self.toolbox = parts.toolbox
        self.planner = parts.planner
        self.runner = parts.runner
        self.later = parts.later
        self.afterwards = parts.afterwards
        self.codex = parts.codex
        self.servers = parts.servers
        self.approvals = parts.approvals
        self.processes = parts.processes
        self.delegations = parts.delegations
        self.learning = parts.learning
        self.reviews = parts.reviews
        self.outgoing = parts.outgoing
        self.checkpoints = parts.toolbox.checkpoints
        self.conversation = self.talk(parts.origin)

    @property
    def tools(self) -> Mapping[str, Tool]:
        """Those of where the program was started from."""
        return self.toolbox.on(self._source)

    def add_log_redactor(self, redactor: Redactor) -> None:
        """Mask the secrets of another home, too, in what this one's log files get."""
        if self._logs is not None:
            self._logs.mask_also(redactor)

    def talk(self, origin: SessionOptions) -> Conversation:
        """A conversation of its own; any number may go on at the same time."""
        # References are for who sits at this machine: elsewhere an @ is part of somebody's words.
        expand = self._expanded if origin.source == "cli" else unchanged_parts
        return Conversation(self.store, self.clock, self.runner, origin, expand)

    async def _expanded(self, session: Session, parts: MessageParts) -> MessageParts:
        if not any("@" in part.text for part in parts if isinstance(part, Text)):
            return parts
        from hermes.app.references import build_references  # noqa: PLC0415 - few questions refer

        workspace, profile = session.cwd, self.home.profile
        scope = Scope(profile=profile, session=session.id, run="", workspace=workspace)
        return await build_references(self).expand(parts, scope)

    def use_runtime(self, runtime: Runtime) -> None:
        """Have every turn of the own conversation run by this one, whatever the settings say."""
        planner = RuntimePlanner(runtime, self.planner)
        runner = Runner(self.store, self.clock, planner, price, self.home.profile)
        runner.lease_renewer = self.runner.lease_renewer
        self.conversation = Conversation(self.store, self.clock, runner, self._origin)

    def price(self, model: str, provider: str, usage: Usage) -> float | None:
        return price(model, provider, usage)

    def status(self, session: Session) -> Sequence[tuple[str, str]]:
        return [
            ("profile", self.home.profile),
            ("home", str(self.home.path)),
            ("tools", ", ".join(self.models.told(session, self.tools)) or "none"),
            ("sandbox", self.toolbox.sandboxes.describe(self._source)),
            *([("runtime", self.codex.status())] if self.codex.on else []),
            *([("mcp", told)] if (told := self.servers.status()) else []),
        ]


class _AppDeps(Struct, frozen=True, kw_only=True):
    blobs: FileBlobs
    clock: Clock
    models: ModelSelector
    toolbox: Toolbox
    planner: StandardPlanner
    chats: ChatSettings
    env: Env
    logs: Logs | None
    redactor: Redactor
    runner: Runner
    later: FollowupRouter
    afterwards: "RemoteFollowups | None"
    codex: Codex
    servers: McpServers
    approvals: ApprovalService
    processes: ProcessRegistry
    delegations: Delegations
    learning: Learning
    reviews: BackgroundReviews
    outgoing: OutboxSender
    origin: SessionOptions


class _AppBase(Struct, frozen=True, kw_only=True):
    """What all parts of a profile stand on."""

    home: Home
    env: Env
    loaded: LoadedConfig
    choices: AppOptions
    redactor: Redactor
    logs: Logs | None
    clock: Clock
    store: SqliteStore
    blobs: FileBlobs
    door: Spawner
    later: FollowupRouter

    @property
    def config(self) -> Config:
        return self.loaded.config


class _DelegationRef:
    """Subagents need the runner, whose tools need them: they are asked for when one is called."""

    delegations: Delegations

    def delegates(self) -> Delegations:
        return self.delegations


@asynccontextmanager
async def open_app(
    home: Home, env: Env, choices: AppOptions, room: ModelServerPool | None = None
) -> AsyncGenerator[App]:
    """`room` is for embedded models that several profiles of a process share.

    Raises `ConfigError` when the home or its settings are wrong.
    """
    async with AsyncExitStack() as stack:
        opened = stack.enter_async_context
        on = await _open_base(home, env, choices, stack)
        env, config, store, clock = on.env, on.config, on.store, on.clock
        desk = ModelSelector(home, env, model_settings(config), on.blobs, clock, _flags(choices))
        await opened(open_models(desk, env, on.door, room))
        processes = await opened(open_process_registry(_process_deps(on)))
        learning = Learning(home, env, config, store, clock)
        hands, outgoing = _DelegationRef(), OutboxSender(home, env, store, clock)
        bench = ToolFactory(
            home, env, config, on.redactor, on.blobs, on.door, clock, processes,
            store=store, delegates=hands.delegates, learning=learning, poster=outgoing,
        )  # fmt: skip
        toolbox = bench.toolbox(choices.toolsets, choices.without)
        chats = ChatSettings(config)
        approvals = build_approvals(config, env, store, clock, desk, outgoing)
        turns = _turn_settings(on, learning)
        planner = StandardPlanner(desk, toolbox, chats, turns, home.soul, clock)
        planner.asks(approvals, bench.watch())
        servers = await opened(open_mcp_servers(_mcp_deps(on, toolbox), planner))
        near = ProxyDeps(
            blobs=on.blobs, clock=clock, store=store, later=on.later, counsel=approvals
        )
        afterwards = build_followups(config, env, near)
        codex = await opened(open_codex(_codex_deps(on, planner, approvals)))
        chosen = codex.planner(planner, with_proxy(planner, config, env, near, afterwards))
        means = CompactionDeps(store, clock, price, desk, on.redactor.redact)
        shortened = build_compaction(config, means)
        runner = Runner(store, clock, chosen, price, home.profile, shortened)
        await opened(aclosing(runner))
        runner.minds(approvals)
        await opened(open_titles(config, means, runner))
        looking = _review_deps(on, planner, desk, learning, runner)
        reviews = await opened(open_reviews(looking, runner))
        delegated = delegation_deps(config, store, runner, clock, on.later)
        hands.delegations = await opened(open_delegations(delegated))
        parts = _AppDeps(
            blobs=on.blobs, clock=clock, models=desk, toolbox=toolbox, planner=planner,
            chats=chats, env=env, logs=on.logs, redactor=on.redactor, runner=runner,
            later=on.later, afterwards=afterwards, codex=codex, servers=servers,
            approvals=approvals, processes=processes, delegations=hands.delegations,
            learning=learning, reviews=reviews, outgoing=outgoing,
            origin=SessionOptions(source=choices.source, cwd=choices.workspace),
        )  # fmt: skip
        yield App(home, on.loaded, store, parts)


async def _open_base(home: Home, env: Env, choices: AppOptions, stack: AsyncExitStack) -> _AppBase:
    ensure_home(home)
    env = profile_env(home.dotenv, env)
    loaded = load_config(home, env)
    redactor = Redactor(_secrets(home, loaded, env, choices))
    clock = SystemClock()
    logs = _logs(home, loaded.config, redactor, choices)
    stack.callback(logs.close if logs else _no_logs)
    store = await stack.enter_async_context(open_store(home.state_db, clock))
    return _AppBase(
        home=home,
        env=env,
        loaded=loaded,
        choices=choices,
        redactor=redactor,
        logs=logs,
        clock=clock,
        store=store,
        blobs=FileBlobs(home.cache / "blobs"),
        door=stack.enter_context(Spawner()),
        later=FollowupRouter(store),
    )


def _process_deps(on: _AppBase) -> ProcessDeps:
    return ProcessDeps(
        store=on.store,
        clock=on.clock,
        later=on.later,
        present=on.later.present,
        redact=on.redactor.redact,
        logs=on.home.cache / "output" / "processes",
    )


def _mcp_deps(on: _AppBase, toolbox: Toolbox) -> McpDeps:
    return McpDeps(
        home=on.home,
        env=on.env,
        loaded=on.loaded,
        toolbox=toolbox,
        blobs=on.blobs,
        clock=on.clock,
        redactor=on.redactor,
        workspace=on.choices.workspace,
        early=on.choices.looks_back and on.config.main_model.openai_runtime != CODEX_RUNTIME,
    )


def _codex_deps(
    on: _AppBase, planner: StandardPlanner, approvals: ApprovalService
) -> CodexHostDeps:
    return CodexHostDeps(
        home=on.home,
        config=on.config,
        env=on.env,
        flags=_flags(on.choices),
        door=on.door,
        store=on.store,
        clock=on.clock,
        blobs=on.blobs,
        counsel=approvals,
        watch=planner.watch,
        proxied=proxy_url(on.config, on.env) is not None,
    )


def _review_deps(
    on: _AppBase, planner: StandardPlanner, desk: ModelSelector, learning: Learning, runner: Runner
) -> BackgroundReviewDeps:
    return BackgroundReviewDeps(
        config=on.config,
        store=on.store,
        clock=on.clock,
        planner=planner,
        price=price,
        models=desk,
        learning=learning,
        compressing=runner.compressing,
        profile=on.home.profile,
        on=on.choices.looks_back and proxy_url(on.config, on.env) is None,
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
    return set_up_logs(home.logs, settings, redactor, choices.log_share)


def _no_logs() -> None:
    """There are no logs to close."""


def _turn_settings(on: _AppBase, learning: Learning) -> TurnSettings:
    config, choices = on.config, on.choices
    rails = config.tool_loop_guardrails
    return TurnSettings(
        steps=choices.max_steps or config.agent.max_turns,
        guard=GuardLimits(
            warns=rails.warnings_enabled,
            stops=rails.hard_stop_enabled,
            warn_same_failure=rails.warn_after.exact_failure,
            warn_tool_failures=rails.warn_after.same_tool_failure,
            warn_no_progress=rails.warn_after.idempotent_no_progress,
            stop_same_failure=rails.hard_stop_after.exact_failure,
            stop_tool_failures=rails.hard_stop_after.same_tool_failure,
            stop_no_progress=rails.hard_stop_after.idempotent_no_progress,
        ),
        effort=config.agent.reasoning_effort or None,
        personality=partial(personality_text, config),
        briefing=PromptContext(on.home, config, learning, on.clock),
        user_home=user_home(on.env),
        extra_prompt="\n\n".join(
            filter(
                None,
                [
                    config.agent.environment_hint.strip(),
                    config.agent.system_prompt,
                    choices.system_prompt,
                ],
            )
        ),
        efforts={
            name: effort
            for name, effort in config.agent.reasoning_overrides.items()
            if isinstance(effort, str)
        },
        prefill=_prefill(on.home, config),
        purse=SpendGuard(on.store, on.clock, _spend_caps(config)),
    )


def _prefill(home: Home, config: Config) -> Sequence[Message]:
    if not config.prefill_messages_file.strip():
        return ()
    from hermes.app.prefill import read_prefill  # noqa: PLC0415 - few people have any

    return read_prefill(home, config.prefill_messages_file.strip())


def _spend_caps(config: Config) -> SpendCaps:
    limits = config.limits
    return SpendCaps(
        session=limits.usd_per_session,
        day=limits.usd_per_day,
        principal=limits.usd_per_principal,
    )


def _secrets(home: Home, loaded: LoadedConfig, env: Env, choices: AppOptions) -> list[str]:
    """Every value that must not show up in a log, a result or an error."""
    if not loaded.config.security.redact_secrets:
        return []
    given = [choices.api_key] if choices.api_key else []
    kept = stored_secrets(home.auth) if home.auth.exists() else []
    return [*given, *kept, *secrets_in(loaded.raw), *secret_values(env)]
