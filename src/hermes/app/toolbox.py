"""The tools of a profile, and which of them are offered."""

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

from hermes.app.checkpoints import build_checkpoints
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
from hermes.config.env import Env
from hermes.config.home import Home, user_home
from hermes.config.schema import Config
from hermes.config.variables import withheld_names
from hermes.kit.clock import Clock
from hermes.kit.redact import Redactor
from hermes.ports.blobs import Blobs
from hermes.ports.checkpoints import Checkpoints
from hermes.ports.delegation import Delegator
from hermes.ports.message_sender import MessageSender
from hermes.ports.sandbox import Sandbox
from hermes.ports.store import Store
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
"""In the list of a platform: no tools of servers there."""

PROFILE_HOME_MODE = "profile"
"""The `terminal.home_mode` in which commands have the folder `home` of the profile as theirs."""


class ToolFactory(Struct, frozen=True):
    """What the tools of a profile are made from."""

    home: Home
    env: Env
    config: Config
    redactor: Redactor
    blobs: Blobs
    door: Spawner
    clock: Clock
    processes: ProcessRegistry | None = None
    store: Store | None = None
    delegates: Callable[[], Delegator] | None = None
    learning: Learning | None = None
    poster: MessageSender | None = None
    locks: FileLocks = field(default_factory=FileLocks)

    def toolbox(self, wanted: Sequence[str] | None, without: Sequence[str] = ()) -> "Toolbox":
        """A toolset asked for by hand must exist (`UsageError`).

        One named in the settings may belong to a feature that this installation does not have.
        """
        servers = self.config.mcp_servers
        asked = ToolSelection(
            off=frozenset(without),
            tools=None if wanted is None else tools_of(n for n in wanted if n not in servers),
            servers=frozenset(name for name in wanted or () if name in servers),
        )
        parts = SandboxDeps(self.home, self.env, self.config.terminal, self.door, self.clock)
        sandboxes = Sandboxes(parts)
        checkpoints = build_checkpoints(
            self.home,
            self.env,
            self.config,
            sandboxes.near,
            self.clock,
            protected_paths(self.home),
        )
        build = partial(self._tools, sandboxes, checkpoints)
        return Toolbox(build, self.config, asked, sandboxes, checkpoints)

    def _tools(
        self, sandboxes: Sandboxes, checkpoints: Checkpoints | None, platform: str
    ) -> dict[str, Tool]:
        """Without the tools that run commands where the settings name no sandbox we have."""
        if not unsupported_reason(backend_on(self.config.terminal, platform)):
            deps = self._deps(sandboxes.on(platform), sandboxes.near, checkpoints)
            network = network_on(self.config.terminal, platform)
            own_tmp = partial(sandboxes.tmp_on, platform)
            return build_tools(
                replace(
                    deps,
                    own_tmp=own_tmp,
                    network=network,
                    elsewhere=runs_elsewhere(self.config.terminal, platform),
                    far=remote_folder(self.config.terminal, platform),
                )
            )
        shell = tools_of(["terminal"])
        tools = build_tools(self._deps(sandboxes.near, sandboxes.near, checkpoints))
        return {name: tool for name, tool in tools.items() if name not in shell}

    def _deps(self, sandbox: Sandbox, near: Sandbox, checkpoints: Checkpoints | None) -> ToolDeps:
        from hermes.sandbox.filesystem_policy import private_paths, startup_files  # noqa: PLC0415 - needed with tools only

        path = self.env.get("PATH", "")
        return ToolDeps(
            sandbox=sandbox,
            near=near,
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
            delegates=self.delegates,
            poster=self.poster,
            knowledge=self.learning.knowledge(load_specs) if self.learning else None,
            checkpoints=checkpoints,
            locks=self.locks,
            node=shutil.which("node", path=path),
            private=[*map(Path, private_paths(user_home(self.env), root=os.geteuid() == 0))],
            steering=instruction_folders(self.home),
            starts=[*map(Path, startup_files(user_home(self.env)))],
            executed=self._is_executed,
            fetched=self.home.cache / "fetched",
            vouched=self.home.cache / "vouched",
            our_folders=[self.home.cache / "sandbox", self.home.path / "plans"],
            caps=output_limits(self.config),
        )

    def _is_executed(self, path: Path) -> bool:
        from hermes.sandbox.git_config_paths import is_executed_by_git  # noqa: PLC0415 - the first write pays for it

        return is_executed_by_git(str(path), load_owner_git(self.env))

    def _python(self, folder: Path) -> str:
        """That of the project, unless the settings want nothing of it; else what is there."""
        if self.config.code_execution.mode == "project":
            own = folder / ".venv" / "bin" / "python"
            if own.is_file():
                return str(own)
        return shutil.which("python3", path=self.env.get("PATH", "")) or sys.executable

    def watch(self) -> "ShellHooks | None":
        """The programs that the settings want told of what turns do, if they name any."""
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
                sandbox=LocalSandbox(self.door),
                env=self.child_env(),
                redact=self.redactor.redact,
                home=self.home.path,
                consents=HookConsents(self.home.shell_hooks),
                accepts=self.config.hooks_auto_accept,
                profile=self.home.profile,
            ),
        )

    def child_env(self) -> Callable[[Scope], dict[str, str]]:
        """What a child that works for a scope finds in its environment."""
        return partial(child_env, self._env_rules())

    def _env_rules(self) -> EnvRules:
        """Secrets stay out of child processes unless the settings let one through by name."""
        allowed = self.config.terminal.env_passthrough
        withheld = withheld_names(self.env).difference(allowed)
        process = self.env
        if self.config.terminal.home_mode == PROFILE_HOME_MODE:
            own = self.home.path / "home"
            own.mkdir(mode=0o700, parents=True, exist_ok=True)
            process = {**self.env, "HOME": str(own)}
        return EnvRules(
            process=process, passthrough=allowed, withheld=withheld, home=str(self.home.path)
        )


class ToolSelection(Struct, frozen=True, kw_only=True):
    """By hand: `off` are toolsets that nobody is offered; those that are, if any were named."""

    off: frozenset[str]
    tools: Sequence[str] | None = None
    servers: frozenset[str] = frozenset()


def output_limits(config: Config) -> OutputLimits:
    """What is shown at once, as the settings say; nothing at all would be no use, so 0 is usual."""
    given = config.tool_output
    return OutputLimits(
        output=given.max_bytes or DEFAULT_LIMITS.output,
        lines=given.max_lines or DEFAULT_LIMITS.lines,
        line=given.max_line_length or DEFAULT_LIMITS.line,
        page=config.file_read_max_chars or DEFAULT_LIMITS.page,
    )


class Toolbox:
    """All tools of a profile, each built once, and which of them each platform is offered."""

    def __init__(
        self,
        build: Callable[[str], Mapping[str, Tool]],
        config: Config,
        asked: ToolSelection,
        sandboxes: Sandboxes,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        self.checkpoints = checkpoints
        self._config = config
        self._build = build
        self.sandboxes = sandboxes
        self._built: dict[tuple[str, bool], Mapping[str, Tool]] = {}
        self._asked = asked
        self._offered: dict[str, Mapping[str, Tool]] = {}
        self._joined: dict[str, Mapping[str, Tool]] = {}
        self._ours = frozenset(tools_of(known_toolsets()))

    def on(self, platform: str) -> Mapping[str, Tool]:
        """The tools offered there, by name."""
        if platform not in self._offered:
            left_out = tools_of(self._off.intersection(known_toolsets()))
            names = {*self._names(platform)}.difference(left_out)
            self._offered[platform] = {
                name: tool for name, tool in self._tools(platform).items() if name in names
            }
            self._offered[platform] = {**self._others(platform), **self._offered[platform]}
        return self._offered[platform]

    def join(self, tools: Sequence[Tool], *, toolset: str = "") -> None:
        """Tools of servers and plugins, for every turn that begins from now on.

        Those of a toolset take the place of what it had; `toolset` names one that may be empty.
        Whoever came first with a name keeps it.
        """
        joined: dict[str, dict[str, Tool]] = {toolset: {}} if toolset else {}
        for tool in tools:
            name, own = tool.spec.name, tool.spec.toolset
            among = joined.setdefault(own, {})
            if name in self._ours:
                continue
            if name in among or self._is_taken(name, own):
                log.warning("%s of %s is left out: there is one already", name, own)
            else:
                among[name] = tool
        self._joined |= joined
        self._offered.clear()

    def _is_taken(self, name: str, toolset: str) -> bool:
        return any(name in tools for one, tools in self._joined.items() if one != toolset)

    def leave(self, toolset: str) -> None:
        """What has joined as this toolset is no more."""
        self._joined.pop(toolset, None)
        self._offered.clear()

    def update_settings(self, config: Config) -> None:
        """Which toolsets are on, and where, as settings say that were read again."""
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
    def _off(self) -> frozenset[str]:
        return self._asked.off.union(self._config.agent.disabled_toolsets)

    def may_offer(self, server: str) -> bool:
        """Whether any platform could be offered its tools."""
        by_hand = self._asked.tools is not None and server not in self._asked.servers
        return server not in self._off and not by_hand

    def tools_named(self, names: Iterable[str]) -> list[str]:
        """The tools of toolsets, those of servers too. Raises `UsageError`."""
        names = list(names)
        others = {*self._config.mcp_servers, *self._joined}
        joined = [tool for name in names for tool in self._joined.get(name, ())]
        return [*tools_of(name for name in names if name not in others), *joined]

    def toolsets(self) -> Mapping[str, Sequence[str]]:
        """The tools of each toolset, by its name."""
        ours = {name: tools_of([name]) for name in known_toolsets()}
        return {**{name: [*tools] for name, tools in self._joined.items()}, **ours}

    def _others(self, platform: str) -> dict[str, Tool]:
        """Of what has joined; where toolsets were asked for by hand, only those."""
        on = mcp_servers_on(self._config, platform, self._joined)
        sets = [name for name in on if self.may_offer(name)]
        return {name: tool for one in sets for name, tool in self._joined.get(one, {}).items()}

    def narrowed(self, tools: Mapping[str, Tool], window: int) -> "OfferedTools | None":
        """With most of them to be looked for, if they are too many to be told of; else None."""
        if not self._joined:
            return None
        from hermes.tools.tool_search import limit_tools  # noqa: PLC0415 - our own tools never need it

        found = limit_tools(tools, self._ours, window, _tool_budget(self._config))
        return found if found.unlisted else None

    def _tools(self, platform: str) -> Mapping[str, Tool]:
        """One set for all platforms whose commands run in the same sandbox, as far from there."""
        terminal = self._config.terminal
        where = backend_on(terminal, platform), network_on(terminal, platform)
        if where not in self._built:
            self._built[where] = self._build(platform)
        return self._built[where]

    def warnings(self, platform: str) -> list[str]:
        """Promises of the settings that are not kept there."""
        warnings = _unsupported_settings(self._config, platform)
        if self._asked.tools is not None:
            return warnings
        known = {*known_toolsets(), *self._config.mcp_servers, NO_MCP}
        unknown = [name for name in self._configured(platform) if name not in known]
        return warnings + [
            f"the toolset {name!r} of the settings is not available here" for name in unknown
        ]

    def _names(self, platform: str) -> Collection[str]:
        if self._asked.tools is not None:
            return self._asked.tools
        known = known_toolsets()
        return tools_of(name for name in self._configured(platform) if name in known)

    def _configured(self, platform: str) -> list[str]:
        return configured_toolsets(self._config, platform)


def configured_toolsets(config: Config, platform: str) -> list[str]:
    """As the settings say; each platform's set of everything is the same for all of them."""
    given = config.platform_toolsets
    chosen = given.get(platform, given.get("cli", config.toolsets))
    everything = f"hermes-{platform}"
    return ["hermes-cli" if name == everything else name for name in chosen]


def mcp_servers_on(config: Config, platform: str, joined: Iterable[str] = ()) -> list[str]:
    """Whose tools are offered there: those that are named, or all where only others are."""
    servers = list(dict.fromkeys([*config.mcp_servers, *joined]))
    chosen = configured_toolsets(config, platform)
    named = [name for name in servers if name in chosen]
    wanted = named if named or NO_MCP in chosen or not chosen else servers
    return [name for name in wanted if name not in config.agent.disabled_toolsets]


def _tool_budget(config: Config) -> "ToolBudget":
    from hermes.tools.tool_search import (  # noqa: PLC0415 - only when needed
        SearchLimits,
        ToolBudget,
    )

    given = config.tools.tool_search
    return ToolBudget(
        always=given.enabled is True,
        never=given.enabled is False,
        share=given.threshold_pct / 100,
        bytes=given.max_bytes,
        most=SearchLimits(usual=given.search_default_limit, most=given.max_search_limit),
    )


def _unsupported_settings(config: Config, platform: str) -> list[str]:
    """Settings that ask for what this version does not have must not pass in silence."""
    warnings: list[str] = []
    if why := unsupported_reason(backend_on(config.terminal, platform)):
        mend = "hermes config set terminal.backend auto"
        warnings.append(f"the terminal tool is left out: {why}. To have it: {mend}")
    return warnings
