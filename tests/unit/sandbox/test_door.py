"""The door itself: what happens to its keeper, its wardens and its files."""

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

pytestmark = pytest.mark.anyio
ENV = {"PATH": "/usr/bin:/bin"}


@pytest.fixture
def door() -> Iterator[Spawner]:
    with Spawner(grace=0.2) as door:
        yield door


@pytest.fixture
def witness(tmp_path: Path) -> Iterator[ProcessTreePipe]:
    witness = ProcessTreePipe(tmp_path / "witness")
    yield witness
    witness.close()


def shell(command: str, *args: str, talk: bool = False) -> SpawnRequest:
    return SpawnRequest(argv=("bash", "-c", command, "bash", *args), cwd="/", env=ENV, talk=talk)


async def everything(child: Child) -> bytes:
    output = b""
    while data := await child.read():
        output += data
    return output


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


WAITING = 'exec 9>"$1"; echo up >&9; sleep 1000'
WARDEN = "echo $PPID"
"""A command that begins with this tells who watches over it."""


async def supervisor_of(child: Child) -> int:
    said = b""
    while not said.endswith(b"\n"):
        said += await child.read()
    return int(said)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_a_conversation(door: Spawner):
    async with door.open(shell("while read x; do echo got $x; done", talk=True)) as child:
        await child.feed(b"one\n")
        assert await child.read() == b"got one\n"
        await child.feed(b"two\n")
        assert await child.read() == b"got two\n"
        child.hang_up()
        assert (await child.wait()).exit_code == 0
        assert await child.read() == b""


async def test_children_hold_no_files_but_their_own(door: Spawner):
    script = "import os; print(*(n for n in range(64) if os.path.exists(f'/proc/self/fd/{n}')))"
    async with door.open(
        SpawnRequest(argv=(sys.executable, "-c", script), cwd="/", env=ENV)
    ) as child:
        assert (await everything(child)).split() == [b"0", b"1", b"2"]


async def test_a_child_leads_a_session_of_its_own_and_takes_signals(door: Spawner):
    probe = "echo $$; cut -d' ' -f6 /proc/$$/stat; grep -E '^Sig(Ign|Blk)' /proc/self/status"
    async with door.open(shell(probe)) as child:
        pid, session, _, blocked, _, ignored = (await everything(child)).decode().split()
    assert pid == session
    ordinary = (1 << 31) - 1
    assert int(blocked, 16) & ordinary == int(ignored, 16) & ordinary == 0


async def test_no_file_or_process_is_left_behind(door: Spawner):
    async def once() -> None:
        async with door.open(shell("echo x", talk=True)) as child:
            await everything(child)

    await once()
    before = open_files()
    for _ in range(30):
        await once()
    async with anyio.create_task_group() as group:
        for _ in range(10):
            group.start_soon(once)
    assert open_files() == before


async def test_a_killed_keeper_is_replaced(door: Spawner):
    async with door.open(shell(f"{WARDEN}; read x", talk=True)) as child:
        keeper = parent_of(await supervisor_of(child))
    gone = os.pidfd_open(keeper)
    os.kill(keeper, signal.SIGKILL)
    await anyio.wait_readable(gone)
    os.close(gone)
    async with door.open(shell("echo y")) as child:
        assert await everything(child) == b"y\n"


async def test_the_whole_tree_of_a_killed_warden_ends_though_the_owner_does_nothing(
    door: Spawner, witness: ProcessTreePipe
):
    async with (
        door.open(shell("read x; echo $x", talk=True)) as other,
        door.open(shell(f"{WARDEN}; {TREE}", witness.path)) as child,
    ):
        assert len(await witness.hear(TREE_SIZE)) == TREE_SIZE
        os.kill(await supervisor_of(child), signal.SIGKILL)
        await witness.silence()
        with pytest.raises(SandboxError, match="keeper was killed"):
            await child.wait()
        await other.feed(b"still here\n")
        assert await everything(other) == b"still here\n"


async def test_a_door_that_closes_leaves_no_tree_without_a_warden(
    door: Spawner, witness: ProcessTreePipe
):
    async with door.open(shell(f"{WARDEN}; {TREE}", witness.path)) as child:
        assert len(await witness.hear(TREE_SIZE)) == TREE_SIZE
        os.kill(await supervisor_of(child), signal.SIGKILL)
        with pytest.raises(SandboxError, match="keeper was killed"):
            await child.wait()
        door.close()
        await witness.silence()


async def test_without_a_keeper_a_killed_warden_still_costs_the_command_its_life(
    door: Spawner, witness: ProcessTreePipe
):
    async with door.open(shell(f"{WARDEN}; {WAITING}", witness.path)) as child:
        await witness.hear(1)
        warden = await supervisor_of(child)
        door.close()
        os.kill(warden, signal.SIGKILL)
        with pytest.raises(SandboxError, match="keeper was killed"):
            await child.wait()
        await witness.silence()


async def test_a_failed_start_leaves_no_file_open(tmp_path: Path):
    with Spawner(python=str(tmp_path / "no-python")) as door:
        before = open_files()
        for talk in (True, False) * 3:
            with pytest.raises(SandboxError, match="No such file"):
                async with door.open(shell("true", talk=talk)):
                    pass
        assert open_files() == before


async def test_closing_the_door_does_not_end_what_runs(door: Spawner):
    async with door.open(shell("read x; echo $x", talk=True)) as child:
        door.close()
        await child.feed(b"still here\n")
        assert await everything(child) == b"still here\n"


async def test_a_child_stopped_by_a_signal_can_still_be_ended(
    door: Spawner, witness: ProcessTreePipe
):
    async with door.open(shell('exec 9>"$1"; echo up >&9; kill -STOP $$', witness.path)):
        await witness.hear(1)
    await witness.silence()


async def test_an_error_in_the_block_ends_the_tree(door: Spawner, witness: ProcessTreePipe):
    async def fail() -> None:
        async with door.open(shell(WAITING, witness.path)):
            await witness.hear(1)
            raise LookupError

    with pytest.raises(LookupError):
        await fail()
    await witness.silence()


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
async def test_the_impossible_is_refused(door: Spawner, argv, env, message: str):
    with pytest.raises(SandboxError, match=message):
        async with door.open(SpawnRequest(argv=argv, cwd="/", env=env)):
            pass


@pytest.mark.parametrize("argv", [("/etc",), ("/etc/passwd",), ("no-such-program",)])
async def test_what_cannot_be_executed_says_so(door: Spawner, argv: tuple[str, ...]):
    async with door.open(SpawnRequest(argv=argv, cwd="/", env=ENV)) as child:
        assert await child.read() == b""
        with pytest.raises(SandboxError, match="could not be started"):
            await child.wait()


async def test_a_long_command_line(door: Spawner):
    words = tuple(str(n) for n in range(20_000))
    async with door.open(SpawnRequest(argv=("echo", *words), cwd="/", env=ENV)) as child:
        assert (await everything(child)).split() == [word.encode() for word in words]


async def test_a_command_finds_files_open_and_places_held(door: Spawner, tmp_path: Path):
    assert FIRST_EXTRA_FD == reaper.FIRST_EXTRA_FD
    place = tmp_path.resolve()
    (place / "note").write_text("inside")
    command = (
        f"cat <&{FIRST_EXTRA_FD}; readlink /proc/self/fd/{FIRST_EXTRA_FD + 1}; ls /proc/self/fd"
    )
    start = structs.replace(shell(command), files=(str(place / "note"),), places=(str(place),))
    async with door.open(start) as child:
        said, *held = (await everything(child)).decode().splitlines()
        assert (await child.wait()).exit_code == 0
    assert said == f"inside{place}"
    assert held[:2] == ["0", "1"]
    assert {str(FIRST_EXTRA_FD), str(FIRST_EXTRA_FD + 1)} <= set(held)
    assert len(held) == 6


@pytest.mark.parametrize("where", ["link", "link/deep"])
async def test_a_place_behind_a_link_is_not_held(door: Spawner, tmp_path: Path, where: str):
    (tmp_path / "real/deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    start = structs.replace(shell("echo begun"), places=(str(tmp_path.resolve() / where),))
    async with door.open(start) as child:
        with pytest.raises(SandboxError, match="symbolic links"):
            await child.wait()
        assert await everything(child) == b""


async def test_complaints_may_be_kept_apart(door: Spawner) -> None:
    both = shell("echo out; echo err >&2; read line; echo $line >&2", talk=True)
    async with door.open(structs.replace(both, apart=True)) as child:
        await child.feed(b"more\n")
        assert await everything(child) == b"out\n"
        said = b""
        while data := await child.complaint():
            said += data
        assert said == b"err\nmore\n"
    async with door.open(both) as child:
        await child.feed(b"more\n")
        assert sorted((await everything(child)).split()) == [b"err", b"more", b"out"]
        assert await child.complaint() == b""
