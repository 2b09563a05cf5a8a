"""Import names of the public system, so that programs and plugins written for it work.

`hermes.compat.install()` adds an import hook with one table; each name leads to our module, or to a
thin facade in this package.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["install"]

NAMES = {
    "agent": None,
    "agent.transports": None,
    "agent.transports.codex_app_server_session": (
        "hermes.compat.agent_transports_codex_app_server_session"
    ),
    "run_agent": "hermes.compat.run_agent",
    "gateway": None,
    "gateway.config": "hermes.compat.gateway_config",
    "gateway.platforms": None,
    "gateway.platforms.api_server": "hermes.compat.gateway_platforms_api_server",
    "gateway.platforms.base": "hermes.compat.gateway_platforms_base",
    "gateway.run": "hermes.compat.gateway_run",
    "gateway.session": "hermes.compat.gateway_session",
    "gateway.session_context": "hermes.compat.gateway_session_context",
    "hermes_cli": None,
    "hermes_cli.config": "hermes.compat.hermes_cli_config",
    "hermes_cli.profiles": "hermes.compat.hermes_cli_profiles",
    "tools": None,
    "tools.process_registry": "hermes.compat.tools_process_registry",
    "tools.terminal_tool": "hermes.compat.tools_terminal_tool",
}
"""Public name -> our module; None is a package that only contains others."""


class _Finder(MetaPathFinder, Loader):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in NAMES:
            return None
        return ModuleSpec(name, self, is_package=NAMES[name] is None)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Return our own module, so that both names are the same object."""
        names = NAMES[spec.name]
        if names is None:
            return None
        module = import_module(names)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to execute; restore our module's own spec."""
        if module.__spec__ is not None and module.__spec__.loader_state is not None:
            module.__spec__ = module.__spec__.loader_state


def install() -> None:
    """Make the names importable; calling it again is harmless."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
