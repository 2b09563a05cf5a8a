"""Compose one profile: each part is built from the parts it needs, and closed in order."""

import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache, cached_property
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup

from hermes.app.chat_settings import ChatSettings
from hermes.app.learning import Learning
from hermes.app.model_settings import model_settings
from hermes.app.models import ModelSelector
from hermes.app.options import AppOptions, known_secrets, open_logs
from hermes.app.planner import RuntimeSelector, StandardPlanner, turn_settings
from hermes.app.plugins import FeatureServices
from hermes.app.prompt_context import PromptContext
from hermes.app.setting_problems import setting_problems, warning_line
from hermes.app.storage import LoggedProgress, import_public_sessions, open_archive, open_blobs
from hermes.app.toolbox import McpService, Toolbox, ToolSelection, tool_selection
from hermes.app.turn_services import (
    BackgroundReviews,
    build_compaction,
    goal_callback,
    title_callbacks,
)
from hermes.bus.local import LocalBus
from hermes.config.env import Env, profile_env
from hermes.config.home import Home, ensure_home, user_home
from hermes.config.loader import LoadedConfig, load_config
from hermes.config.variables import proxy_url
from hermes.kit.clock import Clock, SystemClock
from hermes.kit.redact import Redactor
from hermes.kit.tasks import background_tasks
from hermes.logs import Logs
from hermes.models.catalog import price
from hermes.models.settings import ModelOverrides
from hermes.plugins.registry import CODEX, CODEX_RUNTIME, PROXY, Plugins, SharedPlugins
from hermes.plugins.runtime_switch import RuntimeSwitch
from hermes.ports.checkpoints import Checkpoints
from hermes.ports.plugins import PluginServices
from hermes.ports.store import Store
from hermes.ports.tool import Tool
from hermes.ports.turn import TurnHooks
from hermes.sandbox.backends import runs_elsewhere
from hermes.sandbox.spawner import Spawner
from hermes.schema.errors import StoreError
from hermes.schema.messages import Text
from hermes.schema.scope import Scope, policy_platform
from hermes.schema.sessions import Session
from hermes.session.conversation import Conversation, MessageParts, SessionOptions, unchanged_parts
from hermes.session.lease import heartbeat
from hermes.session.runner import Runner
from hermes.session.spend_guard import SpendCaps, SpendGuard
from hermes.tools.catalog import LazyCheckpoints
from hermes.tools.collaborators import ToolCollaborators

if TYPE_CHECKING:
    from hermes.app.followup_router import FollowupRouter
    from hermes.app.message_sender import OutboxSender
    from hermes.app.session_notices import SessionNotices
    from hermes.app.tool_factory import ToolFactory
    from hermes.approvals.service import ApprovalService
    from hermes.sandbox.sandboxes import Sandboxes
    from hermes.subagents.delegations import Delegations
    from hermes.tools.processes.registry import ProcessRegistry

log = logging.getLogger(__name__)


class App:
    """One open profile. A part is built when it is first used, from the parts it needs."""

    price = staticmethod(price)

    def __init__(
        self,
        *,
        home: Home,
        env: Env,
        loaded: LoadedConfig,
        options: AppOptions,
        redactor: Redactor,
        logs: Logs | None,
        clock: Clock,
        store: Store,
        tasks: TaskGroup,
        closing: AsyncExitStack,
        shared: SharedPlugins | None,
    ) -> None:
        """A part that must be closed adds itself to `closing` when it is built."""
        self.home = home
        self.env = env
        self.loaded = loaded
        self.config = loaded.config
        self.redactor = redactor
        self.clock = clock
        self.store = store
        self.bus = LocalBus(home.database)
        self.blobs = open_blobs(home)
        self.tasks = tasks
        self._options = options
        self._logs = logs
        self._closing = closing
        self._shared = shared
        self.chats = ChatSettings(self.config)
        self.learning = Learning(home, env, self.config, store, clock)
        self.servers = McpService(self, options.workspace, closing)
        self.plugins = Plugins(cache(self._plugin_services))
        """What plugins registered; their services are built with the first one."""

    @cached_property
    def spawner(self) -> Spawner:
        spawner = Spawner()
        self._closing.callback(spawner.close)
        return spawner

    @cached_property
    def followups(self) -> "FollowupRouter":
        from hermes.app.followup_router import FollowupRouter  # noqa: PLC0415 - few turns need it

        return FollowupRouter(self.store, self.bus)

    @cached_property
    def features(self) -> FeatureServices:
        services = FeatureServices(self)
        self._closing.push_async_callback(services.aclose)
        return services

    def _plugin_services(self) -> PluginServices:
        from hermes.app.plugins import plugin_services  # noqa: PLC0415 - only with plugins

        return plugin_services(
            self,
            choices=self._options,
            approvals=self.approvals,
            hooks=self.planner.hooks,
            tasks=self.tasks,
            shared=self._shared,
        )

    @cached_property
    def notices(self) -> "SessionNotices":
        from hermes.app.session_notices import SessionNotices  # noqa: PLC0415 - few turns need it

        return SessionNotices(self.clock, self.bus)

    @cached_property
    def models(self) -> ModelSelector:
        options = self._options
        flags = ModelOverrides(
            model=options.model or "",
            provider=options.provider or "",
            base_url=options.base_url or "",
            api_key=options.api_key or "",
        )
        models = ModelSelector(
            self.home,
            self.env,
            model_settings(self.config, self.home.root),
            self.blobs,
            self.clock,
            flags,
            providers=self.plugins.model_provider,
        )
        self._closing.push_async_callback(models.aclose)
        return models

    @cached_property
    def sender(self) -> "OutboxSender":
        from hermes.app.message_sender import OutboxSender  # noqa: PLC0415 - few turns need it

        return OutboxSender(self.home, self.env, self.store, self.clock, self.bus)

    @cached_property
    def approvals(self) -> "ApprovalService":
        from hermes.app.approvals import build_approvals  # noqa: PLC0415 - at the first tool call

        return build_approvals(
            self.home,
            self.config,
            self.env,
            store=self.store,
            clock=self.clock,
            models=self.models,
            forwarder=self.sender,
        )

    @cached_property
    def processes(self) -> "ProcessRegistry":
        from hermes.tools.processes.registry import ProcessDeps, ProcessRegistry  # noqa: PLC0415 - first tool call

        deps = ProcessDeps(
            store=self.store,
            clock=self.clock,
            followups=self.followups,
            current_scope=self.followups.current_scope,
            redact=self.redactor.redact,
            logs=self.home.cache / "output" / "processes",
        )
        return ProcessRegistry(deps, self.tasks)

    @cached_property
    def sandboxes(self) -> "Sandboxes":
        from hermes.sandbox.sandboxes import SandboxDeps, Sandboxes  # noqa: PLC0415 - as above

        deps = SandboxDeps(self.home, self.env, self.config.terminal, self.spawner, self.clock)
        return Sandboxes(deps)

    @cached_property
    def checkpoints(self) -> Checkpoints | None:
        if self.config.checkpoints.enabled is False:
            return None
        return LazyCheckpoints(self._build_checkpoints)

    def _build_checkpoints(self) -> Checkpoints:
        from hermes.app.tool_factory import build_checkpoints  # noqa: PLC0415 - as above

        return build_checkpoints(
            self.home, self.env, self.config, self.clock, lambda: self.sandboxes.local
        )

    async def _files_changed(self, scope: Scope) -> bool | None:
        """Whether a turn changed files; None if unknown, for example with a remote sandbox."""
        checkpoints = self.checkpoints
        if checkpoints is None or runs_elsewhere(self.config.terminal, policy_platform(scope)):
            return None
        return await checkpoints.changed(scope.run)

    @cached_property
    def _tool_factory(self) -> "ToolFactory":
        from hermes.app.tool_factory import ToolFactory  # noqa: PLC0415 - at the first tool call

        return ToolFactory(
            home=self.home,
            env=self.env,
            config=self.config,
            redactor=self.redactor,
            blobs=self.blobs,
            clock=self.clock,
            processes=self.processes,
            store=self.store,
            delegates=lambda: self.delegations,
            learning=self.learning,
            sender=self.sender,
            sandboxes=self.sandboxes,
            checkpoints=self.checkpoints,
            features=self.features,
        )

    def _collaborators(self, platform: str) -> ToolCollaborators:
        return self._tool_factory.collaborators(platform)

    @cached_property
    def child_env(self) -> Callable[[Scope], dict[str, str]]:
        """Builds the environment of programs that run for a scope, without secrets."""
        from hermes.app.tool_factory import child_env_rules  # noqa: PLC0415 - few turns need it

        return child_env_rules(self.home, self.env, self.config)

    @cached_property
    def toolbox(self) -> Toolbox:
        options = self._options
        selection = ToolSelection()
        if options.toolsets is not None or options.excluded_toolsets:
            selection = tool_selection(self.config, options.toolsets, options.excluded_toolsets)
        return Toolbox(self._collaborators, self.config, selection)

    @cached_property
    def planner(self) -> StandardPlanner:
        settings = turn_settings(
            self.config,
            self.home,
            user_home=user_home(self.env),
            steps=self._options.max_steps,
            system_prompt=self._options.system_prompt,
        )
        limits = self.config.limits
        caps = SpendCaps(
            session=limits.usd_per_session,
            day=limits.usd_per_day,
            principal=limits.usd_per_principal,
        )
        return StandardPlanner(
            models=self.models,
            toolbox=self.toolbox,
            servers=self.servers,
            chats=self.chats,
            settings=settings,
            prompt_context=PromptContext(self.home, self.config, self.learning, self.clock),
            soul=self.home.soul,
            clock=self.clock,
            approvals=lambda: self.approvals,
            spend_guard=SpendGuard(self.store, self.clock, caps) if caps != SpendCaps() else None,
            hooks=self._hooks() if self.config.hooks else None,
            files_changed=self._files_changed,
        )

    def _hooks(self) -> TurnHooks:
        from hermes.app.tool_factory import build_hooks  # noqa: PLC0415 - only with hooks

        redact = self.redactor.redact
        return build_hooks(self.home, self.env, self.config, self.spawner, redact)

    @cached_property
    def runtimes(self) -> RuntimeSwitch:
        return RuntimeSwitch(self.plugins)

    compaction = cached_property(build_compaction)

    @cached_property
    def reviews(self) -> BackgroundReviews:
        return BackgroundReviews(
            config=self.config,
            store=self.store,
            clock=self.clock,
            notices=self.notices,
            planner=self.planner,
            price=price,
            models=self.models,
            learning=self.learning,
            compaction=self.compaction,
            profile=self.home.profile,
            tasks=self.tasks,
        )

    @cached_property
    def runner(self) -> Runner:
        after_turn = title_callbacks(
            self.config,
            store=self.store,
            clock=self.clock,
            models=self.models,
            price=price,
            redact=self.redactor.redact,
            tasks=self.tasks,
        )
        if self._options.reviews_turns and proxy_url(self.config, self.env) is None:
            after_turn = (*after_turn, self.reviews.turn_ended)
        if self._options.reviews_turns:
            after_turn = (*after_turn, goal_callback(self.store, self.features, self.tasks))
        runner = Runner(
            store=self.store,
            clock=self.clock,
            planner=RuntimeSelector(
                standard=self.planner,
                runtimes=self.plugins.runtimes,
                approvals=lambda: self.approvals,
                clock=self.clock,
            ),
            price=price,
            profile=self.home.profile,
            bus=self.bus,
            compaction=self.compaction,
            questions=lambda: self.approvals,
            after_turn=after_turn,
        )
        self._closing.push_async_callback(runner.aclose)
        return runner

    @cached_property
    def delegations(self) -> "Delegations":
        from hermes.app.subagents import delegation_deps  # noqa: PLC0415 - as above
        from hermes.subagents.delegations import Delegations  # noqa: PLC0415 - as above

        deps = delegation_deps(self.config, self.store, self.runner, self.clock, self.followups)
        return Delegations(deps, self.tasks)

    @cached_property
    def conversation(self) -> Conversation:
        options = SessionOptions(source=self._options.source, cwd=self._options.workspace)
        return self.new_conversation(options)

    @cached_property
    def warnings(self) -> list[str]:
        """Warnings about the settings."""
        return [
            *map(warning_line, setting_problems(self.loaded, self.home, self.env)),
            *(self.servers.loaded.warnings() if self.servers.loaded else ()),
            *(self.planner.hooks.warnings() if self.planner.hooks else ()),
        ]

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The tools for the platform this app was started from."""
        return self.toolbox.tools_on(self._options.source)

    def add_log_redactor(self, redactor: Redactor) -> None:
        """Mask another home's secrets in this home's log files."""
        if self._logs is not None:
            self._logs.add_redactor(redactor)

    def new_conversation(self, origin: SessionOptions) -> Conversation:
        """Create a conversation; any number can run at the same time."""
        # References are for the owner's own input: elsewhere "@" is ordinary text.
        expand = self._expanded if origin.source in {"cli", "web"} else unchanged_parts
        return Conversation(self.store, self.clock, self.runner, origin, expand)

    async def _expanded(self, session: Session, parts: MessageParts) -> MessageParts:
        if not any("@" in part.text for part in parts if isinstance(part, Text)):
            return parts
        from hermes.app.references import build_references  # noqa: PLC0415 - few messages use them

        workspace, profile = session.cwd, self.home.profile
        scope = Scope(profile=profile, session=session.id, run="", workspace=workspace)
        return await build_references(self).expand(parts, scope)

    def status(self, session: Session) -> Sequence[tuple[str, str]]:
        return [
            ("profile", self.home.profile),
            ("home", str(self.home.path)),
            ("tools", ", ".join(self.models.tools_for(session, self.tools)) or "none"),
            ("sandbox", self.sandboxes.describe(self._options.source)),
            *([("runtime", self.runtimes.status())] if self.runtimes.enabled else []),
            *([("mcp", status)] if (status := self.servers.status()) else []),
        ]

    def start(self) -> None:
        """Load plugins, settle dead processes' work, and connect servers if this process stays."""
        codex = self.config.main_model.openai_runtime == CODEX_RUNTIME
        if proxy_url(self.config, self.env) is not None:
            self.plugins.load(PROXY)
        if codex:
            self.plugins.load(CODEX)
        self.tasks.start_soon(self.recover)
        if self.config.mcp_servers:
            servers = self.servers.load()
            if self._options.reviews_turns and not codex:
                servers.start()

    async def recover(self) -> None:
        """Settle background work that dead processes left in the store."""
        try:
            if not await self.store.has_background_work():
                return
            if await self.store.processes.abandoned():
                await self.processes.recover()
            if await self.store.delegations.abandoned():
                await self.delegations.recover()
        except StoreError as error:
            log.warning("cannot recover the work of dead processes: %s", error)


@asynccontextmanager
async def open_app(
    home: Home, env: Env, options: AppOptions, shared: SharedPlugins | None = None
) -> AsyncGenerator[App]:
    """Open a profile; several profiles of a process can share the resources of plugins.

    Raises `ConfigError` if the home or its settings are wrong.
    """
    ensure_home(home)
    env = profile_env(home.dotenv, env)
    loaded = load_config(home, env)
    redactor = Redactor(known_secrets(home, loaded, env, options))
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        logs = open_logs(home, loaded.config, redactor, options)
        if logs is not None:
            stack.callback(logs.close)
        store = await stack.enter_async_context(open_archive(home, clock, options.worker_ttl))
        await stack.enter_async_context(heartbeat(store.workers, clock))
        if home.legacy_database.is_file():
            await import_public_sessions(store, home, LoggedProgress())
        # Parts without a task of their own are closed after all tasks have ended.
        closing = AsyncExitStack()
        try:
            async with background_tasks() as tasks:
                app = App(
                    home=home, env=env, loaded=loaded, options=options, redactor=redactor,
                    logs=logs, clock=clock, store=store, tasks=tasks, closing=closing,
                    shared=shared,
                )  # fmt: skip
                try:
                    app.start()
                    yield app
                finally:
                    with anyio.CancelScope(shield=True):
                        await app.plugins.closing.aclose()
        finally:
            with anyio.CancelScope(shield=True):
                await closing.aclose()
