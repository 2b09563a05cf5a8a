"""Build the collaborators of a profile's tools, their checkpoints and the hooks."""

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from hermes.app.learning import Learning
from hermes.app.plugins import FeatureServices
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
from hermes.sandbox.backends import (
    network_on,
    remote_folder,
    runs_elsewhere,
)
from hermes.sandbox.child_env import EnvRules, child_env
from hermes.sandbox.home_policy import instruction_folders, protected_paths
from hermes.sandbox.local import LocalSandbox
from hermes.sandbox.sandboxes import Sandboxes, load_owner_git
from hermes.sandbox.spawner import Spawner
from hermes.schema.scope import Scope
from hermes.tools.catalog import load_specs
from hermes.tools.collaborators import ToolCollaborators
from hermes.tools.files.editor import FileLocks
from hermes.tools.paths import SessionPaths
from hermes.tools.processes.registry import ProcessRegistry
from hermes.tools.search.ripgrep import find_rg
from hermes.tools.terminal.shell import MAX_TIMEOUT, find_shell
from hermes.tools.tool_io import DEFAULT_LIMITS, OutputLimits

if TYPE_CHECKING:
    from hermes.hooks.shell import ShellHooks
    from hermes.tools.checkpoints.repository import RetentionPolicy

PROFILE_HOME_MODE = "profile"
"""The `terminal.home_mode` in which the profile's `home` folder is the home of commands."""
_MB = 1 << 20


class ToolFactory(Struct, frozen=True, kw_only=True):
    """Builds the collaborators of a profile's tools at the first call of a tool."""

    home: Home
    env: Env
    config: Config
    redactor: Redactor
    blobs: Blobs
    clock: Clock
    processes: ProcessRegistry
    store: Store
    delegates: Callable[[], Delegator]
    learning: Learning
    sender: MessageSender
    sandboxes: Sandboxes
    checkpoints: Checkpoints | None
    features: FeatureServices | None = None
    locks: FileLocks = field(default_factory=FileLocks)

    def collaborators(self, platform: str) -> ToolCollaborators:
        """Return what the tools of a platform share."""
        terminal = self.config.terminal
        return replace(
            self._collaborators(),
            sandbox=self.sandboxes.for_platform(platform),
            own_tmp=partial(self.sandboxes.tmp_on, platform),
            network=network_on(terminal, platform),
            remote_programs=runs_elsewhere(terminal, platform),
            remote_folder=remote_folder(terminal, platform),
        )

    def _collaborators(self) -> ToolCollaborators:
        from hermes.sandbox.filesystem_policy import private_paths, startup_files  # noqa: PLC0415 - loaded on first use

        path, terminal = self.env.get("PATH", ""), self.config.terminal
        local, user_folder = self.sandboxes.local, user_home(self.env)
        return ToolCollaborators(
            sandbox=local,
            local_sandbox=local,
            blobs=self.blobs,
            clock=self.clock,
            env=child_env_rules(self.home, self.env, self.config),
            redact=self.redactor.redact,
            redact_file=self.redactor.redact_values,
            home=user_folder,
            spill_folder=self.home.cache / "output",
            shell=find_shell(path, terminal.shell_init_files),
            rg=find_rg(path),
            protected=protected_paths(self.home),
            command_timeout=min(terminal.timeout, MAX_TIMEOUT),
            processes=self.processes,
            python=self._python,
            code_timeout=self.config.code_execution.timeout,
            code_calls=self.config.code_execution.max_tool_calls,
            store=self.store,
            delegator=self.delegates,
            message_sender=self.sender,
            features=self.features,
            learning=self.learning.tool_deps(load_specs),
            checkpoints=self.checkpoints,
            locks=self.locks,
            node=shutil.which("node", path=path),
            private_files=[*map(Path, private_paths(user_folder, root=os.geteuid() == 0))],
            instruction_folders=instruction_folders(self.home),
            startup_files=[*map(Path, startup_files(user_folder))],
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


def build_checkpoints(
    home: Home, env: Env, config: Config, clock: Clock, sandbox: Callable[[], Sandbox]
) -> Checkpoints:
    """`sandbox` runs git on this machine, if whole folders are recorded."""
    folder = user_home(env)
    paths = SessionPaths(folder, protected_paths(home))
    if config.checkpoints.enabled is not True:
        from hermes.tools.checkpoints.file_checkpoints import FileCheckpoints  # noqa: PLC0415 - one of two

        return FileCheckpoints(
            folder=home.checkpoints,
            paths=paths,
            clock=clock,
            home=folder,
            retention=_retention(config),
        )
    from hermes.tools.checkpoints.git_checkpoints import (  # noqa: PLC0415 - one of two
        CheckpointDeps,
        GitCheckpoints,
    )
    from hermes.tools.checkpoints.repository import find_git  # noqa: PLC0415 - as above

    return GitCheckpoints(
        CheckpointDeps(
            sandbox=sandbox(),
            git=find_git(env.get("PATH", "")),
            folder=home.checkpoints,
            paths=paths,
            clock=clock,
            home=folder,
            retention=_retention(config),
        )
    )


def _retention(config: Config) -> "RetentionPolicy":
    from hermes.tools.checkpoints.repository import (  # noqa: PLC0415 - loaded on first use
        CheckpointLimits,
        RetentionPolicy,
    )

    settings = config.checkpoints
    limits = CheckpointLimits(
        file=settings.max_file_size_mb * _MB, total=settings.max_total_size_mb * _MB
    )
    return RetentionPolicy(
        snapshots=settings.max_snapshots,
        limits=limits,
        days=settings.retention_days,
        prune=settings.auto_prune,
    )


def build_hooks(
    home: Home, env: Env, config: Config, spawner: Spawner, redact: Callable[[str], str]
) -> "ShellHooks":
    """The hooks of the settings."""
    from hermes.hooks.shell import (  # noqa: PLC0415 - only with hooks
        HookConsents,
        HookDeps,
        ShellHooks,
    )

    return ShellHooks(
        config.hooks,
        HookDeps(
            sandbox=LocalSandbox(spawner),
            env=child_env_rules(home, env, config),
            redact=redact,
            home=home.path,
            consents=HookConsents(home.shell_hooks),
            accept_all=config.hooks_auto_accept,
            profile=home.profile,
        ),
    )


def child_env_rules(home: Home, env: Env, config: Config) -> Callable[[Scope], dict[str, str]]:
    """Builds the environment of child processes for a scope.

    Secrets are withheld unless the settings pass one through.
    """
    allowed = config.terminal.env_passthrough
    withheld = withheld_names(env).difference(allowed)
    process: Mapping[str, str] = env
    if config.terminal.home_mode == PROFILE_HOME_MODE:
        folder = home.path / "home"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        process = {**env, "HOME": str(folder)}
    rules = EnvRules(process=process, passthrough=allowed, withheld=withheld, home=str(home.path))
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
