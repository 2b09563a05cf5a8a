"""The docker sandbox with a fake docker command that really runs programs."""

from pathlib import Path

import pytest
from msgspec import structs

from hermes.ports.sandbox import ProcessPermissions, ProcessSpec
from hermes.sandbox.docker import Container, Docker
from hermes.sandbox.remote import RemoteSandbox
from hermes.sandbox.spawner import Spawner
from hermes.schema.errors import SandboxError
from hermes.testing.contracts.sandbox import SandboxContract

DOCKER = """#!/bin/sh
# Keeps "containers" as files next to itself; commands run here.
state=$(dirname "$0")
printf '%s\\n' "$*" >>"$state/log"
verb=$1; shift
case $verb in
inspect)
    [ -e "$state/box-$2" ] || { echo "Error: No such object: $2" >&2; exit 1; }
    cat "$state/box-$2" ;;
run)
    for word; do case $word in --name=*) name=${word#--name=} ;; no-such-image)
        echo "Unable to find image 'no-such-image:latest' locally" >&2; exit 125 ;; esac; done
    echo true >"$state/box-$name"; echo 4f66ad9a0b2e ;;
start) echo true >"$state/box-$1"; echo "$1" ;;
exec) [ "$1" = -i ] || exit 64; shift 2; exec "$@" ;;
*) echo "unknown command: $verb" >&2; exit 125 ;;
esac
"""
CONTAINER = Container(profile="/home/me/.hermes", image="python:3")


class FakeDocker:
    """A docker command line that logs its calls."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.program = folder / "docker"
        self.program.write_text(DOCKER)
        self.program.chmod(0o755)

    def calls(self, verb: str) -> list[list[str]]:
        lines = (self.folder / "log").read_text().splitlines()
        return [line.split() for line in lines if line.split()[0] == verb]

    def sandbox(self, spawner: Spawner, container: Container = CONTAINER) -> RemoteSandbox:
        backend = Docker(container, {"PATH": "/usr/bin:/bin"}, str(self.program))
        return RemoteSandbox(spawner, backend, grace=0.2)


@pytest.fixture
def docker(tmp_path_factory: pytest.TempPathFactory) -> FakeDocker:
    return FakeDocker(tmp_path_factory.mktemp("engine"))


class TestDocker(SandboxContract):
    remote = True

    @pytest.fixture
    def sandbox(self, spawner: Spawner, docker: FakeDocker) -> RemoteSandbox:
        return docker.sandbox(spawner)


def job(folder: Path, *argv: str, network: bool = False) -> ProcessSpec:
    reach = ProcessPermissions(writable=(str(folder),), network=network)
    return ProcessSpec(
        argv=argv or ("true",), cwd=str(folder), env={}, timeout=20, permissions=reach
    )


async def test_container_is_hardened_and_reused(
    spawner: Spawner, docker: FakeDocker, tmp_path: Path
):
    sandbox = docker.sandbox(spawner)
    for _ in range(3):
        assert (await sandbox.run(job(tmp_path))).exit_code == 0
    (call,) = docker.calls("run")
    assert {
        "--network=none", "--cap-drop=ALL", "--security-opt=no-new-privileges",
        "--pids-limit=512", "--memory=5120m", f"--volume={tmp_path}:{tmp_path}",
    } <= {*call}  # fmt: skip
    assert call[-3:] == ["python:3", "sleep", "infinity"]


async def test_workspace_is_mounted_at_a_second_path(
    spawner: Spawner, docker: FakeDocker, tmp_path: Path
):
    container = structs.replace(CONTAINER, extra_mount="/workspace")
    await docker.sandbox(spawner, container).run(job(tmp_path))
    (call,) = docker.calls("run")
    assert {f"--volume={tmp_path}:{tmp_path}", f"--volume={tmp_path}:/workspace"} <= {*call}


async def test_network_access_uses_another_container(
    spawner: Spawner, docker: FakeDocker, tmp_path: Path
):
    sandbox = docker.sandbox(spawner)
    for network in (False, True, False, True):
        await sandbox.run(job(tmp_path, network=network))
    names = [call[2] for call in docker.calls("run")]
    assert len({*names}) == len(names) == 2
    assert "--network=bridge" in docker.calls("run")[1]


async def test_settings_can_disable_the_network(
    spawner: Spawner, docker: FakeDocker, tmp_path: Path
):
    sandbox = docker.sandbox(spawner, structs.replace(CONTAINER, network=False))
    await sandbox.run(job(tmp_path, network=True))
    assert "--network=none" in docker.calls("run")[0]


async def test_homes_do_not_share_containers(spawner: Spawner, docker: FakeDocker, tmp_path: Path):
    for profile in ("one", "two"):
        container = structs.replace(CONTAINER, profile=profile)
        await docker.sandbox(spawner, container).run(job(tmp_path))
    assert len({call[2] for call in docker.calls("run")}) == 2


async def test_stopped_container_is_started(spawner: Spawner, docker: FakeDocker, tmp_path: Path):
    await docker.sandbox(spawner).run(job(tmp_path))
    (container,) = docker.folder.glob("box-*")
    container.write_text("false\n")
    done = await docker.sandbox(spawner).run(job(tmp_path, "echo", "here"))
    assert done.output == b"here\n"
    assert len(docker.calls("run")) == len(docker.calls("start")) == 1


async def test_unknown_image_raises(spawner: Spawner, docker: FakeDocker, tmp_path: Path):
    container = structs.replace(CONTAINER, image="no-such-image")
    with pytest.raises(SandboxError, match="Unable to find image"):
        await docker.sandbox(spawner, container).run(job(tmp_path))


async def test_missing_docker_raises(spawner: Spawner, tmp_path: Path):
    backend = Docker(CONTAINER, {"PATH": "/usr/bin:/bin"}, str(tmp_path / "docker"))
    with pytest.raises(SandboxError, match="docker: could not be started: No such file"):
        await RemoteSandbox(spawner, backend).run(job(tmp_path))
