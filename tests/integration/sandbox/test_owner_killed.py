"""Children end with their owner, however it ends."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes.testing.contracts.sandbox import TREE, TREE_SIZE, ProcessTreePipe

OWNER = """
import sys
import anyio
from hermes.ports.sandbox import ProcessSpec
from hermes.sandbox.spawner import Spawner
from hermes.sandbox.local import LocalSandbox

async def main(tree, witness):
    with Spawner(grace=0.2) as spawner:
        sandbox = LocalSandbox(spawner)
        argv = ("bash", "-c", tree, "bash", witness)
        job = ProcessSpec(argv=argv, cwd="/", env={"PATH": "/usr/bin:/bin"}, timeout=1000)
        async with anyio.create_task_group() as group:
            group.start_soon(sandbox.run, job)
            group.start_soon(sandbox.run, job)

anyio.run(main, *sys.argv[1:])
"""


@pytest.fixture
def witness(tmp_path: Path) -> Iterator[ProcessTreePipe]:
    witness = ProcessTreePipe(tmp_path / "witness")
    yield witness
    witness.close()


@pytest.fixture
def owner(witness: ProcessTreePipe) -> Iterator[subprocess.Popen[bytes]]:
    argv = [sys.executable, "-c", OWNER, TREE, witness.path]
    owner = subprocess.Popen(argv, stderr=subprocess.DEVNULL)
    yield owner
    owner.kill()
    owner.wait(60)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
async def test_children_end_with_a_killed_owner(
    witness: ProcessTreePipe, owner: subprocess.Popen[bytes], how: signal.Signals
):
    assert len(await witness.wait_started(2 * TREE_SIZE)) == TREE_SIZE
    owner.send_signal(how)
    await witness.wait_ended()
