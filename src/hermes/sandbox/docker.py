"""Commands in a container that stays: one per profile, started when it is first needed.

The command line of docker is all that is used, so podman under that name does as well. The
folders a job may change are mounted under their own names. A container has the network or it
has none for as long as it lives, so a job that may use it gets another container.
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
"""Seconds for docker to answer; the first time it may have to fetch the image."""
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
    second_name: str = ""
    """Another path under which the workspace is mounted, too."""


class Docker:
    """`env` is for the client, which may need to know where its engine is."""

    name = "docker"
    word = "docker"

    def __init__(
        self, container: Container, env: Mapping[str, str], program: str = "docker"
    ) -> None:
        self._container = container
        self._env = env
        self._program = program
        self._starting = anyio.Lock()

    async def call(self, job: ProcessSpec, door: Spawner) -> ClientCommand:
        network = job.reach.network and self._container.network
        mounts = tuple(f"{folder}:{folder}" for folder in sorted({*job.reach.writable}))
        if self._container.second_name and job.reach.writable:
            mounts = (*mounts, f"{job.reach.writable[0]}:{self._container.second_name}")
        options = self._options(mounts, network=network)
        name = f"hermes-{_digest(self._container.profile, *options)}"
        async with self._starting:
            await self._ensure(door, name, options)
        words = (self._program, "exec", "-i", name, "sh", "-c", BOOTSTRAP)
        return ClientCommand(argv=words, env=self._env, folder=job.cwd)

    def _options(self, mounts: tuple[str, ...], *, network: bool) -> tuple[str, ...]:
        box = self._container
        words = [*HARDENING_OPTIONS, "--network=bridge" if network else "--network=none"]
        words += [f"--cpus={box.cpus:g}", f"--memory={box.memory}m"]
        words += [f"--volume={volume}" for volume in (*box.volumes, *mounts)]
        words += [f"--env={name}={value}" for name, value in sorted(box.env.items())]
        words += [f"--user={box.user}"] if box.user else []
        return (*words, *box.extra, box.image)

    async def _ensure(self, door: Spawner, name: str, options: tuple[str, ...]) -> None:
        """Running, stopped or not there at all: afterwards it runs."""
        inspect = ("inspect", "--format={{.State.Running}}", name)
        code, said = await self._ask(door, *inspect)
        if code == 0 and said.strip() == "true":
            return
        if code == 0:
            code, said = await self._ask(door, "start", name)
        else:
            begin = ("run", "--detach", f"--name={name}", *options, "sleep", "infinity")
            code, said = await self._ask(door, *begin)
        if code:
            raise SandboxError(
                f"the container for commands could not be started: {said.strip()}",
                hint="Does `docker info` work, and is terminal.docker_image right?",
            )

    async def _ask(self, door: Spawner, *words: str) -> tuple[int, str]:
        start = SpawnRequest(argv=(self._program, *words), cwd="/", env=self._env, called="docker")
        async with _time_limit(), door.open(start) as child:
            said = await _read_tail(child)
            how: ProcessExit = await child.wait()
        return how.exit_code, said.decode(errors="replace")


@asynccontextmanager
async def _time_limit() -> AsyncGenerator[None]:
    try:
        with anyio.fail_after(DOCKER_TIMEOUT):
            yield
    except TimeoutError as error:
        raise SandboxError(
            f"docker gave no answer within {DOCKER_TIMEOUT:.0f} seconds",
            hint="Is its engine running?",
        ) from error


async def _read_tail(child: Child) -> bytes:
    """Until it says no more."""
    said = b""
    while data := await child.read():
        said = (said + data)[-_MAX_OUTPUT:]
    return said


def _digest(*words: str) -> str:
    return sha256("\0".join(words).encode()).hexdigest()[:16]
