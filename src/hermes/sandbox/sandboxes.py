"""Build the sandboxes in which a profile's commands run.

Drivers are loaded and tried with the first command, or when their state is asked for.
"""

import os
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from hermes.config.env import Env
from hermes.config.home import Home, user_home
from hermes.config.sections.execution import Terminal
from hermes.kit.clock import Clock
from hermes.ports.sandbox import Confinement, Process, ProcessResult, ProcessSpec, Sandbox
from hermes.sandbox.backends import (
    BACKENDS,
    ISOLATION_BACKENDS,
    backend_on,
    network_on,
    runs_elsewhere,
    unsupported_reason,
)
from hermes.sandbox.home_policy import filesystem_policy, tmp_root
from hermes.sandbox.local import LocalSandbox
from hermes.sandbox.spawner import Spawner
from hermes.sandbox.strongest_sandbox import StrongestSandbox
from hermes.schema.errors import SandboxError
from hermes.schema.scope import OWNER

if TYPE_CHECKING:
    from hermes.sandbox.git_config import OwnerGitConfig
    from hermes.sandbox.isolation_probe import IsolationProbe


class SandboxDeps(Struct, frozen=True):
    """Everything that a profile's sandboxes are built from."""

    home: Home
    env: Env
    terminal: Terminal
    spawner: Spawner
    clock: Clock


class Sandboxes:
    """The sandboxes of one profile, each built once; `bubblewrap` overrides the one found."""

    def __init__(
        self,
        parts: SandboxDeps,
        bubblewrap: str | None = None,
        landlock: Callable[[], int] | None = None,
    ) -> None:
        self._parts = parts
        self._bubblewrap = bubblewrap
        self._landlock = landlock
        self._made: dict[str, Sandbox] = {}
        self._probe: IsolationProbe | None = None

    @property
    def local(self) -> Sandbox:
        """The local sandbox, wherever commands run: for our own programs that read local files."""
        name = self._parts.terminal.backend
        return self._sandbox(name if name in (*ISOLATION_BACKENDS, "local") else "auto")

    def for_platform(self, platform: str) -> Sandbox:
        """The sandbox for commands from a platform; an unknown backend refuses all of them."""
        return self._sandbox(backend_on(self._parts.terminal, platform))

    def tmp_on(self, platform: str, principal: str = OWNER) -> Path | None:
        """The folder that commands from a platform see as `/tmp`, if it is not the real one."""
        if self.for_platform(platform).name != "bubblewrap":
            return None
        from hermes.sandbox.filesystem_policy import tmp_for  # noqa: PLC0415 - loaded by the sandbox anyway

        return Path(tmp_for(str(tmp_root(self._parts.home)), principal))

    def report(self) -> list[str]:
        """The state of each sandbox for people, without a trial run."""
        return [
            f"sandbox {name}: {self._description(name, self._sandbox(name))}"
            for name in self._names()
        ]

    async def check(self) -> list[str]:
        """Like `report`, after a trial run."""
        for name in self._names():
            if isinstance(sandbox := self._sandbox(name), StrongestSandbox):
                await sandbox.refresh()
        return self.report()

    def tried(self) -> list[str]:
        """Like `report`, for sandboxes that commands have already tried."""
        built = self._made.items()
        chosen = [
            (name, sandbox) for name, sandbox in built if isinstance(sandbox, StrongestSandbox)
        ]
        return [f"sandbox {name}: {sandbox.state}" for name, sandbox in chosen if sandbox.known]

    def describe(self, platform: str) -> str:
        """A short description of the sandbox for commands from a platform."""
        name = backend_on(self._parts.terminal, platform)
        if why := unsupported_reason(name):
            return why
        sandbox = self._sandbox(name)
        terminal = self._parts.terminal
        online = sandbox.isolation and network_on(terminal, platform)
        sockets = sandbox.isolation == ISOLATION_BACKENDS[0] and terminal.unix_sockets
        more = ", with network access" if online else ""
        return self._description(name, sandbox) + more + (", with Unix sockets" if sockets else "")

    def runs_here(self, platform: str) -> bool:
        """Whether commands from a platform change the files of this machine."""
        return not runs_elsewhere(self._parts.terminal, platform)

    def _names(self) -> list[str]:
        terminal = self._parts.terminal
        names = dict.fromkeys([terminal.backend, *terminal.backend_by_platform.values()])
        return [name for name in names if not unsupported_reason(name)]

    def _description(self, name: str, sandbox: Sandbox) -> str:
        if isinstance(sandbox, StrongestSandbox):
            return sandbox.state
        if sandbox.isolation:
            return f"commands run in a container ({name})"
        if name == "ssh":
            return f"commands run on {self._parts.terminal.ssh_host or 'no machine'}, over ssh"
        return "none: commands run as you, on this machine"

    def _sandbox(self, name: str) -> Sandbox:
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def _make(self, name: str) -> Sandbox:
        spawner = self._parts.spawner
        if why := unsupported_reason(name):
            return UnsupportedSandbox(name, why, f"Choose one of {', '.join(BACKENDS)}.")
        match name:
            case "local":
                return LocalSandbox(spawner)
            case "docker":
                return _docker_sandbox(self._parts)
            case "ssh":
                return ssh_sandbox(spawner, self._parts.terminal, self._parts.env)
            case _:
                auto = name == "auto"
                return StrongestSandbox(
                    spawner,
                    self._load_probe,
                    ISOLATION_BACKENDS if auto else (name,),
                    self._tidy,
                    owner_git=partial(load_owner_git, self._parts.env),
                    fallback=auto,
                )

    def _load_probe(self) -> "IsolationProbe":
        if self._probe is None:
            from hermes.sandbox.bubblewrap import find_bubblewrap  # noqa: PLC0415 - loaded on first use
            from hermes.sandbox.isolation_probe import IsolationProbe  # noqa: PLC0415 - likewise
            from hermes.sandbox.landlock import landlock_version  # noqa: PLC0415 - likewise

            parts = self._parts
            found = self._bubblewrap or find_bubblewrap(parts.env.get("PATH", ""))
            self._probe = IsolationProbe(
                parts.spawner,
                partial(filesystem_policy, parts.home, parts.env, parts.terminal),
                found,
                landlock=self._landlock or landlock_version,
                clock=parts.clock,
            )
        return self._probe

    async def _tidy(self) -> None:
        from anyio.to_thread import run_sync  # noqa: PLC0415 - as above

        from hermes.sandbox.filesystem_policy import prune_all_tmp_folders  # noqa: PLC0415 - as above

        root, now = str(tmp_root(self._parts.home)), self._parts.clock.now()
        await run_sync(prune_all_tmp_folders, root, now)


def load_owner_git(env: Env) -> "OwnerGitConfig":
    """The owner's git configuration files."""
    from hermes.sandbox.git_config_paths import owner_git_config  # noqa: PLC0415 - loaded on first use

    return owner_git_config(env, str(user_home(env)))


def _docker_sandbox(parts: SandboxDeps) -> Sandbox:
    from hermes.sandbox.docker import Container, Docker  # noqa: PLC0415 - only if configured
    from hermes.sandbox.remote import RemoteSandbox  # noqa: PLC0415 - as above

    terminal, env = parts.terminal, parts.env
    forwarded = {name: env[name] for name in terminal.docker_forward_env if name in env}
    container = Container(
        profile=str(parts.home.path),
        image=terminal.docker_image,
        network=terminal.docker_network is not False,
        volumes=terminal.docker_volumes,
        env={**terminal.docker_env, **forwarded},
        user=f"{os.getuid()}:{os.getgid()}" if terminal.docker_run_as_host_user else "",
        cpus=terminal.container_cpu,
        memory=terminal.container_memory,
        extra=terminal.docker_extra_args,
        extra_mount="/workspace" if terminal.docker_mount_cwd_to_workspace else "",
    )
    return RemoteSandbox(parts.spawner, Docker(container, _client_env(env)))


def ssh_sandbox(spawner: Spawner, terminal: Terminal, env: Env) -> Sandbox:
    from hermes.sandbox.remote import RemoteSandbox  # noqa: PLC0415 - only if configured
    from hermes.sandbox.ssh import Ssh, SshHost  # noqa: PLC0415 - as above

    host = SshHost(
        host=terminal.ssh_host, user=terminal.ssh_user, port=terminal.ssh_port, key=terminal.ssh_key
    )
    return RemoteSandbox(spawner, Ssh(host, _client_env(env)))


_CLIENT_VARIABLES = (
    "HOME", "LANG", "LOGNAME", "PATH", "SSH_AUTH_SOCK", "USER", "XDG_RUNTIME_DIR",
    "DOCKER_CERT_PATH", "DOCKER_CONFIG", "DOCKER_CONTEXT", "DOCKER_HOST", "DOCKER_TLS_VERIFY",
)  # fmt: skip
"""For the docker and ssh clients; the command itself gets none of these."""


def _client_env(env: Env) -> dict[str, str]:
    return {name: env[name] for name in _CLIENT_VARIABLES if name in env}


class UnsupportedSandbox:
    """Refuses every command: another sandbox than the configured one must not run it."""

    isolation = ""

    def __init__(self, name: str, reason: str, hint: str) -> None:
        self.name = name
        self._reason = reason
        self._hint = hint

    async def confinement(self) -> Confinement:
        raise self._refusal()

    async def run(
        self,
        job: ProcessSpec,
        on_output: Callable[[bytes], Awaitable[None]] | None = None,
        *,
        pty: bool = False,
    ) -> ProcessResult:
        raise self._refusal()

    def open(self, job: ProcessSpec, *, pty: bool = False) -> AbstractAsyncContextManager[Process]:
        raise self._refusal()

    def _refusal(self) -> SandboxError:
        return SandboxError(f"{self._reason}, so commands and code cannot run", hint=self._hint)
