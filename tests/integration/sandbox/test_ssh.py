"""The ssh sandbox against a real sshd on loopback."""

import asyncio
import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from hermes.ports.sandbox import ProcessSpec
from hermes.sandbox.remote import RemoteSandbox
from hermes.sandbox.spawner import Spawner
from hermes.sandbox.ssh import Ssh, SshHost
from hermes.schema.errors import SandboxError
from hermes.testing.contracts.sandbox import TREE, TREE_SIZE, ProcessTreePipe, SandboxContract
from support.cli_process import reserved_port

TIMEOUT = 60.0
INSTALL = ["apt-get", "install", "-y", "--no-install-recommends", "openssh-server"]
CLIENT = {"PATH": "/usr/bin:/bin"}


def sshd_program() -> str:
    """Find sshd, or install it: a skipped test would look like a success."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
    found = shutil.which("sshd", path=path)
    if found is None:
        subprocess.run(INSTALL, timeout=120, check=True, capture_output=True)
        found = shutil.which("sshd", path=path)
    assert found, "openssh-server is needed for these tests"
    return found


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with reserved_port() as one:
        yield one


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[SshHost]:
    folder = tmp_path_factory.mktemp("sshd")
    for name in ("host", "user"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)],
            check=True, timeout=TIMEOUT,
        )  # fmt: skip
    shutil.copy(folder / "user.pub", folder / "authorized_keys")
    (folder / "config").write_text(
        f"ListenAddress 127.0.0.1\nPort {port}\nHostKey {folder}/host\n"
        f"AuthorizedKeysFile {folder}/authorized_keys\nPidFile none\nStrictModes no\n"
        "UsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\nMaxStartups 100\n"
    )
    # Not the home of the account: its `.bashrc` may be slow, or wait for a lock.
    (folder / "home").mkdir()
    with (folder / "config").open("a") as config:
        config.write(f"SetEnv HOME={folder}/home\n")
    Path("/run/sshd").mkdir(exist_ok=True) if os.geteuid() == 0 else None
    with (folder / "log").open("wb") as log:
        command = [sshd_program(), "-D", "-e", "-f", str(folder / "config")]
        server = subprocess.Popen(command, stderr=log)
    try:
        asyncio.run(listening(port))
        yield SshHost(
            host="127.0.0.1",
            user=pwd.getpwuid(os.geteuid()).pw_name,
            port=port,
            key=str(folder / "user"),
            options=(f"-oUserKnownHostsFile={folder}/known_hosts",),
        )
    finally:
        server.terminate()
        server.wait(TIMEOUT)


async def listening(port: int) -> None:
    async with asyncio.timeout(TIMEOUT):
        while True:
            try:
                (await asyncio.open_connection("127.0.0.1", port))[1].close()
            except ConnectionError:
                await asyncio.sleep(0.02)
            else:
                return


class TestSsh(SandboxContract):
    remote = True

    @pytest.fixture
    def sandbox(self, host: SshHost) -> Iterator[RemoteSandbox]:
        with Spawner(grace=0.2) as spawner:
            yield RemoteSandbox(spawner, Ssh(host, CLIENT), grace=0.2)


OWNER = """
import sys
import anyio
from hermes.ports.sandbox import ProcessSpec
from hermes.sandbox.spawner import Spawner
from hermes.sandbox.remote import RemoteSandbox
from hermes.sandbox.ssh import Ssh, SshHost
import msgspec

async def main(host, tree, witness):
    with Spawner(grace=0.2) as spawner:
        ssh = Ssh(msgspec.json.decode(host, type=SshHost), {})
        sandbox = RemoteSandbox(spawner, ssh, grace=0.2)
        argv = ("bash", "-c", tree, "bash", witness)
        await sandbox.run(ProcessSpec(argv=argv, cwd="/", env={}, timeout=1000))

anyio.run(main, *sys.argv[1:])
"""


@pytest.fixture
def witness(tmp_path: Path) -> Iterator[ProcessTreePipe]:
    witness = ProcessTreePipe(tmp_path / "witness")
    yield witness
    witness.close()


@pytest.fixture
def owner(host: SshHost, witness: ProcessTreePipe) -> Iterator[subprocess.Popen[bytes]]:
    argv = [sys.executable, "-c", OWNER, msgspec.json.encode(host), TREE, witness.path]
    owner = subprocess.Popen(argv, stderr=subprocess.DEVNULL)
    yield owner
    owner.kill()
    owner.wait(TIMEOUT)


async def test_remote_processes_end_with_a_killed_owner(
    witness: ProcessTreePipe, owner: subprocess.Popen[bytes]
):
    assert len(await witness.wait_started(TREE_SIZE)) == TREE_SIZE
    owner.kill()
    await witness.wait_ended()


async def test_unreachable_host_raises(host: SshHost):
    nowhere = msgspec.structs.replace(host, port=1)
    with Spawner() as spawner, pytest.raises(SandboxError, match=r"could not connect.*refused"):
        await RemoteSandbox(spawner, Ssh(nowhere, CLIENT)).run(job("true"))


async def test_unknown_key_raises(host: SshHost, tmp_path: Path):
    unknown = msgspec.structs.replace(host, key=str(tmp_path / "no-key"))
    with (
        Spawner() as spawner,
        pytest.raises(SandboxError, match=r"(?s)could not connect.*Permission denied"),
    ):
        await RemoteSandbox(spawner, Ssh(unknown, CLIENT)).run(job("true"))


@pytest.mark.parametrize("name", ["", "-oProxyCommand=touch /tmp/x"])
async def test_invalid_host_name_raises(host: SshHost, name: str):
    with Spawner() as spawner, pytest.raises(SandboxError, match="no host"):
        await RemoteSandbox(spawner, Ssh(msgspec.structs.replace(host, host=name), {})).run(
            job("true")
        )


async def test_environment_is_not_in_the_process_list(host: SshHost):
    with Spawner() as spawner:
        sandbox = RemoteSandbox(spawner, Ssh(host, CLIENT))
        done = await sandbox.run(job("ps", "-eo", "args", env={"TOKEN": "so-secret"}))
    assert b"ps -eo args" in done.output
    assert b"so-secret" not in done.output


def job(*argv: str, env: dict[str, str] | None = None) -> ProcessSpec:
    return ProcessSpec(argv=argv, cwd="/", env=env or {}, timeout=TIMEOUT)
