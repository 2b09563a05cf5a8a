"""The plugins of a profile, loaded when the settings need them or on request."""

from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Protocol, cast

from anyio.abc import TaskGroup
from msgspec import Struct

from hermes.config.schema import Config
from hermes.config.variables import proxy_url
from hermes.kit.tasks import background_tasks
from hermes.ports.plugins import (
    PluginContext,
    PluginServices,
    RuntimeProvider,
    SwitchableRuntime,
)

CODEX_RUNTIME = "codex_app_server"


class PluginManifest(Struct, frozen=True, kw_only=True):
    """A plugin that can be listed without importing it."""

    name: str
    module: str  # with a function `register(ctx)`
    is_needed: Callable[[Config, Mapping[str, str]], bool]
    runtime: str = ""  # the runtime it registers, if people can switch it


def _has_codex(config: Config, _: Mapping[str, str]) -> bool:
    return config.main_model.openai_runtime == CODEX_RUNTIME


def _has_proxy(config: Config, env: Mapping[str, str]) -> bool:
    return proxy_url(config, env) is not None


BUILT_IN = (
    PluginManifest(name="proxy", module="hermes.runtimes.proxy.plugin", is_needed=_has_proxy),
    PluginManifest(
        name="codex",
        module="hermes.runtimes.codex.plugin",
        is_needed=_has_codex,
        runtime=CODEX_RUNTIME,
    ),
)
"""In the order in which their runtimes are asked."""


class _PluginModule(Protocol):
    def register(self, ctx: PluginContext) -> None: ...


class Plugins:
    """Implements `PluginContext` and holds what was registered."""

    def __init__(self, services: PluginServices) -> None:
        self.services = services
        self.runtimes: list[RuntimeProvider] = []
        self.switches: dict[str, SwitchableRuntime] = {}
        self.gateway_tasks: list[Callable[[], Coroutine[None, None, None]]] = []
        self._loaded: set[str] = set()

    def load(self, manifest: PluginManifest) -> None:
        """Import the plugin and let it register, once."""
        if manifest.name not in self._loaded:
            self._loaded.add(manifest.name)
            cast("_PluginModule", import_module(manifest.module)).register(self)

    def register_runtime(self, runtime: RuntimeProvider) -> None:
        self.runtimes.append(runtime)

    def register_switch(self, runtime: SwitchableRuntime) -> None:
        self.switches[runtime.name] = runtime
        self.register_runtime(runtime)

    def register_gateway_task(self, run: Callable[[], Coroutine[None, None, None]]) -> None:
        self.gateway_tasks.append(run)


@asynccontextmanager
async def open_plugins(
    services: Callable[[TaskGroup], PluginServices],
) -> AsyncGenerator[Plugins]:
    """Load the built-in plugins that the settings need; their tasks end with the block."""
    async with background_tasks() as group:
        plugins = Plugins(services(group))
        for manifest in BUILT_IN:
            if manifest.is_needed(plugins.services.config, plugins.services.env):
                plugins.load(manifest)
        yield plugins
