"""Open a profile's plugins, and plan turns for the runtimes they register."""

from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Protocol

from anyio.abc import TaskGroup

from hermes.agent.plan import Plan, RuntimePlan
from hermes.app.planner import StandardPlanner
from hermes.app.prompt_context import file_provenance
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.config.loader import LoadedConfig
from hermes.config.schema import Config
from hermes.kit.clock import Clock
from hermes.kit.redact import Redactor
from hermes.models.settings import ModelOverrides
from hermes.plugins.shared import SharedPlugins
from hermes.ports.approvals import Approvals
from hermes.ports.message_sender import Followups
from hermes.ports.plugins import (
    ModelDefaults,
    PluginServices,
    RuntimeProvider,
    SharedResources,
    WatchCommand,
    WatchedCommand,
    WorkspacePolicy,
)
from hermes.ports.store import Blobs, Store
from hermes.ports.turn import TurnHooks
from hermes.sandbox.program_launcher import program_launcher
from hermes.sandbox.spawner import Spawner
from hermes.schema.messages import Message
from hermes.schema.scope import Scope
from hermes.schema.sessions import Session


class ProfileBase(Protocol):
    """The parts of a profile that plugins and MCP servers use."""

    @property
    def home(self) -> Home: ...
    @property
    def config(self) -> Config: ...
    @property
    def env(self) -> Env: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def store(self) -> Store: ...
    @property
    def blobs(self) -> Blobs: ...
    @property
    def spawner(self) -> Spawner: ...
    @property
    def followups(self) -> Followups: ...
    @property
    def loaded(self) -> LoadedConfig: ...
    @property
    def redactor(self) -> Redactor: ...


def plugin_services(
    base: ProfileBase,
    *,
    flags: ModelOverrides,
    approvals: Approvals,
    hooks: TurnHooks | None,
    tasks: TaskGroup,
    shared: SharedResources | None,
) -> PluginServices:
    """Without `shared` resources of the process, those of the plugins end with the profile."""
    model, launch = base.config.main_model, program_launcher(base.spawner)
    return PluginServices(
        home=base.home,
        config=base.config,
        env=base.env,
        clock=base.clock,
        store=base.store,
        blobs=base.blobs,
        approvals=approvals,
        hooks=hooks,
        followups=base.followups,
        model=ModelDefaults(
            model=flags.model or model.default,
            provider=flags.provider or model.provider,
            base_url=flags.base_url,
        ),
        launch=launch,
        watch_command=_command_watcher(base.home, base.clock),
        workspace_policy=partial(_workspace_policy, base.home, base.env),
        tasks=tasks,
        shared=shared or SharedPlugins(launch, tasks),
    )


def _workspace_policy(home: Home, env: Mapping[str, str], workspace: str) -> WorkspacePolicy:
    from hermes.sandbox.workspace_policy import workspace_policy  # noqa: PLC0415 - only for runtimes

    return workspace_policy(home, env, workspace)


def _command_watcher(home: Home, clock: Clock) -> WatchCommand:
    """Observe commands of a runtime as our own are, with provenance in the same file."""
    provenance = cache(partial(file_provenance, home, clock))

    def watch(
        command: str, folder: str, began: float | None, others: str, scope: Scope
    ) -> WatchedCommand:
        from hermes.tools.provenance.command_provenance import WatchedCommand  # noqa: PLC0415 - as above

        running = Path(others) if others else None
        return WatchedCommand(provenance(), command, folder, began, running, scope=scope)

    return watch


class RuntimeSelector:
    """Plans a turn for the first registered runtime that takes it, otherwise as usual."""

    def __init__(
        self,
        standard: StandardPlanner,
        runtimes: Sequence[RuntimeProvider],
        *,
        approvals: Approvals,
        clock: Clock,
    ) -> None:
        self._standard = standard
        self._runtimes = runtimes
        self._approvals = approvals
        self._clock = clock

    async def plan(
        self, session: Session, scope: Scope, history: Sequence[Message]
    ) -> Plan | RuntimePlan:
        for provider in self._runtimes:
            turn = await provider.turn_for(session, scope, history, self._standard.offered)
            if turn is None:
                continue
            model = turn.prompt_for
            return RuntimePlan(
                scope=scope,
                runtime=turn.runtime,
                system=self._standard.extra_instructions(session, scope)
                if model is None
                else self._standard.prompt(session, scope, model, turn.tools),
                history=history,
                tools=turn.tools,
                approvals=self._approvals,
                clock=self._clock,
                hooks=self._standard.hooks,
            )
        return await self._standard.plan(session, scope, history)
