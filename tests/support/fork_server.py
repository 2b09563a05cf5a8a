"""Fork gateway processes from a server that has already imported their code.

usage: python -m support.fork_server

The server reads lines from stdin: `live <spec.json>` starts a gateway, a number is a signal to send
to it. The output of the gateway is passed through, followed by `over <code>` when it ends (negative
for a signal). Only one gateway runs at a time. Modules imported by one gateway are imported in the
server before the next one is forked.
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

from support.gateway_process import GatewaySpec, run_and_report

START_COMMAND = "live "
EXIT_LINE = "over "
MODULES_FILE = "modules"
"""The file in which a gateway lists the modules it has imported."""


class ForkServer:
    def __init__(self) -> None:
        self._pid = 0
        self._watched: int | None = None
        self._unread = b""

    def serve(self) -> None:
        """Serve until stdin is closed."""
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
        data = os.read(0, 65_536)
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            self._obey(line.decode())
        return bool(data)

    def _obey(self, line: str) -> None:
        if line.startswith(START_COMMAND):
            self._begin(Path(line.removeprefix(START_COMMAND)))
        else:
            self._send(int(line))

    def _begin(self, path: Path) -> None:
        if self._watched is not None:
            raise RuntimeError("cannot start a gateway while another one is running")
        spec = msgspec.json.decode(path.read_bytes(), type=GatewaySpec)
        _import_modules(Path(spec.folder) / MODULES_FILE)
        if threading.active_count() != 1:
            raise RuntimeError("cannot fork a process that has threads")
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
        # A killed gateway may have left an incomplete line.
        os.write(1, f"\n{EXIT_LINE}{os.waitstatus_to_exitcode(status)}\n".encode())


def _import_modules(file: Path) -> None:
    names = file.read_text().split() if file.exists() else []
    for name in names:
        if name not in sys.modules:
            with suppress(ImportError):
                import_module(name)
    # Memory that the garbage collector does not touch is not copied in a child.
    gc.freeze()


def _run_child(spec: GatewaySpec) -> None:
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    code = 1
    try:
        code = run_and_report(spec, Path(spec.folder) / MODULES_FILE)
    except BaseException:  # noqa: BLE001 - nothing above reports it
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    ForkServer().serve()
