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

pytestmark = pytest.mark.anyio
PATIENCE = 60.0
INSTALL = ["apt-get", "install", "-y", "--no-install-recommends", "openssh-server"]
CLIENT = {"PATH": "/usr/bin:/bin"}


def sshd_program() -> str:
    """Installed when the machine lets us: a test that cannot run must not look like a success."""
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
            check=True, timeout=PATIENCE,
        )  # fmt: skip
    shutil.copy(folder / "user.pub", folder / "authorized_keys")
    (folder / "config").write_text(
        f"ListenAddress 127.0.0.1\nPort {port}\nHostKey {folder}/host\n"
        f"AuthorizedKeysFile {folder}/authorized_keys\nPidFile none\nStrictModes no\n"
        "UsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\nMaxStartups 100\n"
    )
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
        server.wait(PATIENCE)


async def listening(port: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                (await asyncio.open_connection("127.0.0.1", port))[1].close()
            except ConnectionError:
                await asyncio.sleep(0.02)
            else:
                return


class TestSsh(SandboxContract):
    elsewhere = True

    @pytest.fixture
    def sandbox(self, host: SshHost) -> Iterator[RemoteSandbox]:
        with Spawner(grace=0.2) as door:
            yield RemoteSandbox(door, Ssh(host, CLIENT), grace=0.2)


OWNER = """
import sys
import anyio
from hermes.ports.sandbox import Job
from hermes.sandbox.spawner import Door
from hermes.sandbox.remote import FarSandbox
from hermes.sandbox.ssh import Ssh, SshHost
import msgspec

async def main(host, tree, witness):
    with Door(grace=0.2) as door:
        sandbox = FarSandbox(door, Ssh(msgspec.json.decode(host, type=SshHost), {}), grace=0.2)
        argv = ("bash", "-c", tree, "bash", witness)
        await sandbox.run(Job(argv=argv, cwd="/", env={}, timeout=1000))

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
    owner.wait(PATIENCE)


async def test_nothing_over_there_outlives_an_owner_that_is_killed(
    witness: ProcessTreePipe, owner: subprocess.Popen[bytes]
):
    assert len(await witness.hear(TREE_SIZE)) == TREE_SIZE
    owner.kill()
    await witness.silence()


async def test_a_machine_that_does_not_answer(host: SshHost):
    nowhere = msgspec.structs.replace(host, port=1)
    with Spawner() as door, pytest.raises(SandboxError, match=r"no connection.*refused"):
        await RemoteSandbox(door, Ssh(nowhere, CLIENT)).run(job("true"))


async def test_a_machine_that_does_not_know_us(host: SshHost, tmp_path: Path):
    stranger = msgspec.structs.replace(host, key=str(tmp_path / "no-key"))
    with (
        Spawner() as door,
        pytest.raises(SandboxError, match=r"(?s)no connection.*Permission denied"),
    ):
        await RemoteSandbox(door, Ssh(stranger, CLIENT)).run(job("true"))


@pytest.mark.parametrize("name", ["", "-oProxyCommand=touch /tmp/x"])
async def test_a_name_that_is_none(host: SshHost, name: str):
    with Spawner() as door, pytest.raises(SandboxError, match="no machine"):
        await RemoteSandbox(door, Ssh(msgspec.structs.replace(host, host=name), {})).run(
            job("true")
        )


async def test_the_command_shows_in_no_list_of_processes(host: SshHost):
    with Spawner() as door:
        sandbox = RemoteSandbox(door, Ssh(host, CLIENT))
        done = await sandbox.run(job("ps", "-eo", "args", env={"TOKEN": "so-secret"}))
    assert b"ps -eo args" in done.output
    assert b"so-secret" not in done.output


def job(*argv: str, env: dict[str, str] | None = None) -> ProcessSpec:
    return ProcessSpec(argv=argv, cwd="/", env=env or {}, timeout=PATIENCE)
