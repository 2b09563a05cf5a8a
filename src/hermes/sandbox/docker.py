"""Run commands in a persistent container per profile, started when first needed.

Only the docker command line is used, so podman under that name works too. The folders a job may
change are mounted at the same paths. A container either has a network or not for its lifetime,
so jobs with and without network access use different containers.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from hashlib import sha256

import anyio
from msgspec import Struct

from hermes.ports.sandbox import ProcessExit, ProcessSpec
from hermes.sandbox.remote import BOOTSTRAP, ClientCommand
from hermes.sandbox.spawner import Child, Spawner, SpawnRequest
from hermes.schema.errors import SandboxError

HARDENING_OPTIONS = (
    "--init", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--pids-limit=512",
    "--label=hermes=sandbox",
)  # fmt: skip
DOCKER_TIMEOUT = 300.0
"""Seconds to wait for docker; the first start may have to pull the image."""
_MAX_OUTPUT = 2000


class Container(Struct, frozen=True, kw_only=True):
    """`profile` names the home it belongs to, so that two homes never share a container."""

    profile: str
    image: str
    network: bool = True
    volumes: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    user: str = ""
    cpus: float = 1
    memory: int = 5120
    extra: tuple[str, ...] = ()
    extra_mount: str = ""
    """Another path where the workspace is mounted too."""


class Docker:
    """`env` is for the client, which may need to know where its engine is."""

    name = "docker"
    label = "docker"

    def __init__(
        self, container: Container, env: Mapping[str, str], program: str = "docker"
    ) -> None:
        self._container = container
        self._env = env
        self._program = program
        self._starting = anyio.Lock()

    async def client_command(self, job: ProcessSpec, spawner: Spawner) -> ClientCommand:
        network = job.permissions.network and self._container.network
        mounts = tuple(f"{folder}:{folder}" for folder in sorted({*job.permissions.writable}))
        if self._container.extra_mount and job.permissions.writable:
            mounts = (*mounts, f"{job.permissions.writable[0]}:{self._container.extra_mount}")
        options = self._options(mounts, network=network)
        name = f"hermes-{_digest(self._container.profile, *options)}"
        async with self._starting:
            await self._ensure(spawner, name, options)
        argv = (self._program, "exec", "-i", name, "sh", "-c", BOOTSTRAP)
        return ClientCommand(argv=argv, env=self._env, folder=job.cwd)

    def _options(self, mounts: tuple[str, ...], *, network: bool) -> tuple[str, ...]:
        container = self._container
        options = [*HARDENING_OPTIONS, "--network=bridge" if network else "--network=none"]
        options += [f"--cpus={container.cpus:g}", f"--memory={container.memory}m"]
        options += [f"--volume={volume}" for volume in (*container.volumes, *mounts)]
        options += [f"--env={name}={value}" for name, value in sorted(container.env.items())]
        options += [f"--user={container.user}"] if container.user else []
        return (*options, *container.extra, container.image)

    async def _ensure(self, spawner: Spawner, name: str, options: tuple[str, ...]) -> None:
        """Start the container unless it is running already."""
        inspect = ("inspect", "--format={{.State.Running}}", name)
        code, output = await self._ask(spawner, *inspect)
        if code == 0 and output.strip() == "true":
            return
        if code == 0:
            code, output = await self._ask(spawner, "start", name)
        else:
            run = ("run", "--detach", f"--name={name}", *options, "sleep", "infinity")
            code, output = await self._ask(spawner, *run)
        if code:
            raise SandboxError(
                f"could not start the command container: {output.strip()}",
                hint="Check that `docker info` works and that terminal.docker_image is correct.",
            )

    async def _ask(self, spawner: Spawner, *args: str) -> tuple[int, str]:
        request = SpawnRequest(argv=(self._program, *args), cwd="/", env=self._env, label="docker")
        async with _time_limit(), spawner.open(request) as child:
            output = await _read_tail(child)
            ended: ProcessExit = await child.wait()
        return ended.exit_code, output.decode(errors="replace")


@asynccontextmanager
async def _time_limit() -> AsyncGenerator[None]:
    try:
        with anyio.fail_after(DOCKER_TIMEOUT):
            yield
    except TimeoutError as error:
        raise SandboxError(
            f"docker did not answer within {DOCKER_TIMEOUT:.0f} seconds",
            hint="Check that the Docker engine is running.",
        ) from error


async def _read_tail(child: Child) -> bytes:
    """Read to the end and keep the last bytes."""
    output = b""
    while data := await child.read():
        output = (output + data)[-_MAX_OUTPUT:]
    return output


def _digest(*parts: str) -> str:
    return sha256("\0".join(parts).encode()).hexdigest()[:16]
