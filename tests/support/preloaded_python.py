"""Start Python programs without the time that importing their modules takes.

Each test process has one server (`support.preload_server`), started with the first program.
"""

import json
import os
import select
import shlex
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import anyio

SERVER = Path(__file__).with_name("preload_server.py")
CLIENT = Path(__file__).with_name("preload_client.py")
NUMBER_SIZE = 8
"""Bytes of a process id or a wait status in an answer."""
_ENVIRONMENT = {
    "LANG": "C.UTF-8",
    "PATH": os.defpath,
    "PYTHONPATH": str(Path(__file__).parents[1]),
}
"""What Python reads when it starts is that of the server; programs can import `support`."""


def runs_preloaded(env: Mapping[str, str]) -> bool:
    """Whether the environment has nothing that Python reads when it starts."""
    other = any(name.startswith(("PYTHON", "LC_")) for name in env)
    return not other and env.get("LANG", "C.UTF-8") == "C.UTF-8"


class PreloadedPython(subprocess.Popen[bytes]):
    """`python ARGUMENTS` as a fork of the server. It must be waited for, as with a real one."""

    def __init__(
        self, args: Sequence[str | bytes], *, env: Mapping[str, str], **options: Any
    ) -> None:
        assert runs_preloaded(env), "start a new interpreter instead"
        self.connection = socket.socket(socket.AF_UNIX)
        """Readable when the program has ended, even if its status has been received."""
        try:
            super().__init__(args, env=env, **options)
        except BaseException:
            self.connection.close()
            raise

    def _execute_child(self, args: Sequence[str | bytes], *positional: Any) -> None:
        cwd, env = positional[4], positional[5]
        pipes = positional[9:15]
        words = [os.fsdecode(word) for word in args]
        data = json.dumps((words, dict(env), os.path.realpath(cwd or "."))).encode() + b"\n"
        self.connection.connect(_server().address)
        # Of each pair the program's end; a stream that is not redirected is ours.
        streams = [
            number if fd == -1 else fd for number, fd in enumerate((pipes[0], pipes[3], pipes[5]))
        ]
        sent = socket.send_fds(self.connection, [data], streams)
        if sent < len(data):
            # Not without data: the program may have ended already, and the connection with it.
            self.connection.sendall(data[sent:])
        self.pid = self._receive_number()
        self._child_created = True
        self._close_pipe_fds(*pipes)

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        timeout = 0 if wait_flags & os.WNOHANG else None
        ready, _, _ = select.select([self.connection], [], [], timeout)
        if not ready:
            return 0, 0
        return self.pid, self._receive_number()

    def _internal_poll(self, _deadstate: int | None = None) -> int | None:
        if self.returncode is None and self._child_created:
            pid, status = self._try_wait(os.WNOHANG)
            if pid:
                self._handle_exitstatus(status)
        return self.returncode

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self.connection.close()

    def _receive_number(self) -> int:
        data = self.connection.recv(NUMBER_SIZE, socket.MSG_WAITALL)
        assert data, "the preload server is gone"
        return int.from_bytes(data, "big")


class AsyncPreloadedPython:
    """A preloaded program for an event loop; it satisfies `ProcessLike`."""

    def __init__(self, process: PreloadedPython) -> None:
        self._process = process
        self._waiting = anyio.Lock()
        self.pid = process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.poll()

    @property
    def stdout(self) -> AsyncGenerator[bytes]:
        return self._read()

    async def _read(self) -> AsyncGenerator[bytes]:
        assert self._process.stdout is not None
        end = self._process.stdout.fileno()
        while data := await self._read_once(end):
            yield data

    async def _read_once(self, end: int) -> bytes:
        await anyio.wait_readable(end)
        return os.read(end, 65_536)

    async def wait(self) -> int:
        async with self._waiting:
            if self._process.poll() is None:
                await anyio.wait_readable(self._process.connection)
        return self._process.wait()

    def send_signal(self, signal: int) -> None:
        self._process.send_signal(signal)

    def kill(self) -> None:
        self._process.kill()


@asynccontextmanager
async def preloaded_program(
    args: Sequence[str], *, env: Mapping[str, str]
) -> AsyncGenerator[AsyncPreloadedPython]:
    """Run a program during the block, then kill it. Its stdout is a pipe."""
    with PreloadedPython(
        args, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    ) as process:
        try:
            yield AsyncPreloadedPython(process)
        finally:
            process.kill()


def run_python(
    args: Sequence[str | bytes],
    *,
    env: Mapping[str, str],
    cwd: Path | str | None = None,
    stdin: bytes | None = None,
    timeout: float,
) -> "subprocess.CompletedProcess[bytes]":
    """Run to the end with captured output; in a new interpreter if the environment asks for it."""
    preloaded = runs_preloaded(env)
    with (PreloadedPython if preloaded else subprocess.Popen)(
        args if preloaded else [sys.executable, *args],
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            out, err = process.communicate(stdin, timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(args, process.returncode, out, err)


def run_python_text(
    args: Sequence[str], *, env: Mapping[str, str], stdin: str = "", timeout: float
) -> "subprocess.CompletedProcess[str]":
    done = run_python(args, env=env, stdin=stdin.encode(), timeout=timeout)
    return subprocess.CompletedProcess(
        args, done.returncode, done.stdout.decode(), done.stderr.decode()
    )


def write_preloaded_command(file: Path, program: str) -> None:
    """Write an executable that runs the program in the server of this process.

    It passes no signals on, so it is for commands that run to their end.
    """
    command = [sys.executable, "-IS", str(CLIENT), _server().address, program]
    file.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    file.chmod(0o755)


class _Server(NamedTuple):
    folder: Path
    process: "subprocess.Popen[bytes]"
    """Ends when the pipe to its stdin is closed, so with this process."""

    @property
    def address(self) -> str:
        return str(self.folder / "socket")


@cache
def _server() -> _Server:
    """Start the server of this process; a fork of this process must not use it."""
    folder = Path(tempfile.mkdtemp(prefix="hermes-preload-"))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket"))
        listener.listen(64)
        command = [sys.executable, "-P", str(SERVER), str(folder), str(listener.fileno())]
        process = subprocess.Popen(
            command, env=_ENVIRONMENT, cwd="/", stdin=subprocess.PIPE,
            pass_fds=[listener.fileno()], start_new_session=True,
        )  # fmt: skip
    return _Server(folder, process)
