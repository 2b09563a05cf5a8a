"""The spawner under scarce resources: few file descriptors and a stopped reaper."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hermes.sandbox.spawner import Spawner, SpawnRequest

FEW_FILES = """
import os
import resource
import anyio
from hermes.sandbox.spawner import Spawner, SpawnRequest
from hermes.schema.errors import SandboxError

START = SpawnRequest(argv=("true",), cwd="/", env={"PATH": "/usr/bin:/bin"}, has_stdin=True)

def limit(files):
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, HARD))

def opened():
    return sorted(int(name) for name in os.listdir("/proc/self/fd"))[:-1]

async def attempt(spawner):
    try:
        async with spawner.open(START) as child:
            return (await child.wait()).exit_code
    except SandboxError as error:
        return str(error)

async def main(warm):
    outside = opened()
    with Spawner() as spawner:
        if warm:
            assert await attempt(spawner) == 0
        before = opened()
        failures = 0
        for room in range(1, 30):
            limit(before[-1] + room)
            outcome = await attempt(spawner)
            limit(HARD)
            if outcome == 0:
                break
            assert "Too many open files" in outcome, outcome
            # The connection to the reaper may stay open.
            assert len(set(opened()) - set(before)) <= (not warm), (room, before, opened())
            failures += 1
        assert failures >= 5, failures
        assert await attempt(spawner) == 0
    assert opened() == outside, (outside, opened())

HARD = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
for warm in (False, True):
    anyio.run(main, warm)
"""


def test_running_out_of_files_leaks_none():
    done = subprocess.run(
        [sys.executable, "-c", FEW_FILES], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def test_stopped_reaper_does_not_block_closing():
    spawner = Spawner()
    command = "echo $PPID; read x"
    start = SpawnRequest(argv=("/bin/sh", "-c", command), cwd="/", env={}, has_stdin=True)
    async with spawner.open(start) as child:
        reaper = parent_of(int(await child.read()))
    os.kill(reaper, signal.SIGSTOP)
    spawner.close()
    with pytest.raises(ProcessLookupError):
        os.kill(reaper, 0)
    async with spawner.open(SpawnRequest(argv=("/bin/true",), cwd="/", env={})) as child:
        assert (await child.wait()).exit_code == 0
    spawner.close()
