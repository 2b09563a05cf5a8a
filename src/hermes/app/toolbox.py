"""The tools of a profile, and which of them are offered."""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct

from hermes.config.env import Env
from hermes.config.home import Home, named_profiles, user_home
from hermes.config.schema import Config
from hermes.config.variables import VARIABLES
from hermes.kit.clock import Clock
from hermes.kit.redact import Redactor
from hermes.ports.blobs import Blobs
from hermes.ports.tool import Tool
from hermes.sandbox.child_env import EnvRules, child_env
from hermes.sandbox.door import Door
from hermes.sandbox.local import LocalSandbox
from hermes.tools.catalog import ToolDeps, first_tools
from hermes.tools.search.ripgrep import find_rg
from hermes.tools.terminal.shell import find_shell
from hermes.tools.terminal.tool import MAX_TIMEOUT
from hermes.tools.toolsets import known_toolsets, tools_of

CLOSED = (
    ".env*", "auth.json", "config.yaml", "SOUL.md", "*.db", "*.db-*",
    "cron", "hooks", "plugins", "pairing", "platforms", "active_profile",
)  # fmt: skip
"""What no tool may read or change in a home: whoever writes here decides where keys are sent."""


class Workbench(Struct, frozen=True):
    """What the tools of a profile are made from."""

    home: Home
    env: Env
    config: Config
    redactor: Redactor
    blobs: Blobs
    door: Door
    clock: Clock

    def offered(
        self, wanted: Sequence[str] | None, without: Sequence[str] = ()
    ) -> tuple[Mapping[str, Tool], list[str]]:
        """The offered tools by name, and warnings about toolsets that are not there.

        A toolset asked for by hand must exist (`UsageError`); one named in the settings may
        belong to a feature that this installation does not have.
        """
        off = {*self.config.agent.disabled_toolsets, *without}
        warnings = _unkept_promises(self.config)
        if self.config.terminal.backend != "local":
            off.add("terminal")
        names, missing = _offered(self.config, wanted, off)
        warnings += missing
        tools = first_tools(self._deps())
        return {name: tools[name] for name in names}, warnings

    def _deps(self) -> ToolDeps:
        path = self.env.get("PATH", "")
        return ToolDeps(
            sandbox=LocalSandbox(self.door),
            blobs=self.blobs,
            clock=self.clock,
            env=partial(child_env, self._env_rules()),
            redact=self.redactor.redact,
            redact_file=self.redactor.redact_values,
            home=user_home(self.env),
            spill_folder=self.home.cache / "output",
            shell=find_shell(path),
            rg=find_rg(path),
            protected=protected_files(self.home),
            command_timeout=min(self.config.terminal.timeout, MAX_TIMEOUT),
        )

    def _env_rules(self) -> EnvRules:
        """Secrets stay out of child processes unless the settings let one through by name."""
        allowed = self.config.terminal.env_passthrough
        secret = {name for name, variable in VARIABLES.items() if variable.secret}
        return EnvRules(process=self.env, passthrough=allowed, withheld=secret.difference(allowed))


def _offered(
    config: Config, wanted: Sequence[str] | None, off: Collection[str]
) -> tuple[list[str], list[str]]:
    known = known_toolsets()
    left_out = set(tools_of(name for name in off if name in known))
    if wanted is not None:
        return [name for name in tools_of(wanted) if name not in left_out], []
    configured = config.platform_toolsets.get("cli", config.toolsets)
    unknown = [name for name in configured if name not in known]
    names = tools_of(name for name in configured if name in known)
    warnings = [f"the toolset {name!r} of the settings is not available here" for name in unknown]
    return [name for name in names if name not in left_out], warnings


def _unkept_promises(config: Config) -> list[str]:
    """Settings that ask for a wall which this version does not have must not pass in silence."""
    warnings: list[str] = []
    backend = config.terminal.backend
    if backend != "local":
        warnings.append(
            f"the terminal tool is left out: terminal.backend is {backend!r}, "
            "and this version can only run commands directly on this machine"
        )
    if config.approvals.mode == "manual" or config.approvals.deny:
        warnings.append("approvals are not there yet: commands run without asking")
    return warnings


def protected_files(home: Home) -> list[Path]:
    """Secrets, databases and what steers the agent, of this profile and of all the others."""
    if home.path == home.root:
        return [*_closed_in(home.root), home.profiles]
    others = [home.profiles / name for name in named_profiles(home.root) if name != home.profile]
    return [*_closed_in(home.root), *_closed_in(home.path), *others]


def _closed_in(folder: Path) -> list[Path]:
    return [folder / name for name in CLOSED]
