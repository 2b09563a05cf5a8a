"""Gateways that cost little to start: a process that has loaded their code forks them, one by one.

usage: python -m hermes.testing.fork_server

It reads lines: `live <spec.json>` begins a life, a number is the signal that it gets. What the life
prints comes out as it is, and `over <code>` after its end, below zero for a signal. Each life is a
process of its own with nothing open, as if it had been started from the shell; what one has loaded
the next need not load again.
"""

import gc
import os
import select
import signal
import sys
import threading
import traceback
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import msgspec

from hermes.testing.gateway_process import GatewaySpec, run_and_report

START_COMMAND = "live "
EXIT_LINE = "over "
MODULES_FILE = "modules"
"""The file in which a life writes down what it has loaded."""


class ForkServer:
    def __init__(self) -> None:
        self._pid = 0
        self._watched: int | None = None
        self._heard = b""

    def serve(self) -> None:
        """Until nobody speaks to it any more."""
        try:
            while self._listen():
                pass
        finally:
            self._send(signal.SIGKILL)

    def _listen(self) -> bool:
        watched = [] if self._watched is None else [self._watched]
        ready, _, _ = select.select([0, *watched], [], [])
        if self._watched in ready:
            self._reap()
        if 0 not in ready:
            return True
        piece = os.read(0, 65_536)
        *lines, self._heard = (self._heard + piece).split(b"\n")
        for line in lines:
            self._obey(line.decode())
        return bool(piece)

    def _obey(self, line: str) -> None:
        if line.startswith(START_COMMAND):
            self._begin(Path(line.removeprefix(START_COMMAND)))
        else:
            self._send(int(line))

    def _begin(self, path: Path) -> None:
        if self._watched is not None:
            raise RuntimeError("one life at a time: the last one is not over")
        spec = msgspec.json.decode(path.read_bytes(), type=GatewaySpec)
        _import_modules(Path(spec.folder) / MODULES_FILE)
        if threading.active_count() != 1:
            raise RuntimeError("whoever forks must have no threads")
        self._pid = os.fork()
        if self._pid == 0:
            _run_child(spec)
        self._watched = os.pidfd_open(self._pid)

    def _send(self, number: int) -> None:
        if self._watched is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._watched, number)

    def _reap(self) -> None:
        _, status = os.waitpid(self._pid, 0)
        if self._watched is not None:
            os.close(self._watched)
        self._watched = None
        # A life that was killed may have left half a line.
        os.write(1, f"\n{EXIT_LINE}{os.waitstatus_to_exitcode(status)}\n".encode())


def _import_modules(file: Path) -> None:
    names = file.read_text().split() if file.exists() else []
    for name in names:
        if name not in sys.modules:
            with suppress(ImportError):
                import_module(name)
    # What is never touched by collecting is never copied for a child.
    gc.freeze()


def _run_child(spec: GatewaySpec) -> None:
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    code = 1
    try:
        code = run_and_report(spec, Path(spec.folder) / MODULES_FILE)
    except BaseException:  # noqa: BLE001 - there is nobody behind us who would tell of it
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    ForkServer().serve()
