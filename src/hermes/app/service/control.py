"""Stop a gateway from outside: announce the stop, signal it and wait for its exit."""

import os
import select
import signal
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

from msgspec import Struct, structs

from hermes.app.service.lifecycle import STOP_REASON, announce_stop, clear_planned_stop
from hermes.app.service.lock import ProcessRecord, read_record
from hermes.app.service.status import Phase, read_state, write_state
from hermes.config.home import Home
from hermes.gateway.shutdown_budget import DRAIN_SECONDS, stop_timeout
from hermes.kit.clock import Clock
from hermes.kit.errors import HermesError
from hermes.kit.ids import pid_exists

STOP_TIMEOUT = stop_timeout(DRAIN_SECONDS)
"""Default seconds to wait when the gateway's settings are unknown."""

_KILL_TIMEOUT = 10.0
_POLL_INTERVAL = 0.05


class NotEnded(HermesError):
    code = "not_ended"


class ProcessHandle:
    """A handle that keeps referring to the same process, even if its pid is reused."""

    def __init__(self, pid: int, handle: int | None) -> None:
        self.pid = pid
        self._handle = handle

    def signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            if self._handle is None:
                os.kill(self.pid, number)
            else:
                signal.pidfd_send_signal(self._handle, number)

    def wait_ended(self, seconds: float) -> bool:
        """Wait up to `seconds` for its exit and return whether it has ended."""
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
def open_gateway_process(record: ProcessRecord) -> Generator[ProcessHandle | None]:
    """Open the recorded process; None if it has ended."""
    handle: int | None = None
    if hasattr(os, "pidfd_open"):
        try:
            handle = os.pidfd_open(record.pid)
        except OSError:
            yield None
            return
    try:
        # Check after opening, when the handle can no longer refer to another process.
        yield None if record.surely_dead else ProcessHandle(record.pid, handle)
    finally:
        if handle is not None:
            os.close(handle)


class StopOptions(Struct, frozen=True, kw_only=True):
    """Timeout in seconds, whether to kill directly, and a callback for the first Ctrl+C."""

    timeout: float = STOP_TIMEOUT
    force: bool = False
    reason: str = STOP_REASON
    on_interrupt: Callable[[], None] | None = None


def stop_gateway(
    home: Home, record: ProcessRecord, clock: Clock, options: StopOptions | None = None
) -> bool:
    """Stop it and return whether it had to be killed; raises `NotEnded` if it still runs.

    While waiting, the first Ctrl+C calls `on_interrupt` and the second one kills.
    """
    options = options or StopOptions()
    if not record.surely_alive:
        if record.surely_dead:
            return False
        raise NotEnded(
            f"The gateway with pid {record.pid} runs on another machine or in a container.",
            hint="Stop it there.",
        )
    with open_gateway_process(record) as process:
        if process is None:
            return False
        announce_stop(home, record, clock.now(), options.reason)
        if not options.force and _wait_for_exit(process, options):
            return False
        process.signal(signal.SIGKILL)
        if not process.wait_ended(_KILL_TIMEOUT):
            raise NotEnded(
                f"The gateway with pid {record.pid} was killed but is still there.",
                hint="It may be stuck waiting for a disk or device; "
                f"check: ps -o stat,wchan -p {record.pid}",
            )
    _clean_up(home, record, restarting=options.reason != STOP_REASON)
    return True


def _wait_for_exit(process: ProcessHandle, options: StopOptions) -> bool:
    """Return True when it ended, False if it should be killed.

    Once it has been signalled, Ctrl+C means that the user does not want to wait.
    """
    try:
        process.signal(signal.SIGTERM)
        ended = process.wait_ended(options.timeout)
    except KeyboardInterrupt:
        if options.on_interrupt is None:
            raise
        try:
            options.on_interrupt()
            ended = process.wait_ended(options.timeout)
        except KeyboardInterrupt:
            return False
    if not ended:
        raise NotEnded(
            f"The gateway with pid {process.pid} did not stop within {options.timeout:g} seconds.",
            hint="It is waiting for turns to finish; `hermes gateway stop --force` does not wait.",
        )
    return True


def _clean_up(home: Home, record: ProcessRecord, *, restarting: bool) -> None:
    """Write the final state of a killed process, unless another one has replaced it."""
    clear_planned_stop(home)
    state, pid_record = read_state(home.gateway_state), read_record(home.gateway_pid)
    if pid_record is not None and pid_record.pid == record.pid:
        home.gateway_pid.unlink(missing_ok=True)
    if state is not None and (state.pid, state.start_time) == (record.pid, record.start_time):
        killed = structs.replace(
            state,
            gateway_state=Phase.STOPPED,
            exit_reason="killed on request",
            restart_requested=restarting,
            active_agents=0,
        )
        write_state(home.gateway_state, killed)
