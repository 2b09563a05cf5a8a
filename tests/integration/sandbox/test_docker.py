"""The docker sandbox against a command line that answers as docker does and really runs."""

from pathlib import Path

import pytest
from msgspec import structs

from hermes.ports.sandbox import ProcessPermissions, ProcessSpec
from hermes.sandbox.docker import Container, Docker
from hermes.sandbox.remote import RemoteSandbox
from hermes.sandbox.spawner import Spawner
from hermes.schema.errors import SandboxError
from hermes.testing.contracts.sandbox import SandboxContract

pytestmark = pytest.mark.anyio

DOCKER = """#!/bin/sh
# Keeps "containers" as files beside itself; what is executed in one is executed here.
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
BOX = Container(profile="/home/me/.hermes", image="python:3")


class Engine:
    """The command line and what it was asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.program = folder / "docker"
        self.program.write_text(DOCKER)
        self.program.chmod(0o755)

    def asked(self, verb: str) -> list[list[str]]:
        lines = (self.folder / "log").read_text().splitlines()
        return [line.split() for line in lines if line.split()[0] == verb]

    def sandbox(self, door: Spawner, box: Container = BOX) -> RemoteSandbox:
        link = Docker(box, {"PATH": "/usr/bin:/bin"}, str(self.program))
        return RemoteSandbox(door, link, grace=0.2)


@pytest.fixture
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return Engine(tmp_path_factory.mktemp("engine"))


class TestDocker(SandboxContract):
    elsewhere = True

    @pytest.fixture
    def sandbox(self, door: Spawner, engine: Engine) -> RemoteSandbox:
        return engine.sandbox(door)


def job(folder: Path, *argv: str, network: bool = False) -> ProcessSpec:
    reach = ProcessPermissions(writable=(str(folder),), network=network)
    return ProcessSpec(argv=argv or ("true",), cwd=str(folder), env={}, timeout=20, reach=reach)


async def test_a_container_is_hardened_and_stays(door: Spawner, engine: Engine, tmp_path: Path):
    sandbox = engine.sandbox(door)
    for _ in range(3):
        assert (await sandbox.run(job(tmp_path))).exit_code == 0
    (begun,) = engine.asked("run")
    assert {
        "--network=none", "--cap-drop=ALL", "--security-opt=no-new-privileges",
        "--pids-limit=512", "--memory=5120m", f"--volume={tmp_path}:{tmp_path}",
    } <= {*begun}  # fmt: skip
    assert begun[-3:] == ["python:3", "sleep", "infinity"]


async def test_the_workspace_has_a_second_name_where_one_is_wished_for(
    door: Spawner, engine: Engine, tmp_path: Path
):
    box = structs.replace(BOX, second_name="/workspace")
    await engine.sandbox(door, box).run(job(tmp_path))
    (begun,) = engine.asked("run")
    assert {f"--volume={tmp_path}:{tmp_path}", f"--volume={tmp_path}:/workspace"} <= {*begun}


async def test_the_network_is_another_container(door: Spawner, engine: Engine, tmp_path: Path):
    sandbox = engine.sandbox(door)
    for network in (False, True, False, True):
        await sandbox.run(job(tmp_path, network=network))
    names = [begun[2] for begun in engine.asked("run")]
    assert len({*names}) == len(names) == 2
    assert "--network=bridge" in engine.asked("run")[1]


async def test_the_settings_can_forbid_the_network(door: Spawner, engine: Engine, tmp_path: Path):
    sandbox = engine.sandbox(door, structs.replace(BOX, network=False))
    await sandbox.run(job(tmp_path, network=True))
    assert "--network=none" in engine.asked("run")[0]


async def test_two_homes_share_no_container(door: Spawner, engine: Engine, tmp_path: Path):
    for profile in ("one", "two"):
        box = structs.replace(BOX, profile=profile)
        await engine.sandbox(door, box).run(job(tmp_path))
    assert len({begun[2] for begun in engine.asked("run")}) == 2


async def test_a_container_that_was_stopped_is_started(
    door: Spawner, engine: Engine, tmp_path: Path
):
    await engine.sandbox(door).run(job(tmp_path))
    (box,) = engine.folder.glob("box-*")
    box.write_text("false\n")
    done = await engine.sandbox(door).run(job(tmp_path, "echo", "here"))
    assert done.output == b"here\n"
    assert len(engine.asked("run")) == len(engine.asked("start")) == 1


async def test_an_image_that_is_none(door: Spawner, engine: Engine, tmp_path: Path):
    box = structs.replace(BOX, image="no-such-image")
    with pytest.raises(SandboxError, match="Unable to find image"):
        await engine.sandbox(door, box).run(job(tmp_path))


async def test_no_docker_at_all(door: Spawner, tmp_path: Path):
    link = Docker(BOX, {"PATH": "/usr/bin:/bin"}, str(tmp_path / "docker"))
    with pytest.raises(SandboxError, match="docker: it could not be started: No such file"):
        await RemoteSandbox(door, link).run(job(tmp_path))
