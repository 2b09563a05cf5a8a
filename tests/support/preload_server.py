"""Run Python programs in forks of one process that has already imported their modules.

usage: python -P preload_server.py FOLDER LISTENER

The folder is that of the socket; `support.preloaded_python` is the client. A request is a line
of JSON with the command, the environment and the working directory, and the three standard streams
as file descriptors. The answer is the process id, and later the wait status, each of 8 bytes. A
client that disconnects before kills its program, and the end of stdin ends the server.

What a program imports at its beginning is imported here before the fork, and what it had imported
when it ended, before the next one.
"""

import ast
import atexit
import contextlib
import gc
import importlib
import io
import json
import os
import runpy
import select
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Never, TextIO

_MODULES = "modules-"
_NUMBER_SIZE = 8


class Job(NamedTuple):
    command: list[str]
    env: dict[str, str]
    cwd: str
    streams: list[int]
    report: Path
    """The file for the names of the modules it has imported."""


class PreloadServer:
    def __init__(self, folder: Path, listener: socket.socket) -> None:
        self._folder = folder
        self._listener = listener
        self._running: dict[int, tuple[int, socket.socket]] = {}
        """The process id and the connection of each running program by its pidfd."""
        self._unavailable: set[str] = set()
        self._count = 0

    def serve(self) -> Job | None:
        """Serve until the end of stdin; in a forked child, return its job."""
        while True:
            connections = {connection: pidfd for pidfd, (_, connection) in self._running.items()}
            ready, _, _ = select.select([0, self._listener, *self._running, *connections], [], [])
            for one in ready:
                if one == 0:
                    self._kill_all()
                    return None
                if one is self._listener:
                    if (job := self._accept()) is not None:
                        return job
                elif isinstance(one, int):
                    self._reap(one)
                elif connections[one] in self._running:
                    signal.pidfd_send_signal(connections[one], signal.SIGKILL)
                    self._reap(connections[one])

    def _accept(self) -> Job | None:
        connection, _ = self._listener.accept()
        data, streams, _, _ = socket.recv_fds(connection, 65_536, 3)
        while not data.endswith(b"\n"):
            piece = connection.recv(65_536)
            if not piece:
                # The client has gone.
                for fd in streams:
                    os.close(fd)
                connection.close()
                return None
            data += piece
        self._count += 1
        job = Job(*json.loads(data), streams, self._folder / f"{_MODULES}{self._count}")
        self._import_modules(job)
        if threading.active_count() != 1:
            raise RuntimeError("cannot fork a process that has threads")
        pid = os.fork()
        if pid == 0:
            self._close_in_child(connection)
            return job
        for fd in streams:
            os.close(fd)
        self._running[os.pidfd_open(pid)] = pid, connection
        with contextlib.suppress(OSError):
            # If the client has gone, its program is killed as soon as the connection is read.
            connection.sendall(pid.to_bytes(_NUMBER_SIZE, "big"))
        return None

    def _close_in_child(self, connection: socket.socket) -> None:
        self._listener.close()
        connection.close()
        for pidfd, (_, other) in self._running.items():
            os.close(pidfd)
            other.close()

    def _reap(self, pidfd: int) -> None:
        pid, connection = self._running.pop(pidfd)
        _, status = os.waitpid(pid, 0)
        os.close(pidfd)
        with contextlib.suppress(OSError):
            connection.sendall(status.to_bytes(_NUMBER_SIZE, "big"))
        connection.close()

    def _kill_all(self) -> None:
        for pidfd in [*self._running]:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            self._reap(pidfd)

    def _import_modules(self, job: Job) -> None:
        try:
            names = [*_imports(job.command)]
        except (OSError, SyntaxError, ValueError):
            # The program itself reports it.
            names = []
        for file in self._folder.glob(f"{_MODULES}*[0-9]"):
            names += file.read_text().split()
            file.unlink()
        new = [name for name in names if name not in sys.modules and name not in self._unavailable]
        for name in new:
            try:
                importlib.import_module(name)
            except (Exception, SystemExit):  # noqa: BLE001 - such as a plugin of a home
                self._unavailable.add(name)
        if new:
            # Memory that the garbage collector does not touch is not copied in a child.
            gc.collect()
            gc.freeze()


def _imports(command: list[str]) -> Iterator[str]:
    """Yield the modules that the program imports first; one that is killed reports none."""
    if command[0] == "-m":
        yield command[1]
        return
    code = command[1] if command[0] == "-c" else Path(command[0]).read_text()
    for statement in ast.parse(code).body:
        match statement:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(name), level=0):
                yield name


def run(job: Job) -> Never:
    """Become the program: `-m MODULE`, `-c CODE` or a script, with its arguments."""
    for number, fd in enumerate(job.streams):
        os.dup2(fd, number)
        os.close(fd)
    os.chdir(job.cwd)
    os.environ.clear()
    os.environ.update(job.env)
    time.tzset()
    sys.stdin = sys.__stdin__ = _text(0, "r")
    sys.stdout = sys.__stdout__ = _text(1, "w")
    sys.stderr = sys.__stderr__ = _text(2, "w")
    known = {*sys.modules}
    try:
        _run_program(job)
    except SystemExit as error:
        code = error.code
    else:
        code = 0
    new = [name for name in [*sys.modules] if name not in known]
    unfinished = job.report.with_suffix(".new")
    if new and job.report.parent.exists():
        unfinished.write_text("\n".join(new))
        unfinished.rename(job.report)
    if isinstance(code, str):
        sys.exit(code)
    # As at the end of an interpreter, except that no module is taken apart.
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit((code or 0) & 0xFF)


def _text(fd: int, mode: str) -> TextIO:
    """A standard stream as Python opens it in the locale C.UTF-8."""
    if fd == 2:
        raw = io.FileIO(fd, "w", closefd=False)
        return io.TextIOWrapper(raw, "utf-8", "backslashreplace", write_through=True)
    buffering = 1 if os.isatty(fd) else -1
    return open(
        fd, mode, encoding="utf-8", errors="surrogateescape", buffering=buffering, closefd=False
    )


def _run_program(job: Job) -> None:
    first, *rest = job.command
    match first:
        case "-m":
            sys.path.insert(0, job.cwd)
            sys.argv = [*rest]
            # It may be known as a module of another program.
            sys.modules.pop(rest[0], None)
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        case "-c":
            sys.path.insert(0, "")
            sys.argv = ["-c", *rest[1:]]
            exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102
        case _:
            sys.path.insert(0, str(Path(first).parent))
            sys.argv = [*job.command]
            runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    served = Path(sys.argv[1])
    accepted = PreloadServer(served, socket.socket(fileno=int(sys.argv[2]))).serve()
    if accepted is None:
        shutil.rmtree(served)
    else:
        run(accepted)
