"""The extensions of a profile: plugins, the runtimes they register, and features' services."""

from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from anyio.abc import TaskGroup

from hermes.app.options import AppOptions
from hermes.app.prompt_context import file_provenance
from hermes.config.home import Home
from hermes.kit.clock import Clock
from hermes.plugins.registry import SharedPlugins
from hermes.ports.approvals import Approvals
from hermes.ports.feature_catalog import FEATURES, load_attribute
from hermes.ports.plugins import (
    ModelDefaults,
    PluginServices,
    SharedResources,
    WatchCommand,
    WatchedCommand,
    WorkspacePolicy,
)
from hermes.ports.turn import TurnHooks
from hermes.sandbox.program_launcher import program_launcher
from hermes.schema.scope import Scope

if TYPE_CHECKING:
    from hermes.app.build import App


def plugin_services(
    base: "App",
    *,
    choices: AppOptions,
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
            model=choices.model or model.default,
            provider=choices.provider or model.provider,
            base_url=choices.base_url or "",
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


@runtime_checkable
class Closable(Protocol):
    """A service that holds connections."""

    async def close(self) -> None: ...


class FeatureServices:
    """Builds each service when it is first used."""

    def __init__(self, app: "App") -> None:
        self._app = app
        self._built: dict[str, object] = {}

    def get(self, feature: str) -> Any:
        """The service of a feature of the catalog."""
        if feature not in self._built:
            self._built[feature] = load_attribute(FEATURES[feature].service)(self._app)
        return self._built[feature]

    async def aclose(self) -> None:
        """Close the services that were used."""
        built, self._built = self._built, {}
        for service in built.values():
            if isinstance(service, Closable):
                await service.close()
