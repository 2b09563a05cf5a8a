"""Report startup progress to systemd (by socket) and to `gateway start` (by pipe)."""

import logging
import os
import socket
from collections.abc import Callable, Mapping

from hermes.kit.clock import Clock

log = logging.getLogger(__name__)


class Notifier:
    """Does nothing if there is no receiver; errors never affect the gateway."""

    def __init__(self, env: Mapping[str, str], ready_fd: int | None = None) -> None:
        self._address = _address(env.get("NOTIFY_SOCKET", ""))
        self._pipe = ready_fd
        if ready_fd is not None:
            # Child processes must not keep the pipe open after our end.
            os.set_inheritable(ready_fd, False)
            os.set_blocking(ready_fd, False)
        self.watchdog = _watchdog(env)
        """Interval in seconds in which systemd expects a sign of life; 0 if none."""

    @property
    def has_receiver(self) -> bool:
        return self._address is not None or self._pipe is not None

    def ready(self, status: str = "") -> None:
        """Report readiness and close the pipe."""
        self._send(*_status(status), "READY=1")
        self.close()

    def status(self, text: str) -> None:
        self._send(*_status(text))

    def waiting(self, seconds: float, reason: str) -> None:
        """Report that the start is delayed on purpose."""
        self._send(f"EXTEND_TIMEOUT_USEC={int((seconds + 30) * 1e6)}", *_status(reason))

    def stopping(self, status: str = "", seconds: float = 0.0) -> None:
        """Report that shutdown has begun and may take so many seconds."""
        extend = [f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}"] if seconds else []
        self._send("STOPPING=1", *extend, *_status(status))

    def close(self) -> None:
        """Close the pipe; without READY before, the receiver sees a failure."""
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None

    async def keep_alive(self, clock: Clock, healthy: Callable[[], bool] = lambda: True) -> None:
        """Signal at half the watchdog interval while healthy, until cancelled."""
        while self.watchdog:
            if healthy():
                self._send("WATCHDOG=1")
            await clock.sleep(self.watchdog / 2)

    def _send(self, *lines: str) -> None:
        if not lines:
            return
        data = "\n".join(lines).encode()
        if self._address is not None:
            self._send_to_systemd(self._address, data)
        if self._pipe is not None:
            try:
                os.write(self._pipe, data + b"\n")
            except OSError:
                # The receiver is gone or does not read.
                return

    def _send_to_systemd(self, address: str, data: bytes) -> None:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as to:
                to.setblocking(False)
                to.sendto(data, address)
        except OSError as error:
            log.info("cannot notify systemd of %r: %s", data, error)


def _address(value: str) -> str | None:
    if value.startswith("@"):
        return "\0" + value[1:]
    return value if value.startswith("/") else None


def _watchdog(env: Mapping[str, str]) -> float:
    interval, pid = env.get("WATCHDOG_USEC", ""), env.get("WATCHDOG_PID", "")
    if not interval.isdecimal() or (pid and pid != str(os.getpid())):
        return 0.0
    return int(interval) / 1e6


def _status(text: str) -> list[str]:
    return [f"STATUS={' '.join(text.split())}"] if text else []
