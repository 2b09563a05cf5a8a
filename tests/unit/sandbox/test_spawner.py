"""The spawner: its reaper, supervisors and open files."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from msgspec import structs

from hermes.sandbox import reaper
from hermes.sandbox.spawner import FIRST_EXTRA_FD, Child, Spawner, SpawnRequest
from hermes.schema.errors import SandboxError
from hermes.testing.contracts.sandbox import TREE, TREE_SIZE, ProcessTreePipe

pytestmark = pytest.mark.slow
ENV = {"PATH": "/usr/bin:/bin"}


@pytest.fixture
def spawner() -> Iterator[Spawner]:
    with Spawner(grace=0.2) as spawner:
        yield spawner


@pytest.fixture
def witness(tmp_path: Path) -> Iterator[ProcessTreePipe]:
    witness = ProcessTreePipe(tmp_path / "witness")
    yield witness
    witness.close()


def shell(command: str, *args: str, talk: bool = False) -> SpawnRequest:
    return SpawnRequest(
        argv=("bash", "-c", command, "bash", *args), cwd="/", env=ENV, has_stdin=talk
    )


async def read_all(child: Child) -> bytes:
    output = b""
    while data := await child.read():
        output += data
    return output


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


WAITING = 'exec 9>"$1"; echo up >&9; sleep 1000'
PRINT_SUPERVISOR = "echo $PPID"
"""Makes a command print the pid of its supervisor first."""


async def supervisor_of(child: Child) -> int:
    output = b""
    while not output.endswith(b"\n"):
        output += await child.read()
    return int(output)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_child_reads_and_writes(spawner: Spawner):
    async with spawner.open(shell("while read x; do echo got $x; done", talk=True)) as child:
        await child.write_stdin(b"one\n")
        assert await child.read() == b"got one\n"
        await child.write_stdin(b"two\n")
        assert await child.read() == b"got two\n"
        child.close_stdin()
        assert (await child.wait()).exit_code == 0
        assert await child.read() == b""


@pytest.mark.parametrize("size", [1, 1_000_000], ids=["before the write", "during the write"])
async def test_closing_the_input_ends_a_write(spawner: Spawner, size: int):
    start = shell("sleep 1000", talk=True)
    async with spawner.open(start) as child, anyio.create_task_group() as tg:
        tg.start_soon(child.write_stdin, b"x" * size)
        if size > 1:
            await anyio.wait_all_tasks_blocked()
        child.close_stdin()


async def test_child_inherits_only_standard_files(spawner: Spawner):
    script = "import os; print(*(n for n in range(64) if os.path.exists(f'/proc/self/fd/{n}')))"
    async with spawner.open(
        SpawnRequest(argv=(sys.executable, "-c", script), cwd="/", env=ENV)
    ) as child:
        assert (await read_all(child)).split() == [b"0", b"1", b"2"]


async def test_child_is_a_session_leader_and_receives_signals(spawner: Spawner):
    probe = "echo $$; cut -d' ' -f6 /proc/$$/stat; grep -E '^Sig(Ign|Blk)' /proc/self/status"
    async with spawner.open(shell(probe)) as child:
        pid, session, _, blocked, _, ignored = (await read_all(child)).decode().split()
    assert pid == session
    ordinary = (1 << 31) - 1
    assert int(blocked, 16) & ordinary == int(ignored, 16) & ordinary == 0


async def test_spawning_leaks_no_files(spawner: Spawner):
    async def once() -> None:
        async with spawner.open(shell("echo x", talk=True)) as child:
            await read_all(child)

    await once()
    before = open_files()
    for _ in range(30):
        await once()
    async with anyio.create_task_group() as group:
        for _ in range(10):
            group.start_soon(once)
    assert open_files() == before


async def test_killed_reaper_is_replaced(spawner: Spawner):
    async with spawner.open(shell(f"{PRINT_SUPERVISOR}; read x", talk=True)) as child:
        reaper_pid = parent_of(await supervisor_of(child))
    gone = os.pidfd_open(reaper_pid)
    os.kill(reaper_pid, signal.SIGKILL)
    await anyio.wait_readable(gone)
    os.close(gone)
    async with spawner.open(shell("echo y")) as child:
        assert await read_all(child) == b"y\n"


async def test_tree_of_a_killed_supervisor_is_ended(spawner: Spawner, witness: ProcessTreePipe):
    async with (
        spawner.open(shell("read x; echo $x", talk=True)) as other,
        spawner.open(shell(f"{PRINT_SUPERVISOR}; {TREE}", witness.path)) as child,
    ):
        assert len(await witness.wait_started(TREE_SIZE)) == TREE_SIZE
        os.kill(await supervisor_of(child), signal.SIGKILL)
        await witness.wait_ended()
        with pytest.raises(SandboxError, match="supervisor was killed"):
            await child.wait()
        await other.write_stdin(b"still here\n")
        assert await read_all(other) == b"still here\n"


async def test_closing_ends_trees_without_a_supervisor(spawner: Spawner, witness: ProcessTreePipe):
    async with spawner.open(shell(f"{PRINT_SUPERVISOR}; {TREE}", witness.path)) as child:
        assert len(await witness.wait_started(TREE_SIZE)) == TREE_SIZE
        os.kill(await supervisor_of(child), signal.SIGKILL)
        with pytest.raises(SandboxError, match="supervisor was killed"):
            await child.wait()
        spawner.close()
        await witness.wait_ended()


async def test_command_ends_when_reaper_and_supervisor_are_gone(
    spawner: Spawner, witness: ProcessTreePipe
):
    async with spawner.open(shell(f"{PRINT_SUPERVISOR}; {WAITING}", witness.path)) as child:
        await witness.wait_started(1)
        supervisor = await supervisor_of(child)
        spawner.close()
        os.kill(supervisor, signal.SIGKILL)
        with pytest.raises(SandboxError, match="supervisor was killed"):
            await child.wait()
        await witness.wait_ended()


async def test_failed_start_leaks_no_files(tmp_path: Path):
    with Spawner(python=str(tmp_path / "no-python")) as spawner:
        before = open_files()
        for talk in (True, False) * 3:
            with pytest.raises(SandboxError, match="No such file"):
                async with spawner.open(shell("true", talk=talk)):
                    pass
        assert open_files() == before


async def test_closing_the_spawner_keeps_running_children(spawner: Spawner):
    async with spawner.open(shell("read x; echo $x", talk=True)) as child:
        spawner.close()
        await child.write_stdin(b"still here\n")
        assert await read_all(child) == b"still here\n"


async def test_stopped_child_can_be_ended(spawner: Spawner, witness: ProcessTreePipe):
    async with spawner.open(shell('exec 9>"$1"; echo up >&9; kill -STOP $$', witness.path)):
        await witness.wait_started(1)
    await witness.wait_ended()


async def test_error_in_the_context_ends_the_tree(spawner: Spawner, witness: ProcessTreePipe):
    async def fail() -> None:
        async with spawner.open(shell(WAITING, witness.path)):
            await witness.wait_started(1)
            raise LookupError

    with pytest.raises(LookupError):
        await fail()
    await witness.wait_ended()


@pytest.mark.parametrize(
    ("argv", "env", "message"),
    [
        ((), {}, "no command"),
        (("a\0b",), {}, "NUL"),
        (("true",), {"A": "x\0"}, "NUL"),
        (("true",), {"": "x"}, "name is empty"),
        (("true",), {"A=B": "x"}, "contains '='"),
    ],
)
async def test_invalid_requests_are_rejected(spawner: Spawner, argv, env, message: str):
    with pytest.raises(SandboxError, match=message):
        async with spawner.open(SpawnRequest(argv=argv, cwd="/", env=env)):
            pass


@pytest.mark.parametrize("argv", [("/etc",), ("/etc/passwd",), ("no-such-program",)])
async def test_unexecutable_program_raises(spawner: Spawner, argv: tuple[str, ...]):
    async with spawner.open(SpawnRequest(argv=argv, cwd="/", env=ENV)) as child:
        assert await child.read() == b""
        with pytest.raises(SandboxError, match="could not be started"):
            await child.wait()


async def test_long_command_line_is_passed(spawner: Spawner):
    words = tuple(str(n) for n in range(20_000))
    async with spawner.open(SpawnRequest(argv=("echo", *words), cwd="/", env=ENV)) as child:
        assert (await read_all(child)).split() == [word.encode() for word in words]


async def test_extra_files_and_held_paths_are_open(spawner: Spawner, tmp_path: Path):
    assert FIRST_EXTRA_FD == reaper.FIRST_EXTRA_FD
    folder = tmp_path.resolve()
    (folder / "note").write_text("inside")
    command = (
        f"cat <&{FIRST_EXTRA_FD}; readlink /proc/self/fd/{FIRST_EXTRA_FD + 1}; ls /proc/self/fd"
    )
    request = structs.replace(
        shell(command), files=(str(folder / "note"),), held_paths=(str(folder),)
    )
    async with spawner.open(request) as child:
        output, *descriptors = (await read_all(child)).decode().splitlines()
        assert (await child.wait()).exit_code == 0
    assert output == f"inside{folder}"
    assert descriptors[:2] == ["0", "1"]
    assert {str(FIRST_EXTRA_FD), str(FIRST_EXTRA_FD + 1)} <= set(descriptors)
    assert len(descriptors) == 6


@pytest.mark.parametrize("path", ["link", "link/deep"])
async def test_held_path_behind_a_link_is_rejected(spawner: Spawner, tmp_path: Path, path: str):
    (tmp_path / "real/deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    request = structs.replace(shell("echo begun"), held_paths=(str(tmp_path.resolve() / path),))
    async with spawner.open(request) as child:
        with pytest.raises(SandboxError, match="symbolic links"):
            await child.wait()
        assert await read_all(child) == b""


async def test_stderr_can_be_separate(spawner: Spawner) -> None:
    both = shell("echo out; echo err >&2; read line; echo $line >&2", talk=True)
    async with spawner.open(structs.replace(both, separate_stderr=True)) as child:
        await child.write_stdin(b"more\n")
        assert await read_all(child) == b"out\n"
        output = b""
        while data := await child.read_stderr():
            output += data
        assert output == b"err\nmore\n"
    async with spawner.open(both) as child:
        await child.write_stdin(b"more\n")
        assert sorted((await read_all(child)).split()) == [b"err", b"more", b"out"]
        assert await child.read_stderr() == b""
