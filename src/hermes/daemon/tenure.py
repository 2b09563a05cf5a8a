"""This process as the gateway of a home: from taking its lock to leaving everything in order."""

import logging
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from signal import SIGUSR1

import msgspec
from msgspec import structs

from hermes.config.home import Home
from hermes.config.sections.chats import Gateway
from hermes.daemon.control import Manner, end_gateway
from hermes.daemon.lock import Locks, take_locks, who_holds
from hermes.daemon.marks import STOP, planned_stop, say_farewell, take_farewell, withdraw_stop
from hermes.daemon.options import Ending, RunOptions, exit_code
from hermes.daemon.record import Record, own_record
from hermes.daemon.signals import held_back
from hermes.daemon.starts import Advice, Start, advise, note_start
from hermes.daemon.state import AT_WORK, Phase, Snapshot
from hermes.daemon.state_file import StateFile
from hermes.kit.clock import Clock
from hermes.kit.errors import ConfigError, HermesError
from hermes.kit.files import file_error, write_atomic

log = logging.getLogger(__name__)


class Tenure:
    """`before` is how the gateway before this one ended; None when there was none."""

    def __init__(self, home: Home, record: Record, clock: Clock, options: RunOptions) -> None:
        self.home = home
        self.record = record
        self.state = StateFile(home, record, clock)
        self._clock = clock
        self._options = options
        self._left: Ending | None = None
        self._followed = False
        self.before = take_farewell(home)
        withdraw_stop(home)

    def count_start(self, settings: Gateway) -> Advice:
        """Whether this start should wait, and whether interrupted turns should be parked."""
        start = Start(at=self._clock.now(), pid=self.record.pid, after=self.before)
        with _named_failure(self.home):
            starts = note_start(self.home, start)
        advice = advise(starts, settings)
        return structs.replace(advice, wait=0.0) if self._options.force else advice

    def ending_for(self, signal: int) -> Ending:
        """What a signal means: SIGUSR1 a restart, others an end, announced or out of the blue."""
        if signal == SIGUSR1:
            return Ending.RESTART
        stop = planned_stop(self.home, self.record)
        self._followed = stop is not None and stop.reason != STOP
        log.info("signal %d, %s", signal, f"planned: {stop.reason}" if stop else "not planned")
        return Ending.STOPPED if stop else Ending.SIGNAL

    def end(self, ending: Ending, signal: int = 0, reason: str = "") -> int:
        """The last word, once all work is done. Returns the exit code."""
        last = _last(self.state.snapshot, ending, reason or _reason(ending, signal))
        again = self._followed or ending is Ending.RESTART
        self.state.write(structs.replace(last, restart_requested=again))
        if ending not in {Ending.FAILED, Ending.CRASHED}:
            self._say_farewell(ending)
        self._left = ending
        return exit_code(ending, signal)

    def _say_farewell(self, ending: Ending) -> None:
        try:
            say_farewell(self.home, self.record, ending, self._clock.now())
        except OSError as error:
            # The end is in order all the same; the next start only takes it for a crash.
            log.warning("the end could not be noted: %s", error)

    def fail(self, error: BaseException) -> None:
        """Something was raised that nobody turned into an ending."""
        if self._left is None:
            reason = error.sentence if isinstance(error, HermesError) else repr(error)
            self.end(Ending.FAILED, reason=reason)


@contextmanager
def hold(
    home: Home, served: Sequence[Home], options: RunOptions, clock: Clock
) -> Generator[Tenure]:
    """Be the gateway of `home` and of all it serves, `home` among them or not.

    Raises `AlreadyRunning` when another gateway serves one of them, unless it is to be replaced.
    """
    record = own_record(home, clock.now())
    if options.replace:
        _replace(home, clock)
    homes = {one.path: one for one in (home, *served)}
    with noted_failure(home, clock):
        locks = take_locks(list(homes.values()), record)
    try:
        with held_back():
            with _named_failure(home):
                tenure = Tenure(home, record, clock, options)
                data = msgspec.json.encode(record) + b"\n"
                write_atomic(home.gateway_pid, data, mode=0o600)
                names = tuple(sorted(one.profile for one in homes.values()))
                tenure.state.write(Snapshot(served_profiles=names))
            yield from _spend(tenure)
    finally:
        _leave(home, locks)


def _spend(tenure: Tenure) -> Generator[Tenure]:
    try:
        yield tenure
    except BaseException as error:
        tenure.fail(error)
        raise


def _replace(home: Home, clock: Clock) -> None:
    running = who_holds(home)
    if running is None or running.serves_as_guest(home):
        return
    log.info("replacing the gateway with pid %d", running.pid)
    end_gateway(home, running, clock, Manner(reason="replaced"))


def _leave(home: Home, locks: Locks) -> None:
    with suppress(OSError):
        home.gateway_pid.unlink(missing_ok=True)
        withdraw_stop(home)
    locks.release()


@contextmanager
def noted_failure(home: Home, clock: Clock) -> Generator[None]:
    """Whoever asks why no gateway runs is told of this start, not of the end of the one before."""
    try:
        yield
    except ConfigError as error:
        if who_holds(home) is None:
            state = StateFile(home, own_record(home, clock.now()), clock)
            failed = Phase.STARTUP_FAILED
            state.write(Snapshot(gateway_state=failed, exit_reason=error.sentence))
        raise


@contextmanager
def _named_failure(home: Home) -> Generator[None]:
    try:
        yield
    except OSError as error:
        message = f"{error.filename or home.path} cannot be written: {error.strerror}"
        hint = "Make it yours, or use another: export HERMES_HOME=DIRECTORY"
        raise file_error(error, message, hint) from error


def _last(now: Snapshot, ending: Ending, reason: str) -> Snapshot:
    """A gateway that was not told to stop says that it runs, so that it is started again."""
    match ending:
        case Ending.STOPPED:
            phase = Phase.STOPPED
        case Ending.FAILED | Ending.CRASHED if now.gateway_state is Phase.STARTING:
            phase = Phase.STARTUP_FAILED
        case _:
            phase = now.gateway_state if now.gateway_state in AT_WORK else Phase.RUNNING
    return structs.replace(
        now,
        gateway_state=phase,
        exit_reason=reason,
        active_agents=0,
    )


def _reason(ending: Ending, signal: int) -> str:
    match ending:
        case Ending.STOPPED:
            return "stopped on request"
        case Ending.RESTART:
            return "restart was asked for"
        case Ending.SIGNAL:
            return f"ended by signal {signal}"
        case Ending.FAILED | Ending.CRASHED:
            return "failed"
