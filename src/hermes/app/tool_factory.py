"""Build the tools of a profile, and the checkpoints that they use."""

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from hermes.app.learning import Learning
from hermes.app.toolbox import Toolbox, ToolSelection, mcp_toolsets
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
from hermes.sandbox.home_policy import instruction_folders, protected_paths
from hermes.sandbox.local import LocalSandbox
from hermes.sandbox.sandboxes import (
    SandboxDeps,
    Sandboxes,
    load_owner_git,
    network_on,
    remote_folder,
    runs_elsewhere,
)
from hermes.sandbox.spawner import Spawner
from hermes.schema.scope import Scope
from hermes.tools.catalog import build_tools
from hermes.tools.collaborators import ToolCollaborators
from hermes.tools.files.edit_conflicts import FileLocks
from hermes.tools.paths import SessionPaths
from hermes.tools.processes.registry import ProcessRegistry
from hermes.tools.search.ripgrep import find_rg
from hermes.tools.terminal.shell import MAX_TIMEOUT, find_shell
from hermes.tools.tool_io import DEFAULT_LIMITS, OutputLimits
from hermes.tools.tool_wrappers import LazyCheckpoints, load_specs
from hermes.tools.toolsets import tools_of

if TYPE_CHECKING:
    from hermes.hooks.shell import ShellHooks
    from hermes.tools.checkpoints.repository import RetentionPolicy

PROFILE_HOME_MODE = "profile"
"""The `terminal.home_mode` in which the profile's `home` folder is the home of commands."""
_MB = 1 << 20


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

    def toolbox(self, wanted: Sequence[str] | None, without: Sequence[str] = ()) -> Toolbox:
        """Raises `UsageError` for an unknown toolset in `wanted`.

        Toolsets in the settings may belong to a feature that is not installed.
        """
        servers = mcp_toolsets(self.config)
        asked = ToolSelection(
            disabled=frozenset(without),
            tools=None if wanted is None else tools_of(n for n in wanted if n not in servers),
            servers=frozenset(name for name in wanted or () if name in servers),
        )
        parts = SandboxDeps(self.home, self.env, self.config.terminal, self.spawner, self.clock)
        sandboxes = Sandboxes(parts)
        checkpoints = self._checkpoints(sandboxes.local)
        build = partial(self._tools, sandboxes, checkpoints)
        return Toolbox(build, self.config, asked, sandboxes, checkpoints)

    def _checkpoints(self, sandbox: Sandbox) -> Checkpoints | None:
        """None if disabled. `sandbox` runs git on this machine."""
        enabled = self.config.checkpoints.enabled
        if enabled is False:
            return None
        whole = partial(self._git_checkpoints, sandbox)
        return LazyCheckpoints(whole if enabled is True else self._file_checkpoints)

    def _file_checkpoints(self) -> Checkpoints:
        from hermes.tools.checkpoints.file_checkpoints import FileCheckpoints  # noqa: PLC0415 - loaded on first use

        folder = user_home(self.env)
        return FileCheckpoints(
            folder=self.home.checkpoints,
            paths=SessionPaths(folder, protected_paths(self.home)),
            clock=self.clock,
            home=folder,
            retention=self._retention(),
        )

    def _git_checkpoints(self, sandbox: Sandbox) -> Checkpoints:
        from hermes.tools.checkpoints.git_checkpoints import (  # noqa: PLC0415 - loaded on first use
            CheckpointDeps,
            GitCheckpoints,
        )
        from hermes.tools.checkpoints.repository import find_git  # noqa: PLC0415 - as above

        folder = user_home(self.env)
        return GitCheckpoints(
            CheckpointDeps(
                sandbox=sandbox,
                git=find_git(self.env.get("PATH", "")),
                folder=self.home.checkpoints,
                paths=SessionPaths(folder, protected_paths(self.home)),
                clock=self.clock,
                home=folder,
                retention=self._retention(),
            )
        )

    def _retention(self) -> "RetentionPolicy":
        from hermes.tools.checkpoints.repository import (  # noqa: PLC0415 - loaded on first use
            CheckpointLimits,
            RetentionPolicy,
        )

        settings = self.config.checkpoints
        limits = CheckpointLimits(
            file=settings.max_file_size_mb * _MB, total=settings.max_total_size_mb * _MB
        )
        return RetentionPolicy(
            snapshots=settings.max_snapshots,
            limits=limits,
            days=settings.retention_days,
            prune=settings.auto_prune,
        )

    def _tools(
        self, sandboxes: Sandboxes, checkpoints: Checkpoints | None, platform: str
    ) -> dict[str, Tool]:
        terminal = self.config.terminal
        given = self._collaborators(sandboxes.for_platform(platform), sandboxes.local, checkpoints)
        return build_tools(
            replace(
                given,
                own_tmp=partial(sandboxes.tmp_on, platform),
                network=network_on(terminal, platform),
                remote_programs=runs_elsewhere(terminal, platform),
                remote_folder=remote_folder(terminal, platform),
            )
        )

    def _collaborators(
        self, sandbox: Sandbox, near: Sandbox, checkpoints: Checkpoints | None
    ) -> ToolCollaborators:
        from hermes.sandbox.filesystem_policy import private_paths, startup_files  # noqa: PLC0415 - loaded on first use

        path = self.env.get("PATH", "")
        return ToolCollaborators(
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
        """The project's interpreter if the settings allow it, or the system's."""
        if self.config.code_execution.mode == "project":
            project = folder / ".venv" / "bin" / "python"
            if project.is_file():
                return str(project)
        return shutil.which("python3", path=self.env.get("PATH", "")) or sys.executable

    def build_hooks(self) -> "ShellHooks | None":
        """The hooks of the settings, if there are any."""
        if not self.config.hooks:
            return None
        from hermes.hooks.shell import (  # noqa: PLC0415 - as above
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
        """Builds the environment of child processes for a scope.

        Secrets are withheld unless the settings pass one through.
        """
        allowed = self.config.terminal.env_passthrough
        withheld = withheld_names(self.env).difference(allowed)
        process = self.env
        if self.config.terminal.home_mode == PROFILE_HOME_MODE:
            folder = self.home.path / "home"
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            process = {**self.env, "HOME": str(folder)}
        rules = EnvRules(
            process=process, passthrough=allowed, withheld=withheld, home=str(self.home.path)
        )
        return partial(child_env, rules)


def output_limits(config: Config) -> OutputLimits:
    """Limits from the settings; 0 means the default."""
    settings = config.tool_output
    return OutputLimits(
        output=settings.max_bytes or DEFAULT_LIMITS.output,
        lines=settings.max_lines or DEFAULT_LIMITS.lines,
        line=settings.max_line_length or DEFAULT_LIMITS.line,
        page=config.file_read_max_chars or DEFAULT_LIMITS.page,
    )
