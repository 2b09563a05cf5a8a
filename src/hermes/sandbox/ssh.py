"""Commands on another machine, over the ssh client of this one.

Nothing holds a command back over there: it acts with the rights of the user it logs in as.
Every command is a connection of its own, for a shared one would be a process that outlives
the command that opened it.
"""

from collections.abc import Mapping

from msgspec import Struct

from hermes.ports.sandbox import ProcessSpec
from hermes.sandbox.remote import BOOTSTRAP, ClientCommand
from hermes.sandbox.spawner import Spawner
from hermes.schema.errors import SandboxError

SSH_OPTIONS = (
    "-T", "-a", "-x", "-oBatchMode=yes", "-oConnectTimeout=10", "-oServerAliveInterval=15",
    "-oServerAliveCountMax=3", "-oStrictHostKeyChecking=accept-new", "-oLogLevel=ERROR",
    "-oControlMaster=no", "-oControlPath=none", "-oClearAllForwardings=yes", "-oEscapeChar=none",
)  # fmt: skip


class SshHost(Struct, frozen=True, kw_only=True):
    host: str
    user: str = ""
    port: int = 22
    key: str = ""
    options: tuple[str, ...] = ()


class Ssh:
    """`env` is for the client: it may need the agent that holds the owner's keys."""

    name = "ssh"
    word = ""

    def __init__(self, host: SshHost, env: Mapping[str, str], program: str = "ssh") -> None:
        self._host = host
        self._env = env
        self._program = program

    async def call(self, job: ProcessSpec, door: Spawner) -> ClientCommand:
        host = self._host
        if not host.host or host.host.startswith("-"):
            raise SandboxError(
                "the ssh sandbox has no machine to go to",
                hint="Set terminal.ssh_host, and terminal.ssh_user if it is another one.",
            )
        words = [self._program, *SSH_OPTIONS, *host.options, "-p", str(host.port)]
        if host.key:
            words += ["-i", host.key, "-oIdentitiesOnly=yes"]
        if host.user:
            words += ["-l", host.user]
        words += [host.host, f"exec sh -c '{BOOTSTRAP}'"]
        return ClientCommand(argv=tuple(words), env=self._env, folder=job.cwd)
