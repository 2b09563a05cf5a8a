"""Build the tools of a profile and choose which of them each platform gets."""

import logging
import os
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from hermes.app.learning import Learning
from hermes.app.sandboxes import (
    SandboxDeps,
    Sandboxes,
    backend_on,
    instruction_folders,
    load_owner_git,
    network_on,
    protected_paths,
    remote_folder,
    runs_elsewhere,
    unsupported_reason,
)
from hermes.app.tool_factory import build_checkpoints
from hermes.config.env import Env
from hermes.config.home import Home, user_home
from hermes.config.schema import Config
from hermes.config.variables import withheld_names
from hermes.kit.clock import Clock
from hermes.kit.redact import Redactor
from hermes.ports.checkpoints import Checkpoints
from hermes.ports.delegation import Delegator
from hermes.ports.message_sender import MessageSender
from hermes.ports.sandbox import Sandbox
from hermes.ports.store import Blobs, Store
from hermes.ports.tool import Tool
from hermes.sandbox.child_env import EnvRules, child_env
from hermes.sandbox.local import LocalSandbox
from hermes.sandbox.spawner import Spawner
from hermes.schema.scope import Scope
from hermes.tools.catalog import ToolDeps, build_tools
from hermes.tools.files.edit_conflicts import FileLocks
from hermes.tools.processes.registry import ProcessRegistry
from hermes.tools.search.ripgrep import find_rg
from hermes.tools.terminal.shell import MAX_TIMEOUT, find_shell
from hermes.tools.tool_io import DEFAULT_LIMITS, OutputLimits
from hermes.tools.tool_wrappers import load_specs
from hermes.tools.toolsets import known_toolsets, tools_of

if TYPE_CHECKING:
    from hermes.app.shell_hooks import ShellHooks
    from hermes.tools.tool_search import OfferedTools, ToolBudget

log = logging.getLogger(__name__)

NO_MCP = "no_mcp"
"""In a platform's toolsets: no tools of MCP servers."""

PROFILE_HOME_MODE = "profile"
"""The `terminal.home_mode` in which the profile's `home` folder is the home of commands."""


class ToolFactory(Struct, frozen=True):
    """What the tools of a profile are built from."""

    home: Home
    env: Env
    config: Config
    redactor: Redactor
    blobs: Blobs
    spawner: Spawner
    clock: Clock
    processes: ProcessRegistry | None = None
    store: Store | None = None
    delegates: Callable[[], Delegator] | None = None
    learning: Learning | None = None
    sender: MessageSender | None = None
    locks: FileLocks = field(default_factory=FileLocks)

    def toolbox(self, wanted: Sequence[str] | None, without: Sequence[str] = ()) -> "Toolbox":
        """Raises `UsageError` for an unknown toolset in `wanted`.

        Toolsets in the settings may belong to a feature that is not installed.
        """
        servers = self.config.mcp_servers
        asked = ToolSelection(
            disabled=frozenset(without),
            tools=None if wanted is None else tools_of(n for n in wanted if n not in servers),
            servers=frozenset(name for name in wanted or () if name in servers),
        )
        parts = SandboxDeps(self.home, self.env, self.config.terminal, self.spawner, self.clock)
        sandboxes = Sandboxes(parts)
        checkpoints = build_checkpoints(
            self.home,
            self.env,
            self.config,
            sandboxes.local,
            self.clock,
            protected_paths(self.home),
        )
        build = partial(self._tools, sandboxes, checkpoints)
        return Toolbox(build, self.config, asked, sandboxes, checkpoints)

    def _tools(
        self, sandboxes: Sandboxes, checkpoints: Checkpoints | None, platform: str
    ) -> dict[str, Tool]:
        """Without the shell tools if the configured backend is not supported."""
        if not unsupported_reason(backend_on(self.config.terminal, platform)):
            deps = self._deps(sandboxes.for_platform(platform), sandboxes.local, checkpoints)
            network = network_on(self.config.terminal, platform)
            own_tmp = partial(sandboxes.tmp_on, platform)
            return build_tools(
                replace(
                    deps,
                    own_tmp=own_tmp,
                    network=network,
                    remote_programs=runs_elsewhere(self.config.terminal, platform),
                    remote_folder=remote_folder(self.config.terminal, platform),
                )
            )
        shell = tools_of(["terminal"])
        tools = build_tools(self._deps(sandboxes.local, sandboxes.local, checkpoints))
        return {name: tool for name, tool in tools.items() if name not in shell}

    def _deps(self, sandbox: Sandbox, near: Sandbox, checkpoints: Checkpoints | None) -> ToolDeps:
        from hermes.sandbox.filesystem_policy import private_paths, startup_files  # noqa: PLC0415 - loaded on first use

        path = self.env.get("PATH", "")
        return ToolDeps(
            sandbox=sandbox,
            local_sandbox=near,
            blobs=self.blobs,
            clock=self.clock,
            env=self.child_env(),
            redact=self.redactor.redact,
            redact_file=self.redactor.redact_values,
            home=user_home(self.env),
            spill_folder=self.home.cache / "output",
            shell=find_shell(path, self.config.terminal.shell_init_files),
            rg=find_rg(path),
            protected=protected_paths(self.home),
            command_timeout=min(self.config.terminal.timeout, MAX_TIMEOUT),
            processes=self.processes,
            python=self._python,
            code_timeout=self.config.code_execution.timeout,
            code_calls=self.config.code_execution.max_tool_calls,
            store=self.store,
            delegator=self.delegates,
            message_sender=self.sender,
            learning=self.learning.tool_deps(load_specs) if self.learning else None,
            checkpoints=checkpoints,
            locks=self.locks,
            node=shutil.which("node", path=path),
            private_files=[*map(Path, private_paths(user_home(self.env), root=os.geteuid() == 0))],
            instruction_folders=instruction_folders(self.home),
            startup_files=[*map(Path, startup_files(user_home(self.env)))],
            is_executed_by_git=self._is_executed,
            fetch_log=self.home.cache / "fetched",
            trust_file=self.home.cache / "vouched",
            trusted_folders=[self.home.cache / "sandbox", self.home.path / "plans"],
            output_limits=output_limits(self.config),
        )

    def _is_executed(self, path: Path) -> bool:
        from hermes.sandbox.git_config_paths import is_executed_by_git  # noqa: PLC0415 - loaded on first use

        return is_executed_by_git(str(path), load_owner_git(self.env))

    def _python(self, folder: Path) -> str:
        """The project's interpreter, if the settings allow it, otherwise the system's."""
        if self.config.code_execution.mode == "project":
            project = folder / ".venv" / "bin" / "python"
            if project.is_file():
                return str(project)
        return shutil.which("python3", path=self.env.get("PATH", "")) or sys.executable

    def build_hooks(self) -> "ShellHooks | None":
        """The hooks of the settings, if there are any."""
        if not self.config.hooks:
            return None
        from hermes.app.shell_hooks import (  # noqa: PLC0415 - as above
            HookConsents,
            HookDeps,
            ShellHooks,
        )

        return ShellHooks(
            self.config.hooks,
            HookDeps(
                sandbox=LocalSandbox(self.spawner),
                env=self.child_env(),
                redact=self.redactor.redact,
                home=self.home.path,
                consents=HookConsents(self.home.shell_hooks),
                accept_all=self.config.hooks_auto_accept,
                profile=self.home.profile,
            ),
        )

    def child_env(self) -> Callable[[Scope], dict[str, str]]:
        """Builds the environment of child processes for a scope."""
        return partial(child_env, self._env_rules())

    def _env_rules(self) -> EnvRules:
        """Secrets are withheld from child processes unless the settings pass one through."""
        allowed = self.config.terminal.env_passthrough
        withheld = withheld_names(self.env).difference(allowed)
        process = self.env
        if self.config.terminal.home_mode == PROFILE_HOME_MODE:
            folder = self.home.path / "home"
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            process = {**self.env, "HOME": str(folder)}
        return EnvRules(
            process=process, passthrough=allowed, withheld=withheld, home=str(self.home.path)
        )


class ToolSelection(Struct, frozen=True, kw_only=True):
    """The toolsets chosen on the command line."""

    disabled: frozenset[str]  # disabled everywhere
    tools: Sequence[str] | None = None  # the only enabled tools, if any were chosen
    servers: frozenset[str] = frozenset()  # the only enabled servers, likewise


def output_limits(config: Config) -> OutputLimits:
    """Limits from the settings; 0 means the default."""
    settings = config.tool_output
    return OutputLimits(
        output=settings.max_bytes or DEFAULT_LIMITS.output,
        lines=settings.max_lines or DEFAULT_LIMITS.lines,
        line=settings.max_line_length or DEFAULT_LIMITS.line,
        page=config.file_read_max_chars or DEFAULT_LIMITS.page,
    )


class Toolbox:
    """All tools of a profile, each built once, and which of them each platform gets."""

    def __init__(
        self,
        build: Callable[[str], Mapping[str, Tool]],
        config: Config,
        selection: ToolSelection,
        sandboxes: Sandboxes,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        self.checkpoints = checkpoints
        self._config = config
        self._build = build
        self.sandboxes = sandboxes
        self._built: dict[tuple[str, bool], Mapping[str, Tool]] = {}
        self._selection = selection
        self._offered: dict[str, Mapping[str, Tool]] = {}
        self._added: dict[str, Mapping[str, Tool]] = {}
        self._builtin = frozenset(tools_of(known_toolsets()))

    def tools_on(self, platform: str) -> Mapping[str, Tool]:
        """The tools of a platform by name."""
        if platform not in self._offered:
            disabled = tools_of(self._disabled.intersection(known_toolsets()))
            names = {*self._names(platform)}.difference(disabled)
            self._offered[platform] = {
                name: tool for name, tool in self._tools(platform).items() if name in names
            }
            self._offered[platform] = {**self._added_tools(platform), **self._offered[platform]}
        return self._offered[platform]

    def add_tools(self, tools: Sequence[Tool], *, toolset: str = "") -> None:
        """Add tools of servers and plugins, for turns that start from now on.

        They replace the earlier tools of their toolset; `toolset` names one that may be empty. Of
        two tools with one name the first is kept.
        """
        added: dict[str, dict[str, Tool]] = {toolset: {}} if toolset else {}
        for tool in tools:
            name, own = tool.spec.name, tool.spec.toolset
            siblings = added.setdefault(own, {})
            if name in self._builtin:
                continue
            if name in siblings or self._is_taken(name, own):
                log.warning("skipped %s of %s: there is already a tool of that name", name, own)
            else:
                siblings[name] = tool
        self._added |= added
        self._offered.clear()

    def _is_taken(self, name: str, toolset: str) -> bool:
        return any(name in tools for one, tools in self._added.items() if one != toolset)

    def remove_toolset(self, toolset: str) -> None:
        """Remove a toolset added by `add_tools`."""
        self._added.pop(toolset, None)
        self._offered.clear()

    def update_settings(self, config: Config) -> None:
        """Apply reloaded settings about toolsets and servers."""
        disabled = config.agent.disabled_toolsets
        self._config = replace(
            self._config,
            mcp_servers=config.mcp_servers,
            toolsets=config.toolsets,
            platform_toolsets=config.platform_toolsets,
            agent=replace(self._config.agent, disabled_toolsets=disabled),
        )
        self._offered.clear()

    @property
    def _disabled(self) -> frozenset[str]:
        return self._selection.disabled.union(self._config.agent.disabled_toolsets)

    def may_offer(self, server: str) -> bool:
        """Whether any platform could get its tools."""
        excluded = self._selection.tools is not None and server not in self._selection.servers
        return server not in self._disabled and not excluded

    def tools_named(self, names: Iterable[str]) -> list[str]:
        """The tools of these toolsets, including servers. Raises `UsageError`."""
        names = list(names)
        others = {*self._config.mcp_servers, *self._added}
        joined = [tool for name in names for tool in self._added.get(name, ())]
        return [*tools_of(name for name in names if name not in others), *joined]

    def toolsets(self) -> Mapping[str, Sequence[str]]:
        """The tools of each toolset."""
        builtin = {name: tools_of([name]) for name in known_toolsets()}
        return {**{name: [*tools] for name, tools in self._added.items()}, **builtin}

    def _added_tools(self, platform: str) -> dict[str, Tool]:
        """Tools of servers and plugins enabled on a platform."""
        enabled = mcp_servers_on(self._config, platform, self._added)
        sets = [name for name in enabled if self.may_offer(name)]
        return {name: tool for one in sets for name, tool in self._added.get(one, {}).items()}

    def limit(self, tools: Mapping[str, Tool], window: int) -> "OfferedTools | None":
        """If there are too many tools to list, the reduced list; otherwise None."""
        if not self._added:
            return None
        from hermes.tools.tool_search import limit_tools  # noqa: PLC0415 - only with servers

        limited = limit_tools(tools, self._builtin, window, _tool_budget(self._config))
        return limited if limited.unlisted else None

    def _tools(self, platform: str) -> Mapping[str, Tool]:
        """Platforms with the same sandbox and network setting share their tools."""
        terminal = self._config.terminal
        key = backend_on(terminal, platform), network_on(terminal, platform)
        if key not in self._built:
            self._built[key] = self._build(platform)
        return self._built[key]

    def warnings(self, platform: str) -> list[str]:
        """Settings that have no effect on a platform."""
        warnings = _unsupported_settings(self._config, platform)
        if self._selection.tools is not None:
            return warnings
        known = {*known_toolsets(), *self._config.mcp_servers, NO_MCP}
        unknown = [name for name in self._configured(platform) if name not in known]
        return warnings + [
            f"the toolset {name!r} in the settings is not available" for name in unknown
        ]

    def _names(self, platform: str) -> Collection[str]:
        if self._selection.tools is not None:
            return self._selection.tools
        known = known_toolsets()
        return tools_of(name for name in self._configured(platform) if name in known)

    def _configured(self, platform: str) -> list[str]:
        return configured_toolsets(self._config, platform)


def configured_toolsets(config: Config, platform: str) -> list[str]:
    """From the settings; `hermes-<platform>` means the same set on every platform."""
    toolsets = config.platform_toolsets
    chosen = toolsets.get(platform, toolsets.get("cli", config.toolsets))
    everything = f"hermes-{platform}"
    return ["hermes-cli" if name == everything else name for name in chosen]


def mcp_servers_on(config: Config, platform: str, joined: Iterable[str] = ()) -> list[str]:
    """The enabled MCP servers: those listed for the platform, or all if none is listed."""
    servers = list(dict.fromkeys([*config.mcp_servers, *joined]))
    chosen = configured_toolsets(config, platform)
    named = [name for name in servers if name in chosen]
    enabled = named if named or NO_MCP in chosen or not chosen else servers
    return [name for name in enabled if name not in config.agent.disabled_toolsets]


def _tool_budget(config: Config) -> "ToolBudget":
    from hermes.tools.tool_search import (  # noqa: PLC0415 - only when needed
        SearchLimits,
        ToolBudget,
    )

    settings = config.tools.tool_search
    return ToolBudget(
        always=settings.enabled is True,
        never=settings.enabled is False,
        share=settings.threshold_pct / 100,
        bytes=settings.max_bytes,
        search_limits=SearchLimits(
            default=settings.search_default_limit, maximum=settings.max_search_limit
        ),
    )


def _unsupported_settings(config: Config, platform: str) -> list[str]:
    """Warn about settings that this version does not support."""
    warnings: list[str] = []
    if why := unsupported_reason(backend_on(config.terminal, platform)):
        fix = "hermes config set terminal.backend auto"
        warnings.append(f"the terminal tool is disabled: {why}. To enable it: {fix}")
    return warnings
