"""Run commands on another machine through the local ssh client.

Nothing restricts a command there: it has the rights of the remote user. Every command opens its
own connection, because a shared one would be a process that outlives the command.
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
    """`env` is for the client, which may need the agent with the owner's keys."""

    name = "ssh"
    label = ""

    def __init__(self, host: SshHost, env: Mapping[str, str], program: str = "ssh") -> None:
        self._host = host
        self._env = env
        self._program = program

    async def client_command(self, job: ProcessSpec, spawner: Spawner) -> ClientCommand:
        host = self._host
        if not host.host or host.host.startswith("-"):
            raise SandboxError(
                "the ssh sandbox has no host",
                hint="Set terminal.ssh_host (and terminal.ssh_user if needed).",
            )
        argv = [self._program, *SSH_OPTIONS, *host.options, "-p", str(host.port)]
        if host.key:
            argv += ["-i", host.key, "-oIdentitiesOnly=yes"]
        if host.user:
            argv += ["-l", host.user]
        argv += [host.host, f"exec sh -c '{BOOTSTRAP}'"]
        return ClientCommand(argv=tuple(argv), env=self._env, folder=job.cwd)
