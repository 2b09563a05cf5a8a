"""Unix sockets outside the sandbox cannot be reached."""

import os
import socket
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import ExitStack, chdir, closing, contextmanager, suppress
from pathlib import Path

import anyio
import pytest
from tests.integration.sandbox.conftest import SampleHome

from hermes.ports.sandbox import Process

BACKENDS = pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
TIMEOUT = 60.0

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
            print("refused", error.strerror)
    for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):
        try:
            with socket.socketpair(socket.AF_UNIX, kind)[0] as one:
                one.sendto(b"x", path + ".datagrams")
            print("REACHED", path, "from a pair")
        except OSError as error:
            print("refused", error.strerror)
print("end")
"""


class OutsideServer:
    """Listens for connections at `path` and for datagrams at another path."""

    def __init__(self, bound: str, path: Path) -> None:
        self.path = str(path)
        self._streams = socket.socket(socket.AF_UNIX)
        self._streams.bind(bound)
        self._streams.listen()
        self._datagrams = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._datagrams.bind(f"{bound}.datagrams")
        for one in (self._streams, self._datagrams):
            one.setblocking(False)

    def received(self) -> int:
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


def relative(folder: Path) -> OutsideServer:
    with chdir(folder):
        return OutsideServer("relative.sock", folder / "relative.sock")


def through_proc(folder: Path) -> OutsideServer:
    handle = os.open(folder, os.O_PATH)
    try:
        return OutsideServer(f"/proc/self/fd/{handle}/proc.sock", folder / "proc.sock")
    finally:
        os.close(handle)


def odd_name(folder: Path) -> OutsideServer:
    return OutsideServer(f"{folder}/a[b]*?.sock", folder / "a[b]*?.sock")


@contextmanager
def listening(*folders: Path) -> Generator[list[OutsideServer]]:
    makers = (relative, through_proc, odd_name)
    with ExitStack() as stack:
        made = (make(folder) for folder in folders for make in makers)
        yield [stack.enter_context(closing(one)) for one in made]


@BACKENDS
@pytest.mark.parametrize("network", [False, True])
async def test_outside_socket_is_not_reachable(sample: SampleHome, backend: str, network: bool):
    """Wherever, however and whenever the socket was bound."""
    sandbox = sample.sandbox(backend)
    with listening(sample.outside, sample.work) as servers:
        late = [str(sample.outside / "late.sock"), str(sample.work / "late.sock")]
        argv = (sys.executable, "-c", CONNECT, *(one.path for one in servers), "-", *late)
        with anyio.fail_after(TIMEOUT):
            async with sandbox.open(sample.job(*argv, network=network)) as process:
                output = b""
                while b"up\n" not in output:
                    output += await _more(process)
                with ExitStack() as stack:
                    made = (OutsideServer(path, Path(path)) for path in late)
                    servers += [stack.enter_context(closing(one)) for one in made]
                    await process.write_stdin(b"\n")
                    while not output.endswith(b"end\n"):
                        output += await _more(process)
                    assert [one.received() for one in servers] == [0] * len(servers)
        assert b"REACHED" not in output
        assert output.count(b"refused") == 5 * len(servers)


async def _more(process: Process) -> bytes:
    data = await process.read()
    assert data
    return data


async def test_outside_socket_is_reachable_without_a_sandbox(sample: SampleHome):
    """Shows that the test above can fail."""
    with listening(sample.outside) as servers:
        argv = (sys.executable, "-c", CONNECT, *(one.path for one in servers))
        done = await sample.run("bubblewrap", *argv, unsandboxed=True)
        assert done.output.count(b"REACHED") == 5 * len(servers)
        assert all(one.received() for one in servers)


PAIR = """
import socket
for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
    one, other = socket.socketpair(socket.AF_UNIX, kind)
    one.send(b"x")
    print(other.recv(1))
"""


@BACKENDS
async def test_connected_socket_pair_works(sample: SampleHome, backend: str):
    done = await sample.run(backend, sys.executable, "-c", PAIR)
    assert (done.exit_code, done.output) == (0, b"b'x'\n" * 2)


OWN = """
import socket
server, client = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
server.bind("own.sock")
server.listen()
client.connect("own.sock")
print("connected")
"""


async def test_own_sockets_work_if_allowed(sample: SampleHome):
    """Only with bubblewrap; landlock cannot hide other sockets."""
    job = sample.job(sys.executable, "-c", OWN)
    done = await sample.sandbox("bubblewrap", unix_sockets=True).run(job)
    assert done.output == b"connected\n"
    (sample.work / "own.sock").unlink()
    for sandbox in (
        sample.sandbox("bubblewrap"), sample.sandbox("landlock", unix_sockets=True)
    ):  # fmt: skip
        assert b"connected" not in (await sandbox.run(job)).output


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
def many_sockets(sample: SampleHome) -> Iterator[None]:
    argv = [sys.executable, "-c", MANY, str(sample.outside)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        yield
        process.stdin.close()


@pytest.mark.usefixtures("many_sockets")
async def test_commands_run_with_many_sockets(sample: SampleHome):
    done = await sample.run("bubblewrap", "echo", "ran")
    assert (done.exit_code, done.output) == (0, b"ran\n")
