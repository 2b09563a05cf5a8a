"""Where the commands of a profile run: the names in the settings become sandboxes.

Nothing is tried out, and no driver is loaded, before the first command or before somebody asks.
"""

import logging
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from hermes.config.env import Env
from hermes.config.home import Home, user_home
from hermes.config.sections.work import Terminal
from hermes.kit.clock import Clock
from hermes.ports.sandbox import Finished, Job, Process, Sandbox
from hermes.sandbox.door import Door
from hermes.sandbox.local import LocalSandbox
from hermes.schema.errors import SandboxError
from hermes.schema.scope import OWNER
from hermes.tools.places import Enclosure, own_part

if TYPE_CHECKING:
    from hermes.sandbox.choice import Walls
    from hermes.sandbox.view import View

log = logging.getLogger(__name__)

WALLS = ("bubblewrap", "landlock")
"""Walls of this machine, the stronger first."""
BACKENDS = ("auto", *WALLS, "local", "docker", "ssh")
UNKNOWN_HERE = frozenset({"modal", "daytona", "singularity", "vercel_sandbox"})

OPEN_OF_HOME = ("bin", "home", "plans", "skill-bundles", "skills", "skins")
"""All that commands and tools see of the home: no settings, secrets, databases, sessions, logs,
sockets, nor what others sent or were told, which is in the cache."""
WORKSPACE = "workspace"
"""Seen as well, and changed by whoever works there."""

CLOSED = (
    ".env*", "auth.json", "config.yaml", "SOUL.md", "*.db", "*.db-*",
    "cron", "hooks", "memories", "plugins", "pairing", "platforms", "active_profile",
    "shell-hooks-allowlist.json", "mcp-acting.json",
    "mcp-tokens", "backups", "*.bak", "logs", "sessions", "checkpoints", "whatsapp",
    "webhook_subscriptions.json", "callback.key", "local-model", "cache",
)  # fmt: skip
"""What no tool and no command may read or change in a home, also where a workspace is put into it:
whoever writes here decides where keys are sent, which program runs as the model, or whose words
count as somebody else's."""
STEERING = ("skills", "skill-bundles")
"""What tells the agent what to do: written with leave only."""

WEAKER = "the weaker wall"
NO_WALL = "Commands run without a sandbox, with all the rights you have"


class SandboxParts(Struct, frozen=True):
    """What the sandboxes of a profile are made from."""

    home: Home
    env: Env
    terminal: Terminal
    door: Door
    clock: Clock


class Sandboxes:
    """The sandboxes of one profile, each made once; `bubblewrap` is another one than is found."""

    def __init__(
        self,
        parts: SandboxParts,
        bubblewrap: str | None = None,
        landlock: Callable[[], int] | None = None,
    ) -> None:
        self._parts = parts
        self._bubblewrap = bubblewrap
        self._landlock = landlock
        self._made: dict[str, Sandbox] = {}
        self._walls: Walls | None = None

    @property
    def near(self) -> Sandbox:
        """On this machine, wherever commands run: for our own programs that read its files."""
        name = self._parts.terminal.backend
        return self._sandbox(name if name in (*WALLS, "local") else "auto")

    def on(self, platform: str) -> Sandbox:
        """Where commands run that come from there. Raises `SandboxError` for unknown backends."""
        return self._sandbox(backend_on(self._parts.terminal, platform))

    def tmp_on(self, platform: str, principal: str = OWNER) -> Path | None:
        """The folder that commands from there see as `/tmp`, where it is another than ours."""
        if self.on(platform).name != "bubblewrap":
            return None
        from hermes.sandbox.view import tmp_for  # noqa: PLC0415 - who has a wall has loaded it

        return Path(tmp_for(str(_private(self._parts.home)), principal))

    def report(self) -> list[str]:
        """What people should know about the walls, without trying any."""
        return [
            f"sandbox {name}: {self._line(name, self._sandbox(name))}" for name in self._names()
        ]

    async def check(self) -> list[str]:
        """As `report`, after a trial."""
        for name in self._names():
            if isinstance(sandbox := self._sandbox(name), _Walled):
                await sandbox.settle()
        return self.report()

    def describe(self, platform: str) -> str:
        """In a few words, what holds back the commands that come from there."""
        name = backend_on(self._parts.terminal, platform)
        if why := refusal(name):
            return why
        sandbox = self._sandbox(name)
        online = sandbox.wall and network_on(self._parts.terminal, platform)
        return self._line(name, sandbox) + (", and have the network" if online else "")

    def far_place(self, platform: str) -> str:
        """For the model: on which machine commands run, where it is not the one of the files."""
        terminal = self._parts.terminal
        folder = far_folder(terminal, platform)
        if not folder:
            return ""
        who = f"{terminal.ssh_user}@" if terminal.ssh_user else ""
        return f"Commands run on {who}{terminal.ssh_host} over ssh, and begin in {folder} there"

    def _names(self) -> list[str]:
        terminal = self._parts.terminal
        wanted = dict.fromkeys([terminal.backend, *terminal.backend_by_platform.values()])
        return [name for name in wanted if not refusal(name)]

    def _line(self, name: str, sandbox: Sandbox) -> str:
        if isinstance(sandbox, _Walled):
            held = f"commands are held back by {sandbox.wall}"
            return held + sandbox.shortfall if sandbox.wall else sandbox.why
        if sandbox.wall:
            return f"commands run in a container ({name})"
        if name == "ssh":
            return f"commands run on {self._parts.terminal.ssh_host or 'no machine'}, over ssh"
        return "none: commands run as you, on this machine"

    def _sandbox(self, name: str) -> Sandbox:
        if why := refusal(name):
            raise SandboxError(why, hint=f"Choose one of {', '.join(BACKENDS)}.")
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def _make(self, name: str) -> Sandbox:
        door, terminal = self._parts.door, self._parts.terminal
        match name:
            case "local":
                return LocalSandbox(door)
            case "docker":
                return _docker(self._parts)
            case "ssh":
                return ssh_sandbox(door, terminal, self._parts.env)
            case "auto":
                return _Walled(door, self._known_walls, WALLS, self._tidy, fallback=True)
            case _:
                return _Walled(door, self._known_walls, (name,), self._tidy, fallback=False)

    def _known_walls(self) -> "Walls":
        if self._walls is None:
            from hermes.sandbox.bubblewrap import find_bubblewrap  # noqa: PLC0415 - the first command pays for it
            from hermes.sandbox.choice import Walls  # noqa: PLC0415 - likewise
            from hermes.sandbox.landlock import landlock_version  # noqa: PLC0415 - likewise

            found = self._bubblewrap or find_bubblewrap(self._parts.env.get("PATH", ""))
            self._walls = Walls(
                self._parts.door,
                lambda: view_of(self._parts),
                found,
                landlock=self._landlock or landlock_version,
            )
        return self._walls

    async def _tidy(self) -> None:
        from anyio.to_thread import run_sync  # noqa: PLC0415 - as above

        from hermes.sandbox.view import prune_all_private  # noqa: PLC0415 - as above

        await run_sync(prune_all_private, str(_private(self._parts.home)), self._parts.clock.now())


class _Walled:
    """The strongest of some walls, or with `fallback` none when there is none.

    Whoever decided on a command because a wall was likely must not see it run without one: when
    the trial takes the promise back, that one command is refused.
    """

    def __init__(
        self,
        door: Door,
        walls: "Callable[[], Walls]",
        kinds: tuple[str, ...],
        tidy: Callable[[], Awaitable[None]],
        *,
        fallback: bool,
    ) -> None:
        self._door = door
        self._walls = walls
        self._kinds = kinds
        self._tidy = tidy
        self._fallback = fallback
        self._settled: Sandbox | None = None
        self._reasons: list[str] = []
        self._promised = ""

    @property
    def name(self) -> str:
        return self._settled.name if self._settled else self.wall or "local"

    @property
    def wall(self) -> str:
        if self._settled is None:
            self._promised = self._likely()
            return self._promised
        return self._settled.wall

    @property
    def why(self) -> str:
        """Why there is no wall; empty when there is one."""
        if self.wall:
            return ""
        reasons = "; ".join(dict.fromkeys(self._reasons))
        if self._fallback:
            return f"{NO_WALL}: {reasons}."
        return f"Commands do not run: the sandbox {self._kinds[0]} cannot be used: {reasons}."

    @property
    def shortfall(self) -> str:
        """What is to be added where it is not the strongest wall: that it is not, and why."""
        if not self.wall or not self._reasons:
            return ""
        return f", {WEAKER}: {'; '.join(dict.fromkeys(self._reasons))}"

    async def run(
        self,
        job: Job,
        heard: Callable[[bytes], Awaitable[None]] | None = None,
        *,
        pty: bool = False,
    ) -> Finished:
        return await (await self._for(job)).run(job, heard, pty=pty)

    @asynccontextmanager
    async def open(self, job: Job, *, pty: bool = False) -> AsyncGenerator[Process]:
        async with (await self._for(job)).open(job, pty=pty) as process:
            yield process

    async def settle(self) -> Sandbox | None:
        """The sandbox there is, found out once; None when the one asked for cannot be used."""
        if self._settled is None:
            self._reasons = []
            for kind in self._kinds:
                verdict = await self._walls().certain(kind)
                if verdict.wall is not None:
                    from hermes.sandbox.walled import WalledSandbox  # noqa: PLC0415 - as above

                    await self._tidy()
                    self._settled = WalledSandbox(self._door, verdict.wall)
                    if weaker := self.shortfall:
                        log.warning("commands are held back by %s%s", self.wall, weaker)
                    return self._settled
                self._reasons.append(verdict.why)
            if self._fallback:
                self._settled = LocalSandbox(self._door)
                log.warning("%s", self.why)
        return self._settled

    async def _for(self, job: Job) -> Sandbox:
        if self._settled is not None:
            return self._settled
        if job.reach.beyond:
            return LocalSandbox(self._door)
        promised = self._promised
        found = await self.settle()
        if found is None or (promised and not found.wall):
            raise SandboxError(self.why, hint="`/status` tells more; see docs/sandbox.md.")
        return found

    def _likely(self) -> str:
        self._reasons = []
        for kind in self._kinds:
            verdict = self._walls().likely(kind)
            if verdict.wall is not None:
                return verdict.wall.word
            self._reasons.append(verdict.why)
        return ""


def far_folder(terminal: Terminal, platform: str) -> str:
    """Where commands from there begin on another machine; empty if they see the files of this."""
    if backend_on(terminal, platform) != "ssh":
        return ""
    return terminal.cwd if terminal.cwd.startswith(("/", "~")) else "~"


def is_elsewhere(terminal: Terminal, platform: str) -> bool:
    """Whether commands from there find other programs than this machine's."""
    return backend_on(terminal, platform) in {"docker", "ssh"}


def backend_on(terminal: Terminal, platform: str) -> str:
    return terminal.backend_by_platform.get(platform, terminal.backend)


def network_on(terminal: Terminal, platform: str) -> bool:
    """Whether commands from there have the network without asking."""
    return terminal.network_by_platform.get(platform, terminal.network)


def refusal(backend: str) -> str:
    """Why a backend cannot be used by any machine; empty for the ones we have."""
    if backend in BACKENDS:
        return ""
    if backend in UNKNOWN_HERE:
        return f"terminal.backend {backend!r} is not supported: there is no driver for it here"
    return f"terminal.backend {backend!r} is not known"


def view_of(parts: SandboxParts) -> "View":
    """What the commands of a profile see of this machine."""
    from hermes.sandbox.view import (  # noqa: PLC0415 - the first command pays for it
        GUARDED,
        OPEN_OF_RUN,
        View,
        hidden_from,
        starts_of,
    )

    home, person = parts.home, user_home(parts.env)
    root = os.geteuid() == 0
    hidden = [str(home.root), *hidden_from(person, root=root)]
    if agent := parts.env.get("SSH_AUTH_SOCK"):
        hidden.append(agent)
    ours = (sys.prefix, sys.base_prefix, str(Path(__file__).parents[2]))
    shown = [*OPEN_OF_RUN, *(str(home.path / name) for name in OPEN_OF_HOME), *ours]
    return View(
        tmp=str(_private(home)),
        hidden=tuple(hidden),
        inside=tuple(map(str, _closed_in_homes(_real(home)))),
        shown=tuple(shown),
        guarded=(*GUARDED, *starts_of(person), *map(str, steering_folders(home))),
        lent=(str(home.path / WORKSPACE),),
        own=lambda principal: [*map(str, _own_in_cache(home, principal))],
        person=str(person),
    )


def enclosure_of(home: Home) -> Enclosure:
    """The same for tools that open files themselves: all profiles, except what is open to who asks.

    By names and not by what is there, since a profile may be made at any time.
    """
    closed = [home.root, *_closed_in_homes(home), *_closed_in(home.path)]
    return Enclosure(closed, partial(_opened, _real(home)))


def _opened(home: Home, principal: str) -> list[Path]:
    ours = (home.path / name for name in (*OPEN_OF_HOME, WORKSPACE))
    return [*ours, *_own_in_cache(home, principal)]


def _own_in_cache(home: Home, principal: str) -> list[Path]:
    """What may be read of what was printed, put into `/tmp`, or sent: everybody's own.

    What was sent is kept once, whoever sent it, so only the owner reads it there.
    """
    from hermes.sandbox.view import tmp_for  # noqa: PLC0415 - who reads files has loaded it

    output = home.cache / "output"
    own = [own_part(output, principal), own_part(output / "processes", principal)]
    sent = [home.cache / "blobs"] if principal == OWNER else []
    return [*own, Path(tmp_for(str(_private(home)), principal)), *sent]


def _real(home: Home) -> Home:
    return Home(home.root.resolve(), home.path.resolve(), home.profile)


def steering_folders(home: Home) -> list[Path]:
    return [home.path / name for name in STEERING]


def _closed_in_homes(home: Home) -> list[Path]:
    """A workspace may lie in the folder of any profile, also of one that is made later."""
    return [*_closed_in(home.root), *_closed_in(home.profiles / "*")]


def _closed_in(folder: Path) -> list[Path]:
    return [folder / name for name in CLOSED]


def _private(home: Home) -> Path:
    return home.cache / "sandbox" / "tmp"


def _docker(parts: SandboxParts) -> Sandbox:
    from hermes.sandbox.docker import Container, Docker  # noqa: PLC0415 - only who asked for it
    from hermes.sandbox.far import FarSandbox  # noqa: PLC0415 - as above

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
        second_name="/workspace" if terminal.docker_mount_cwd_to_workspace else "",
    )
    return FarSandbox(parts.door, Docker(container, _client_env(env)))


def ssh_sandbox(door: Door, terminal: Terminal, env: Env) -> Sandbox:
    from hermes.sandbox.far import FarSandbox  # noqa: PLC0415 - only who asked for it
    from hermes.sandbox.ssh import Ssh, SshHost  # noqa: PLC0415 - as above

    host = SshHost(
        host=terminal.ssh_host,
        user=terminal.ssh_user,
        port=terminal.ssh_port,
        key=terminal.ssh_key,
    )
    return FarSandbox(door, Ssh(host, _client_env(env)))


_OF_CLIENTS = (
    "HOME", "LANG", "LOGNAME", "PATH", "SSH_AUTH_SOCK", "USER", "XDG_RUNTIME_DIR",
    "DOCKER_CERT_PATH", "DOCKER_CONFIG", "DOCKER_CONTEXT", "DOCKER_HOST", "DOCKER_TLS_VERIFY",
)  # fmt: skip
"""What the programs need that bring a command elsewhere; the command itself gets none of it."""


def _client_env(env: Env) -> dict[str, str]:
    return {name: env[name] for name in _OF_CLIENTS if name in env}
