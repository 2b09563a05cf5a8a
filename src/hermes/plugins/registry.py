"""The plugins of a profile, loaded when the settings need them or on request."""

from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module
from typing import Protocol, TypeVar, cast

from anyio.abc import TaskGroup
from msgspec import Struct, field

from hermes.kit.tasks import background_tasks
from hermes.ports.plugins import (
    BuildModel,
    LaunchProgram,
    PluginContext,
    PluginServices,
    RuntimeProvider,
    SwitchableRuntime,
)
from hermes.sandbox.program_launcher import program_launcher
from hermes.sandbox.spawner import Spawner

CODEX_RUNTIME = "codex_app_server"
T = TypeVar("T")


class PluginManifest(Struct, frozen=True, kw_only=True):
    """A plugin that can be listed without importing it."""

    name: str
    module: str  # with a function `register(ctx)`
    runtime: str = ""  # the runtime it registers, if users can switch it on and off
    provider: str = ""  # the provider whose models it builds


PROXY = PluginManifest(name="proxy", module="hermes.runtimes.proxy.plugin")
CODEX = PluginManifest(name="codex", module="hermes.runtimes.codex.plugin", runtime=CODEX_RUNTIME)
EMBEDDED = PluginManifest(
    name="embedded", module="hermes.models.embedded.plugin", provider="embedded"
)
BUILT_IN = (PROXY, CODEX, EMBEDDED)
"""Built-in plugins, in the order in which their runtimes are asked."""


class _PluginModule(Protocol):
    def register(self, ctx: PluginContext) -> None: ...


class Plugins(Struct, eq=False):
    """Implements `PluginContext` and holds what was registered."""

    _make_services: Callable[[], PluginServices]
    runtimes: list[RuntimeProvider] = []
    switches: dict[str, SwitchableRuntime] = {}
    gateway_tasks: list[Callable[[], Coroutine[None, None, None]]] = []
    _model_providers: dict[str, BuildModel] = {}
    closing: AsyncExitStack = field(default_factory=AsyncExitStack)
    _loaded: set[str] = set()

    @property
    def services(self) -> PluginServices:
        """What plugins use; built when the first one is loaded."""
        return self._make_services()

    def load(self, manifest: PluginManifest) -> None:
        """Import the plugin and let it register, once."""
        if manifest.name not in self._loaded:
            cast("_PluginModule", import_module(manifest.module)).register(self)
            self._loaded.add(manifest.name)

    def register_runtime(self, runtime: RuntimeProvider) -> None:
        self.runtimes.append(runtime)

    def register_switch(self, runtime: SwitchableRuntime) -> None:
        self.switches[runtime.name] = runtime
        self.register_runtime(runtime)

    def model_provider(self, name: str) -> BuildModel | None:
        """Return what builds the provider's models; its plugin is loaded on the first request."""
        for manifest in BUILT_IN:
            if name and manifest.provider == name:
                self.load(manifest)
        return self._model_providers.get(name)

    def register_model_provider(self, name: str, build: BuildModel) -> None:
        self._model_providers[name] = build

    def register_close(self, close: Callable[[], Coroutine[None, None, None]]) -> None:
        self.closing.push_async_callback(close)

    def register_gateway_task(self, run: Callable[[], Coroutine[None, None, None]]) -> None:
        self.gateway_tasks.append(run)


class SharedPlugins:
    """Builds each shared object once; its programs and tasks outlive single profiles."""

    def __init__(self, launch: LaunchProgram, tasks: TaskGroup) -> None:
        self._launch = launch
        self._tasks = tasks
        self._built: dict[Callable[..., object], object] = {}

    def get(self, build: Callable[[LaunchProgram, TaskGroup], T]) -> T:
        if build not in self._built:
            self._built[build] = build(self._launch, self._tasks)
        return cast("T", self._built[build])


@asynccontextmanager
async def open_shared_plugins() -> AsyncGenerator[SharedPlugins]:
    """For a process with several profiles; started programs end with the block."""
    with Spawner() as spawner:
        async with background_tasks() as tasks:
            yield SharedPlugins(program_launcher(spawner), tasks)
