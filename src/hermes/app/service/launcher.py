"""Start a gateway in the background, log its output and wait until it is ready."""

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from msgspec import Struct

from hermes.config.home import Home, user_home
from hermes.kit.errors import ConfigError, HermesError
from hermes.kit.files import file_error

READY_TIMEOUT = 60.0
"""Seconds to wait for a start that reports nothing."""

_LOG_LIMIT = 5 * 1024 * 1024
_MAX_SHOWN = 2000


class LaunchFailed(HermesError):
    """The gateway exited before it was ready; carries its exit code."""

    code = "gateway_failed"

    def __init__(self, message: str, *, hint: str, ended_with: int) -> None:
        super().__init__(message, hint=hint)
        self.ended_with = ended_with


class LaunchNotReady(HermesError):
    code = "gateway_not_ready"


class Launched(Struct, frozen=True):
    pid: int
    status: str = ""


def gateway_command(home: Home, *more: str) -> list[str]:
    """Return the command line that runs the gateway of a home in the foreground.

    `-P` keeps files in the current folder from being imported as modules.
    """
    command = [sys.executable, "-P", "-m", "hermes", "--profile", home.profile, "gateway", "run"]
    return [*command, *more]


def launch(
    home: Home,
    env: Mapping[str, str],
    command: Sequence[str],
    on_status: Callable[[str], None],
    timeout: float = READY_TIMEOUT,
) -> Launched:
    """Return once it is ready, passing its status lines to `on_status`.

    Raises `LaunchFailed` if it exited, `LaunchNotReady` if it takes too long but still runs.
    """
    log = home.logs / "gateway.log"
    ours, theirs = os.pipe()
    with closing(_Pipe(ours, timeout)) as pipe:
        try:
            offset = _prepare_log(log)
            process = _start(home, env, [*command, "--ready-fd", str(theirs)], log, theirs)
        finally:
            os.close(theirs)
        status = ""
        for line in pipe.lines():
            if line == "READY=1":
                return Launched(_detach(process), status)
            if line.startswith("STATUS="):
                status = line.removeprefix("STATUS=")
                on_status(status)
            if line.startswith("EXTEND_TIMEOUT_USEC="):
                pipe.wait_longer(line.partition("=")[2])
        if pipe.silent:
            raise LaunchNotReady(
                f"The gateway (pid {_detach(process)}) is not ready after {pipe.waited:.0f} s.",
                hint=f"It keeps trying; see `hermes gateway status` and {log}",
            )
        raise _failure(process.wait(), log, offset)


class _Pipe:
    def __init__(self, handle: int, timeout: float) -> None:
        self._handle = handle
        self._started = time.monotonic()
        self._until = self._started + timeout
        self.silent = False

    def lines(self) -> Iterator[str]:
        """Yield lines until the other end is closed or the timeout passes."""
        rest = b""
        while True:
            ready, _, _ = select.select([self._handle], [], [], self.remaining)
            if not ready:
                self.silent = True
                return
            data = os.read(self._handle, 4096)
            if not data:
                return
            *whole, rest = (rest + data).split(b"\n")
            yield from (line.decode(errors="replace") for line in whole)

    def wait_longer(self, micros: str) -> None:
        if micros.isdecimal():
            self._until = max(self._until, time.monotonic() + int(micros) / 1e6)

    @property
    def remaining(self) -> float:
        """Seconds until the timeout."""
        return max(self._until - time.monotonic(), 0.0)

    @property
    def waited(self) -> float:
        return time.monotonic() - self._started

    def close(self) -> None:
        os.close(self._handle)


def _prepare_log(log: Path) -> int:
    """Prepare the log file and return the offset at which new output starts."""
    try:
        log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if log.exists() and log.stat().st_size > _LOG_LIMIT:
            log.replace(log.with_name("gateway.log.1"))
        return log.stat().st_size if log.exists() else 0
    except OSError as error:
        raise _log_error(log, error) from error


def _start(
    home: Home, env: Mapping[str, str], command: Sequence[str], log: Path, pipe: int
) -> "subprocess.Popen[bytes]":
    try:
        handle = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _log_error(log, error) from error
    variables = {**env, "HERMES_HOME": str(home.root)}
    for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "INVOCATION_ID"):
        variables.pop(name, None)
    folder = user_home(env)
    try:
        return subprocess.Popen(  # noqa: S603 - our own program
            command,
            cwd=folder if folder.is_dir() else home.root,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=handle,
            stderr=handle,
            pass_fds=(pipe,),
            start_new_session=True,
        )
    finally:
        os.close(handle)


def _detach(process: "subprocess.Popen[bytes]") -> int:
    """Mark the process as reaped, because it outlives us."""
    process.returncode = 0
    return process.pid


def _failure(code: int, log: Path, offset: int) -> LaunchFailed:
    with log.open("rb") as file:
        file.seek(max(offset, log.stat().st_size - _MAX_SHOWN))
        output = file.read(_MAX_SHOWN).decode(errors="replace").strip()
    ending = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return LaunchFailed(
        f"The gateway {ending} before it was ready" + (f":\n{output}" if output else "."),
        hint=f"Its full output is in {log}" if output else "Find out why: hermes gateway run",
        ended_with=128 - code if code < 0 else code,
    )


def _log_error(log: Path, error: OSError) -> ConfigError:
    message = f"{log} cannot be written: {error.strerror}."
    return file_error(error, message, "Make the log folder writable.")
