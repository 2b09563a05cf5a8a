"""Run as the gateway process: signals, start and end of the process, and its state files."""

import logging
import signal
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from signal import SIGUSR1

import msgspec
from msgspec import structs

from hermes.app.service.control import StopOptions, stop_gateway
from hermes.app.service.lifecycle import (
    STOP_REASON,
    Ending,
    RunOptions,
    clear_planned_stop,
    exit_code,
    planned_stop,
    take_previous_ending,
    write_clean_shutdown,
)
from hermes.app.service.lock import (
    ProcessRecord,
    own_record,
    running_gateway,
    settings_digests,
    take_locks,
)
from hermes.app.service.restart_guard import StartAdvice, StartRecord, advise_start, record_start
from hermes.app.service.state_file import StateFile
from hermes.app.service.status import SERVING, Phase, Snapshot
from hermes.config.home import Home
from hermes.config.sections.messaging import Gateway
from hermes.kit.clock import Clock
from hermes.kit.errors import ConfigError, HermesError
from hermes.kit.files import file_error, write_atomic

END_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)

log = logging.getLogger(__name__)


@contextmanager
def signals_blocked() -> Generator[None]:
    """Block the signals until `unblock_signals`, so that an early one does not kill the process.

    Start no child processes meanwhile: they would inherit the blocked signals.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, END_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def unblock_signals() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, END_SIGNALS)


class GatewayProcess:
    """`previous_ending` is how the previous gateway ended; None if there was none."""

    def __init__(
        self, home: Home, record: ProcessRecord, clock: Clock, options: RunOptions
    ) -> None:
        self.home = home
        self.record = record
        self.state = StateFile(home, record, clock)
        self._clock = clock
        self.options = options
        self._ended: Ending | None = None
        self._restart_follows = False
        self.previous_ending = take_previous_ending(home)
        clear_planned_stop(home)

    def count_start(self, settings: Gateway) -> StartAdvice:
        """Return whether this start should wait and whether to park interrupted turns."""
        start = StartRecord(at=self._clock.now(), pid=self.record.pid, after=self.previous_ending)
        with _write_errors_named(self.home):
            starts = record_start(self.home, start)
        advice = advise_start(starts, settings)
        return structs.replace(advice, wait=0.0) if self.options.force else advice

    def ending_of_signal(self, signal: int) -> Ending:
        """Return what a signal means: SIGUSR1 restarts, others stop, announced or not."""
        if signal == SIGUSR1:
            return Ending.RESTART
        stop = planned_stop(self.home, self.record)
        self._restart_follows = stop is not None and stop.reason != STOP_REASON
        log.info("signal %d, %s", signal, f"planned: {stop.reason}" if stop else "not planned")
        return Ending.STOPPED if stop else Ending.SIGNAL

    def end(self, ending: Ending, signal: int = 0, reason: str = "") -> int:
        """Record the end once all work is done; return the exit code."""
        last = _final_snapshot(self.state.snapshot, ending, reason or _reason(ending, signal))
        restart = self._restart_follows or ending is Ending.RESTART
        self.state.write(structs.replace(last, restart_requested=restart))
        if ending not in {Ending.FAILED, Ending.CRASHED}:
            self._record_clean_shutdown(ending)
        self._ended = ending
        return exit_code(ending, signal)

    def _record_clean_shutdown(self, ending: Ending) -> None:
        try:
            write_clean_shutdown(self.home, self.record, ending, self._clock.now())
        except OSError as error:
            # Not fatal; the next start only takes it for a crash.
            log.warning("the clean shutdown could not be recorded: %s", error)

    def fail(self, error: BaseException) -> None:
        """Record an exception that was not turned into an ending."""
        if self._ended is None:
            reason = error.sentence if isinstance(error, HermesError) else repr(error)
            self.end(Ending.FAILED, reason=reason)


@contextmanager
def hold_gateway(
    home: Home, served: Sequence[Home], options: RunOptions, clock: Clock
) -> Generator[GatewayProcess]:
    """Become the gateway of `home` and all homes it serves.

    Raises `AlreadyRunning` if another gateway serves one of them, unless it is to be replaced.
    """
    homes = {one.path: one for one in (home, *served)}
    settings = {
        key: digest for one in homes.values() for key, digest in settings_digests(one).items()
    }
    record = structs.replace(own_record(home, clock.now()), settings=settings)
    if options.replace:
        _replace(home, clock)
    with recording_failure(home, clock):
        locks = take_locks(list(homes.values()), record)
    try:
        with signals_blocked():
            with _write_errors_named(home):
                gateway_process = GatewayProcess(home, record, clock, options)
                data = msgspec.json.encode(record) + b"\n"
                write_atomic(home.gateway_pid, data, mode=0o600)
                names = tuple(sorted(one.profile for one in homes.values()))
                gateway_process.state.write(Snapshot(served_profiles=names))
            try:
                yield gateway_process
            except BaseException as error:
                gateway_process.fail(error)
                raise
    finally:
        with suppress(OSError):
            home.gateway_pid.unlink(missing_ok=True)
            clear_planned_stop(home)
        locks.release()


def _replace(home: Home, clock: Clock) -> None:
    running = running_gateway(home)
    if running is None or running.serves_other_profile(home):
        return
    log.info("replacing the gateway with pid %d", running.pid)
    stop_gateway(home, running, clock, StopOptions(reason="replaced"))


@contextmanager
def recording_failure(home: Home, clock: Clock) -> Generator[None]:
    """Record a failed start, so that the status shows it and not the previous end."""
    try:
        yield
    except ConfigError as error:
        if running_gateway(home) is None:
            state = StateFile(home, own_record(home, clock.now()), clock)
            failed = Phase.STARTUP_FAILED
            state.write(Snapshot(gateway_state=failed, exit_reason=error.sentence))
        raise


@contextmanager
def _write_errors_named(home: Home) -> Generator[None]:
    try:
        yield
    except OSError as error:
        message = f"{error.filename or home.path} cannot be written: {error.strerror}."
        hint = "Fix its permissions, or use another home: export HERMES_HOME=DIRECTORY"
        raise file_error(error, message, hint) from error


def _final_snapshot(now: Snapshot, ending: Ending, reason: str) -> Snapshot:
    """Report "running" only if it is to be started again."""
    match ending:
        case Ending.STOPPED | Ending.SIGNAL:
            phase = Phase.STOPPED
        case Ending.FAILED | Ending.CRASHED if now.gateway_state is Phase.STARTING:
            phase = Phase.STARTUP_FAILED
        case _:
            phase = now.gateway_state if now.gateway_state in SERVING else Phase.RUNNING
    return structs.replace(now, gateway_state=phase, exit_reason=reason, active_agents=0)


def _reason(ending: Ending, signal: int) -> str:
    if ending is Ending.SIGNAL:
        return f"ended by signal {signal}"
    reasons = {Ending.STOPPED: "stopped on request", Ending.RESTART: "restart requested"}
    return reasons.get(ending, "failed")
