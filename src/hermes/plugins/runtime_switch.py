"""Choose who runs the turns with OpenAI models: Hermes itself or a registered runtime."""

from anyio.to_thread import run_sync

from hermes.plugins.registry import BUILT_IN, Plugins
from hermes.schema.errors import UsageError

AUTO_RUNTIME = "auto"
_MANIFESTS = {manifest.runtime: manifest for manifest in BUILT_IN if manifest.runtime}


class RuntimeSwitch:
    """Implements the service of `/codex-runtime`."""

    def __init__(self, plugins: Plugins) -> None:
        self._plugins = plugins

    @property
    def enabled(self) -> bool:
        """Whether a runtime other than Hermes is chosen."""
        return self.current() != AUTO_RUNTIME

    def current(self) -> str:
        enabled = (name for name, switch in self._plugins.switches.items() if switch.enabled)
        return next(enabled, AUTO_RUNTIME)

    def status(self) -> str:
        """The runtime, and how much of its account is used."""
        name = self.current()
        used = self._plugins.switches[name].usage() if name != AUTO_RUNTIME else ""
        return f"{name} (used: {used})" if used else name

    async def choose(self, name: str) -> str:
        """Switch the runtime permanently, starting with the next message. Returns a message."""
        if name != AUTO_RUNTIME and name not in _MANIFESTS:
            names = " or ".join([AUTO_RUNTIME, *_MANIFESTS])
            raise UsageError(f"/codex-runtime takes {names}, not {name!r}.")
        found = ""
        if name != AUTO_RUNTIME:
            self._plugins.load(_MANIFESTS[name])
            found = await self._plugins.switches[name].check()

        from hermes.config.editor import set_setting  # noqa: PLC0415 - a turn never does

        services = self._plugins.services
        await run_sync(set_setting, services.home, services.env, "model.openai_runtime", name)
        for runtime in self._plugins.switches.values():
            runtime.enabled = runtime.name == name
        runner = f"{found} runs turns" if found else "Hermes runs turns itself"
        return f"{runner}, starting with the next message."
