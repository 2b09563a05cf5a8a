"""Signals that end what is going on in order; a second one does not wait for that."""

import os
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager

from hermes.cli.boundary import INTERRUPTED

_END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
REMINDER_SECONDS = 0.5
"""Seconds after which a person wonders whether Ctrl+C was heard."""
STOP_SECONDS = 5.0
"""Seconds that a turn is given to end when the process is told to."""


class ReceivedSignal:
    """Which signal came, if any; its exit code is the one shells use."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None

    @property
    def exit_code(self) -> int | None:
        return None if self.signal is None else 128 + self.signal


class Terminated(BaseException):
    """Somebody wants this process to end; not an error, and not for those who catch errors."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.exit_code = 128 + number


@contextmanager
def end_on_signals(end: Callable[[], object]) -> Generator[ReceivedSignal]:
    """Call `end` for the first signal. What was ignored before (as under nohup) stays ignored.

    The second signal does what it does to any program: all that matters is on disk by then.
    """
    heard = ReceivedSignal()

    def hear(number: int, frame: object) -> None:
        heard.signal = signal.Signals(number)
        for each in _not_ignored(*_END_SIGNALS):
            signal.signal(each, signal.SIG_DFL)
        end()

    with _signal_handlers(hear, *_END_SIGNALS):
        yield heard


@contextmanager
def stop_on_signals(stop: Callable[[], None], reminder: bytes) -> Generator[ReceivedSignal]:
    """At a terminal: Ctrl+C calls `stop`, and the next one leaves without waiting any longer.

    The reminder of that is written when a moment has passed. Everything that matters is on
    disk, and child processes end with their owner. SIGTERM and SIGHUP call `stop`, too, and
    become `Terminated` once the end has come, or has not come for too long.
    """
    heard = ReceivedSignal()

    def interrupt(number: int, frame: object) -> None:
        if heard.signal is not None:
            os.write(1, b"\n")
            os._exit(INTERRUPTED)
        heard.signal = signal.SIGINT
        stop()
        signal.setitimer(signal.ITIMER_REAL, REMINDER_SECONDS)

    def terminate(number: int, frame: object) -> None:
        heard.signal = signal.Signals(number)
        stop()
        signal.setitimer(signal.ITIMER_REAL, STOP_SECONDS)

    def remind(number: int, frame: object) -> None:
        if heard.signal is not signal.SIGINT:
            raise Terminated(heard.signal or number)
        # Not through the stream: it may be in the middle of a line just now.
        os.write(1, reminder)

    with (
        _signal_handlers(interrupt, signal.SIGINT),
        _signal_handlers(terminate, signal.SIGTERM, signal.SIGHUP),
        _signal_handlers(remind, signal.SIGALRM),
    ):
        try:
            yield heard
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    if heard.signal not in (None, signal.SIGINT):
        raise Terminated(heard.signal)


@contextmanager
def raise_on_terminate() -> Generator[None]:
    """For code that waits in the main thread: SIGTERM and SIGHUP become `Terminated` there."""

    def leave(number: int, frame: object) -> None:
        raise Terminated(number)

    with _signal_handlers(leave, signal.SIGTERM, signal.SIGHUP):
        yield


@contextmanager
def _signal_handlers(
    handler: Callable[[int, object], None], *numbers: signal.Signals
) -> Generator[None]:
    before = [(one, signal.signal(one, handler)) for one in _not_ignored(*numbers)]
    try:
        yield
    finally:
        for one, handler_before in before:
            signal.signal(one, handler_before)


def _not_ignored(*numbers: signal.Signals) -> list[signal.Signals]:
    return [one for one in numbers if signal.getsignal(one) is not signal.SIG_IGN]
