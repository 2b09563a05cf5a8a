"""Contract of sandboxes: subclass `SandboxContract` and provide the fixture `sandbox`."""

import os
import tracemalloc
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import anyio
import pytest

from hermes.ports.sandbox import Process, ProcessPermissions, ProcessResult, ProcessSpec, Sandbox
from hermes.schema.errors import SandboxError

ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
TEST_TIMEOUT = 60.0

TREE = """
exec 9>"$1"
(trap '' TERM; echo stubborn >&9; while :; do sleep 1000; done) &
setsid sh -c 'echo daemon >&9; sleep 1000' &
(setsid sh -c 'trap "" TERM HUP; echo both >&9; while :; do sleep 1000; done' &)
echo main >&9
wait
"""
"""A shell script whose children resist being killed; each of them keeps the pipe open."""
TREE_SIZE = 4


class ProcessTreePipe:
    """A named pipe that every process of a tree keeps open, so end-of-file means all have ended."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = str(path)
        self._reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    async def wait_started(self, count: int) -> set[str]:
        """Wait for the first lines of `count` processes and return their words."""
        output = b""
        with anyio.fail_after(TEST_TIMEOUT):
            while output.count(b"\n") < count:
                await anyio.wait_readable(self._reader)
                output += os.read(self._reader, 4096)
        return set(output.decode().split())

    async def wait_ended(self) -> None:
        """Wait until every process of the tree has ended."""
        with anyio.fail_after(TEST_TIMEOUT):
            while True:
                await anyio.wait_readable(self._reader)
                if not os.read(self._reader, 4096):
                    return

    def close(self) -> None:
        os.close(self._reader)


class SandboxContract:
    """`elsewhere` is set for backends (such as containers) that add variables of their own."""

    pytestmark: ClassVar = pytest.mark.anyio
    remote: ClassVar[bool] = False

    @pytest.fixture
    def witness(self, tmp_path: Path) -> Iterator[ProcessTreePipe]:
        witness = ProcessTreePipe(tmp_path / "witness")
        yield witness
        witness.close()

    async def test_output_and_exit_code_are_returned(
        self, sandbox: Sandbox, tmp_path: Path
    ) -> None:
        done = await sandbox.run(_shell("echo one; echo two >&2; echo three; exit 3", tmp_path))
        assert done == ProcessResult(exit_code=3, output=b"one\ntwo\nthree\n", total=14)

    async def test_death_by_signal_gives_a_negative_exit_code(
        self, sandbox: Sandbox, tmp_path: Path
    ) -> None:
        assert (await sandbox.run(_shell("kill -9 $$", tmp_path))).exit_code == -9

    async def test_environment_is_exactly_the_given_one(
        self, sandbox: Sandbox, tmp_path: Path
    ) -> None:
        variables = {**ENV, "PLAIN": "a b", "ODD": "=x=\ny\tä"}
        done = await sandbox.run(_job(("env", "-0"), tmp_path, env=variables))
        lines = done.output.decode().rstrip("\0").split("\0")
        seen = dict(line.split("=", 1) for line in lines)
        assert seen.pop("PWD", str(tmp_path)) == str(tmp_path)
        # A sandbox may set its own directory for temporary files.
        seen.pop("TMPDIR", None)
        if self.remote:
            del variables["PATH"]
            seen = {name: value for name, value in seen.items() if name in variables}
        assert seen == variables

    async def test_working_directory_is_the_given_one(
        self, sandbox: Sandbox, tmp_path: Path
    ) -> None:
        done = await sandbox.run(_job(("pwd", "-P"), tmp_path))
        assert done.output.decode().strip() == str(tmp_path)

    async def test_arguments_are_passed_unchanged(self, sandbox: Sandbox, tmp_path: Path) -> None:
        args = ("", " ", "$HOME", "'\"", "ä\n*")
        done = await sandbox.run(_job(("printf", "%s|", *args), tmp_path))
        assert done.output.decode() == "|".join(args) + "|"

    async def test_stdin_is_passed_and_empty_by_default(
        self, sandbox: Sandbox, tmp_path: Path
    ) -> None:
        text = b"x" * 300_000
        done = await sandbox.run(_job(("wc", "-c"), tmp_path, stdin=text))
        assert done.output.split() == [b"300000"]
        assert (await sandbox.run(_job(("cat",), tmp_path))).output == b""

    async def test_unread_stdin_does_not_block_the_command(
        self, sandbox: Sandbox, tmp_path: Path
    ) -> None:
        done = await sandbox.run(_job(("true",), tmp_path, stdin=b"x" * 1_000_000))
        assert done.exit_code == 0

    async def test_output_callback_receives_all_output(
        self, sandbox: Sandbox, tmp_path: Path
    ) -> None:
        pieces: list[bytes] = []

        async def on_output(data: bytes) -> None:
            await anyio.lowlevel.checkpoint()
            pieces.append(data)

        done = await sandbox.run(_shell("seq 20000", tmp_path), on_output)
        assert b"".join(pieces) == done.output
        assert done.output.split() == [b"%d" % n for n in range(1, 20001)]

    async def test_failing_output_callback_kills_the_command(
        self, sandbox: Sandbox, tmp_path: Path, witness: ProcessTreePipe
    ) -> None:
        async def on_output(data: bytes) -> None:
            await anyio.lowlevel.checkpoint()
            raise LookupError(data)

        with pytest.raises(LookupError):
            await sandbox.run(
                _shell('exec 9>"$1"; echo x; sleep 1000', tmp_path, witness.path), on_output
            )
        await witness.wait_ended()

    async def test_large_output_is_spilled_with_bounded_memory(
        self, sandbox: Sandbox, tmp_path: Path
    ) -> None:
        size, keep, spill = 50_000_000, 100_000, tmp_path / "all"
        command = f"printf begin; head -c {size - 8} /dev/zero; printf end"
        tracemalloc.start()
        try:
            done = await sandbox.run(_shell(command, tmp_path, keep=keep, overflow_file=str(spill)))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert done.total == size == spill.stat().st_size
        assert (len(done.output), done.seam) == (keep, keep * 2 // 5)
        assert done.output.startswith(b"begin")
        assert done.output.endswith(b"end")
        assert peak < 4_000_000

    async def test_output_within_the_limit_is_not_spilled(
        self, sandbox: Sandbox, tmp_path: Path
    ) -> None:
        spill = tmp_path / "all"
        done = await sandbox.run(_shell("printf 12345", tmp_path, keep=5, overflow_file=str(spill)))
        assert (done.output, done.seam) == (b"12345", None)
        assert not spill.exists()

    async def test_timeout_kills_the_process_tree(
        self, sandbox: Sandbox, tmp_path: Path, witness: ProcessTreePipe
    ) -> None:
        # On a busy machine the command may not have started in time: try longer timeouts.
        for seconds in (0.5, 4.0, 30.0):
            job = _shell("echo early\n" + TREE, tmp_path, witness.path, timeout=seconds)
            done = await sandbox.run(job)
            if done.output:
                break
        assert (done.exit_code, done.timed_out, done.output) == (124, True, b"early\n")
        await witness.wait_ended()

    async def test_cancellation_kills_the_process_tree(
        self, sandbox: Sandbox, tmp_path: Path, witness: ProcessTreePipe
    ) -> None:
        async with _running(sandbox, _shell(TREE, tmp_path, witness.path)):
            assert len(await witness.wait_started(TREE_SIZE)) == TREE_SIZE
        await witness.wait_ended()

    async def test_leftover_processes_are_killed_and_counted(
        self, sandbox: Sandbox, tmp_path: Path, witness: ProcessTreePipe
    ) -> None:
        command = 'exec 9>"$1"; setsid sleep 1000 & sleep 1000 & echo done'
        done = await sandbox.run(_shell(command, tmp_path, witness.path))
        assert (done.exit_code, done.output, done.left) == (0, b"done\n", 2)
        await witness.wait_ended()

    async def test_short_background_process_is_waited_for(
        self, sandbox: Sandbox, tmp_path: Path
    ) -> None:
        done = await sandbox.run(_shell("(sleep 0.05; echo late) & echo early", tmp_path))
        assert (done.output, done.left) == (b"early\nlate\n", 0)

    async def test_start_failure_names_the_cause(self, sandbox: Sandbox, tmp_path: Path) -> None:
        with pytest.raises(SandboxError, match=r"no-such-program.*No such file"):
            await sandbox.run(_job(("no-such-program",), tmp_path))
        with pytest.raises(SandboxError, match=r"nowhere.*No such file"):
            await sandbox.run(_job(("true",), tmp_path / "nowhere"))
        with pytest.raises(SandboxError, match="NUL"):
            await sandbox.run(_job(("echo", "a\0b"), tmp_path))
        assert (await sandbox.run(_job(("true",), tmp_path))).exit_code == 0

    async def test_commands_run_concurrently(self, sandbox: Sandbox, tmp_path: Path) -> None:
        """Each waits for a file made by the other, so running in sequence would never end."""
        results: list[int] = []

        async def touch_and_wait(mine: str, other: str) -> None:
            command = f"touch {mine}; until [ -e {other} ]; do sleep 0.01; done"
            results.append((await sandbox.run(_shell(command, tmp_path))).exit_code)

        with anyio.fail_after(TEST_TIMEOUT):
            async with anyio.create_task_group() as group:
                group.start_soon(touch_and_wait, "a", "b")
                group.start_soon(touch_and_wait, "b", "a")
        assert results == [0, 0]

    async def test_open_process_answers_line_by_line(
        self, sandbox: Sandbox, tmp_path: Path
    ) -> None:
        command = "while read x; do echo got $x; done; exit 3"
        async with sandbox.open(_shell(command, tmp_path)) as process:
            assert process.pid > 0
            for line in (b"one", b"two"):
                await process.write_stdin(line + b"\n")
                assert await _read_line(process) == b"got " + line + b"\n"
            process.close_stdin()
            assert (await process.wait()).exit_code == 3
            assert await process.read() == b""

    async def test_open_process_with_pty_has_a_terminal(
        self, sandbox: Sandbox, tmp_path: Path
    ) -> None:
        command = "test -t 0 && test -t 1 && test -t 2 && stty size && echo $TERM > /dev/tty; cat"
        async with sandbox.open(_shell(command, tmp_path), pty=True) as process:
            assert await _read_line(process, 2) == b"24 80\r\nxterm-256color\r\n"
            await process.write_stdin(b"hello\n")
            assert await _read_line(process, 2) == b"hello\r\nhello\r\n"
            process.close_stdin()
            assert (await process.wait()).exit_code == 0
            assert await process.read() == b""

    async def test_run_with_pty_gets_end_of_input(self, sandbox: Sandbox, tmp_path: Path) -> None:
        job = _shell("test -t 0 && test -t 1 && cat; printf over; exit 3", tmp_path)
        done = await sandbox.run(job, pty=True)
        assert (done.exit_code, done.timed_out) == (3, False)
        assert done.output.endswith(b"over")

    async def test_ctrl_c_on_the_pty_interrupts(self, sandbox: Sandbox, tmp_path: Path) -> None:
        async with sandbox.open(_shell("echo up; sleep 1000", tmp_path), pty=True) as process:
            assert await _read_line(process) == b"up\r\n"
            await process.write_stdin(b"\x03")
            with anyio.fail_after(TEST_TIMEOUT):
                assert (await process.wait()).exit_code in (-2, 130)

    @pytest.mark.parametrize("pty", [False, True])
    async def test_closing_an_open_process_kills_its_tree(
        self, sandbox: Sandbox, tmp_path: Path, witness: ProcessTreePipe, pty: bool
    ) -> None:
        async with sandbox.open(_shell(TREE, tmp_path, witness.path), pty=pty):
            assert len(await witness.wait_started(TREE_SIZE)) == TREE_SIZE
        await witness.wait_ended()

    async def test_open_process_that_cannot_start_is_an_error(
        self, sandbox: Sandbox, tmp_path: Path
    ) -> None:
        with pytest.raises(SandboxError, match=r"no-such-program.*No such file"):
            async with sandbox.open(_job(("no-such-program",), tmp_path)) as process:
                await process.wait()

    async def test_writing_to_an_ended_process_is_ignored(
        self, sandbox: Sandbox, tmp_path: Path
    ) -> None:
        for pty in (False, True):
            async with sandbox.open(_job(("true",), tmp_path), pty=pty) as process:
                assert (await process.wait()).exit_code == 0
                await process.write_stdin(b"x\n")
                process.close_stdin()


async def _read_line(process: Process, count: int = 1) -> bytes:
    output = b""
    with anyio.fail_after(TEST_TIMEOUT):
        while output.count(b"\n") < count:
            data = await process.read()
            assert data, output
            output += data
    return output


@asynccontextmanager
async def _running(sandbox: Sandbox, job: ProcessSpec) -> AsyncGenerator[None]:
    """Run the job during the block and cancel it at the end."""
    async with anyio.create_task_group() as group:
        group.start_soon(sandbox.run, job)
        yield
        group.cancel_scope.cancel()


def _job(argv: tuple[str, ...], cwd: Path, **more: Any) -> ProcessSpec:
    defaults: dict[str, Any] = {
        "argv": argv,
        "cwd": str(cwd),
        "env": ENV,
        "timeout": TEST_TIMEOUT,
        "permissions": ProcessPermissions(writable=(str(cwd),)),
    }
    return ProcessSpec(**(defaults | more))


def _shell(command: str, cwd: Path, *args: str, **more: Any) -> ProcessSpec:
    return _job(("bash", "-c", command, "bash", *args), cwd, **more)
