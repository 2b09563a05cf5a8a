"""End a gateway from outside: say that it is meant, ask it to end, and wait for its death."""

import os
import select
import signal
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

import msgspec
from msgspec import Struct, structs

from hermes.app.service.lock import ProcessRecord, read_record
from hermes.app.service.shutdown_markers import STOP, announce_stop, clear_planned_stop
from hermes.app.service.status import Phase, read_state
from hermes.config.home import Home
from hermes.gateway.shutdown_budget import DRAIN_SECONDS, stop_timeout
from hermes.kit.clock import Clock
from hermes.kit.errors import HermesError
from hermes.kit.files import write_atomic
from hermes.kit.process_identity import pid_exists

STOP_TIMEOUT = stop_timeout(DRAIN_SECONDS)
"""Seconds that a gateway is waited for whose settings nobody has read."""

_KILL_TIMEOUT = 10.0
_POLL_INTERVAL = 0.05


class NotEnded(HermesError):
    code = "not_ended"


class ProcessHandle:
    """A process that is surely the one that was meant, even when its pid is given away later."""

    def __init__(self, pid: int, handle: int | None) -> None:
        self.pid = pid
        self._handle = handle

    def signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            if self._handle is None:
                os.kill(self.pid, number)
            else:
                signal.pidfd_send_signal(self._handle, number)

    def ended(self, seconds: float) -> bool:
        """Waits so long for its death."""
        if self._handle is not None:
            ready, _, _ = select.select([self._handle], [], [], seconds)
            return bool(ready)
        until = time.monotonic() + seconds
        while pid_exists(self.pid):
            if time.monotonic() >= until:
                return False
            time.sleep(_POLL_INTERVAL)
        return True


@contextmanager
def open_process(record: ProcessRecord) -> Generator[ProcessHandle | None]:
    """None when the process of the record is gone."""
    handle: int | None = None
    if hasattr(os, "pidfd_open"):
        try:
            handle = os.pidfd_open(record.pid)
        except OSError:
            yield None
            return
    try:
        # Only now: from here on the handle cannot come to mean another process.
        yield None if record.surely_dead else ProcessHandle(record.pid, handle)
    finally:
        if handle is not None:
            os.close(handle)


class StopOptions(Struct, frozen=True, kw_only=True):
    """How to end it: seconds to wait, whether to ask at all, and whom to tell of impatience."""

    patience: float = STOP_TIMEOUT
    force: bool = False
    reason: str = STOP
    impatient: Callable[[], None] | None = None


def stop_gateway(
    home: Home, record: ProcessRecord, clock: Clock, manner: StopOptions | None = None
) -> bool:
    """Returns whether it had to be killed. Raises `NotEnded` when it lives on.

    The first Ctrl+C during the wait is told to `impatient`, the second one kills.
    """
    manner = manner or StopOptions()
    if not record.surely_alive:
        if record.surely_dead:
            return False
        raise NotEnded(
            f"The gateway with pid {record.pid} runs on another machine or in a container",
            hint="Stop it there.",
        )
    with open_process(record) as process:
        if process is None:
            return False
        announce_stop(home, record, clock.now(), manner.reason)
        if not manner.force and _wait_for_exit(process, manner):
            return False
        process.signal(signal.SIGKILL)
        if not process.ended(_KILL_TIMEOUT):
            raise NotEnded(
                f"The gateway with pid {record.pid} was killed and is still there",
                hint="It waits for a disk or a device; look at it with: ps -o stat,wchan -p "
                f"{record.pid}",
            )
    _clean_up(home, record, followed=manner.reason != STOP)
    return True


def _wait_for_exit(process: ProcessHandle, manner: StopOptions) -> bool:
    """True when it ended; False when it is to be killed.

    From the moment in which it is told to end, Ctrl+C means impatience.
    """
    try:
        process.signal(signal.SIGTERM)
        over = process.ended(manner.patience)
    except KeyboardInterrupt:
        if manner.impatient is None:
            raise
        try:
            manner.impatient()
            over = process.ended(manner.patience)
        except KeyboardInterrupt:
            return False
    if not over:
        raise NotEnded(
            f"The gateway with pid {process.pid} has not ended within {manner.patience:g} seconds",
            hint="It still lets turns end; `hermes gateway stop --force` does not wait for them.",
        )
    return True


def _clean_up(home: Home, record: ProcessRecord, *, followed: bool) -> None:
    """Say what a killed process cannot say itself, unless another one has taken its place."""
    clear_planned_stop(home)
    state, noted = read_state(home.gateway_state), read_record(home.gateway_pid)
    if noted is not None and noted.pid == record.pid:
        home.gateway_pid.unlink(missing_ok=True)
    if state is not None and (state.pid, state.start_time) == (record.pid, record.start_time):
        killed = structs.replace(
            state,
            gateway_state=Phase.STOPPED,
            exit_reason="killed on request",
            restart_requested=followed,
            active_agents=0,
        )
        data = msgspec.json.format(msgspec.json.encode(killed), indent=2) + b"\n"
        write_atomic(home.gateway_state, data, mode=0o600)
