"""The plugins of a profile, loaded when the settings need them or on request."""

from collections.abc import Callable, Coroutine, Mapping
from importlib import import_module
from typing import Protocol, cast

import anyio
from msgspec import Struct

from hermes.config.schema import Config
from hermes.config.variables import proxy_url
from hermes.ports.plugins import (
    BuildModel,
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
    provider: str = ""  # the provider whose models it builds


def _on_request(config: Config, env: Mapping[str, str]) -> bool:
    return False


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
    PluginManifest(
        name="embedded",
        module="hermes.models.embedded.plugin",
        is_needed=_on_request,
        provider="embedded",
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
        self._model_providers: dict[str, BuildModel] = {}
        self._closing: list[Callable[[], Coroutine[None, None, None]]] = []
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

    def model_provider(self, name: str) -> BuildModel | None:
        """What builds the provider's models; its plugin is loaded on the first request."""
        for manifest in BUILT_IN:
            if name and manifest.provider == name:
                self.load(manifest)
        return self._model_providers.get(name)

    def register_model_provider(self, name: str, build: BuildModel) -> None:
        self._model_providers[name] = build

    def register_close(self, close: Callable[[], Coroutine[None, None, None]]) -> None:
        self._closing.append(close)

    async def aclose(self) -> None:
        with anyio.CancelScope(shield=True):
            for close in reversed(self._closing):
                await close()

    def register_gateway_task(self, run: Callable[[], Coroutine[None, None, None]]) -> None:
        self.gateway_tasks.append(run)


def load_plugins(services: PluginServices) -> Plugins:
    """Load the built-in plugins that the settings need."""
    plugins = Plugins(services)
    for manifest in BUILT_IN:
        if manifest.is_needed(services.config, services.env):
            plugins.load(manifest)
    return plugins
