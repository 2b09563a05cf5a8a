"""Signals that end what is going on in order; a second one does not wait for that."""

import os
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager

from hermes.cli.boundary import INTERRUPTED

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
NOTICEABLE = 0.5
"""Seconds after which a person wonders whether Ctrl+C was heard."""
PATIENCE = 5.0
"""Seconds that a turn is given to end when the process is told to."""


class Heard:
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
def ended_by_signals(end: Callable[[], object]) -> Generator[Heard]:
    """Call `end` for the first signal. What was ignored before (as under nohup) stays ignored.

    The second signal does what it does to any program: all that matters is on disk by then.
    """
    heard = Heard()

    def hear(number: int, frame: object) -> None:
        heard.signal = signal.Signals(number)
        for each in _not_ignored(*_ENDING):
            signal.signal(each, signal.SIG_DFL)
        end()

    with _handled(hear, *_ENDING):
        yield heard


@contextmanager
def stopped_by_signals(stop: Callable[[], None], reminder: bytes) -> Generator[Heard]:
    """At a terminal: Ctrl+C calls `stop`, and the next one leaves without waiting any longer.

    The reminder of that is written when a moment has passed. Everything that matters is on
    disk, and child processes end with their owner. SIGTERM and SIGHUP call `stop`, too, and
    become `Terminated` once the end has come, or has not come for too long.
    """
    heard = Heard()

    def interrupt(number: int, frame: object) -> None:
        if heard.signal is not None:
            os.write(1, b"\n")
            os._exit(INTERRUPTED)
        heard.signal = signal.SIGINT
        stop()
        signal.setitimer(signal.ITIMER_REAL, NOTICEABLE)

    def terminate(number: int, frame: object) -> None:
        heard.signal = signal.Signals(number)
        stop()
        signal.setitimer(signal.ITIMER_REAL, PATIENCE)

    def remind(number: int, frame: object) -> None:
        if heard.signal is not signal.SIGINT:
            raise Terminated(heard.signal or number)
        # Not through the stream: it may be in the middle of a line just now.
        os.write(1, reminder)

    with (
        _handled(interrupt, signal.SIGINT),
        _handled(terminate, signal.SIGTERM, signal.SIGHUP),
        _handled(remind, signal.SIGALRM),
    ):
        try:
            yield heard
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    if heard.signal not in (None, signal.SIGINT):
        raise Terminated(heard.signal)


@contextmanager
def raised_when_terminated() -> Generator[None]:
    """For code that waits in the main thread: SIGTERM and SIGHUP become `Terminated` there."""

    def leave(number: int, frame: object) -> None:
        raise Terminated(number)

    with _handled(leave, signal.SIGTERM, signal.SIGHUP):
        yield


@contextmanager
def _handled(handler: Callable[[int, object], None], *numbers: signal.Signals) -> Generator[None]:
    before = [(one, signal.signal(one, handler)) for one in _not_ignored(*numbers)]
    try:
        yield
    finally:
        for one, handler_before in before:
            signal.signal(one, handler_before)


def _not_ignored(*numbers: signal.Signals) -> list[signal.Signals]:
    return [one for one in numbers if signal.getsignal(one) is not signal.SIG_IGN]
