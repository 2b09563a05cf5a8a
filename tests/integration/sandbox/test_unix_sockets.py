"""Programs outside of the sandbox that listen on a Unix socket are not reached from inside."""

import os
import socket
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import ExitStack, chdir, closing, contextmanager, suppress
from pathlib import Path

import anyio
import pytest
from tests.integration.sandbox.conftest import Ground

from hermes.ports.sandbox import Process

pytestmark = pytest.mark.anyio
BACKENDS = pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
PATIENCE = 60.0

CONNECT = """
import os, socket, sys
for path in sys.argv[1:]:
    if path == "-":
        print("up", flush=True)
        sys.stdin.readline()
        continue
    folder, name = os.path.split(path)
    os.chdir(folder)
    for address in (path, name, f"/proc/self/cwd/{name}"):
        try:
            with socket.socket(socket.AF_UNIX) as one:
                one.connect(address)
            print("REACHED", address)
        except OSError as error:
            print("kept out", error.strerror)
    for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):
        try:
            with socket.socketpair(socket.AF_UNIX, kind)[0] as one:
                one.sendto(b"x", path + ".datagrams")
            print("REACHED", path, "from a pair")
        except OSError as error:
            print("kept out", error.strerror)
print("end")
"""


class Ears:
    """A program outside: connections to `path`, and datagrams to another path beside it."""

    def __init__(self, bound: str, path: Path) -> None:
        self.path = str(path)
        self._streams = socket.socket(socket.AF_UNIX)
        self._streams.bind(bound)
        self._streams.listen()
        self._datagrams = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._datagrams.bind(f"{bound}.datagrams")
        for one in (self._streams, self._datagrams):
            one.setblocking(False)

    def heard(self) -> int:
        count = 0
        with suppress(BlockingIOError):
            while True:
                self._streams.accept()[0].close()
                count += 1
        with suppress(BlockingIOError):
            while True:
                self._datagrams.recv(1)
                count += 1
        return count

    def close(self) -> None:
        self._streams.close()
        self._datagrams.close()


def relative(folder: Path) -> Ears:
    with chdir(folder):
        return Ears("relative.sock", folder / "relative.sock")


def through_proc(folder: Path) -> Ears:
    handle = os.open(folder, os.O_PATH)
    try:
        return Ears(f"/proc/self/fd/{handle}/proc.sock", folder / "proc.sock")
    finally:
        os.close(handle)


def odd_name(folder: Path) -> Ears:
    return Ears(f"{folder}/a[b]*?.sock", folder / "a[b]*?.sock")


@contextmanager
def listening(*folders: Path) -> Generator[list[Ears]]:
    makers = (relative, through_proc, odd_name)
    with ExitStack() as stack:
        made = (make(folder) for folder in folders for make in makers)
        yield [stack.enter_context(closing(one)) for one in made]


@BACKENDS
@pytest.mark.parametrize("network", [False, True])
async def test_a_program_outside_is_not_reached(ground: Ground, backend: str, network: bool):
    """Wherever it listens, however its socket was bound, and when: all are in a readable place."""
    sandbox = ground.sandbox(backend)
    with listening(ground.outside, ground.work) as ears:
        late = [str(ground.outside / "late.sock"), str(ground.work / "late.sock")]
        argv = (sys.executable, "-c", CONNECT, *(one.path for one in ears), "-", *late)
        with anyio.fail_after(PATIENCE):
            async with sandbox.open(ground.job(*argv, network=network)) as process:
                said = b""
                while b"up\n" not in said:
                    said += await _more(process)
                with ExitStack() as stack:
                    made = (Ears(path, Path(path)) for path in late)
                    ears += [stack.enter_context(closing(one)) for one in made]
                    await process.feed(b"\n")
                    while not said.endswith(b"end\n"):
                        said += await _more(process)
                    assert [one.heard() for one in ears] == [0] * len(ears)
        assert b"REACHED" not in said
        assert said.count(b"kept out") == 5 * len(ears)


async def _more(process: Process) -> bytes:
    data = await process.read()
    assert data
    return data


async def test_without_the_sandbox_it_is_reached(ground: Ground):
    """So that the test above can fail."""
    with listening(ground.outside) as ears:
        argv = (sys.executable, "-c", CONNECT, *(one.path for one in ears))
        done = await ground.run("bubblewrap", *argv, beyond=True)
        assert done.output.count(b"REACHED") == 5 * len(ears)
        assert all(one.heard() for one in ears)


PAIR = """
import socket
for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
    one, other = socket.socketpair(socket.AF_UNIX, kind)
    one.send(b"x")
    print(other.recv(1))
"""


@BACKENDS
async def test_a_connected_pair_works(ground: Ground, backend: str):
    """What programs make to talk to their own children."""
    done = await ground.run(backend, sys.executable, "-c", PAIR)
    assert (done.exit_code, done.output) == (0, b"b'x'\n" * 2)


OWN = """
import socket
server, client = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
server.bind("own.sock")
server.listen()
client.connect("own.sock")
print("met")
"""


async def test_own_sockets_where_the_settings_allow_them(ground: Ground):
    """With bubblewrap only; landlock could hide no socket of others."""
    job = ground.job(sys.executable, "-c", OWN)
    done = await ground.sandbox("bubblewrap", unix_sockets=True).run(job)
    assert done.output == b"met\n"
    (ground.work / "own.sock").unlink()
    for sandbox in (
        ground.sandbox("bubblewrap"), ground.sandbox("landlock", unix_sockets=True)
    ):  # fmt: skip
        assert b"met" not in (await sandbox.run(job)).output


MANY = """
import resource, socket, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
held = []
for number in range(1_500):
    one = socket.socket(socket.AF_UNIX)
    one.bind(f"{sys.argv[1]}/{number}.sock")
    one.listen()
    held.append(one)
print("up", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def crowd(ground: Ground) -> Iterator[None]:
    argv = [sys.executable, "-c", MANY, str(ground.outside)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        yield
        process.stdin.close()


@pytest.mark.usefixtures("crowd")
async def test_however_many_sockets_there_are_commands_run(ground: Ground):
    done = await ground.run("bubblewrap", "echo", "ran")
    assert (done.exit_code, done.output) == (0, b"ran\n")
