"""Handle signals during a turn: the first one stops it cleanly, the second one exits."""

import os
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager

from msgspec import Struct

from hermes.cli.boundary import INTERRUPTED

_END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
REMINDER_SECONDS = 0.5
"""Seconds after Ctrl+C before a reminder is shown."""
STOP_SECONDS = 5.0
"""Seconds that a turn gets to stop after SIGTERM or SIGHUP."""


class ReceivedSignal(Struct):
    """The received signal, if any; the exit code is 128 plus its number."""

    number: signal.Signals | None = None


class Terminated(BaseException):
    """SIGTERM or SIGHUP was received. A BaseException, so that error handlers let it pass."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.exit_code = 128 + number


@contextmanager
def end_on_signals(end: Callable[[], object]) -> Generator[ReceivedSignal]:
    """Call `end` on the first signal; the second one has its default effect.

    Signals that were ignored before (as under nohup) stay ignored.
    """
    received = ReceivedSignal()

    def on_signal(number: int, frame: object) -> None:
        received.number = signal.Signals(number)
        for other in _END_SIGNALS:
            if signal.getsignal(other) is not signal.SIG_IGN:
                signal.signal(other, signal.SIG_DFL)
        end()

    with _signal_handlers(on_signal, *_END_SIGNALS):
        yield received


@contextmanager
def stop_on_signals(stop: Callable[[], None], reminder: bytes) -> Generator[ReceivedSignal]:
    """At a terminal: the first Ctrl+C calls `stop`, the second one exits immediately.

    `reminder` is written if stopping takes a moment. SIGTERM and SIGHUP also call `stop` and
    raise `Terminated` when the work has ended or STOP_SECONDS have passed.
    """
    received = ReceivedSignal()

    def interrupt(number: int, frame: object) -> None:
        if received.number is not None:
            os.write(1, b"\n")
            os._exit(INTERRUPTED)
        received.number = signal.SIGINT
        stop()
        signal.setitimer(signal.ITIMER_REAL, REMINDER_SECONDS)

    def terminate(number: int, frame: object) -> None:
        received.number = signal.Signals(number)
        stop()
        signal.setitimer(signal.ITIMER_REAL, STOP_SECONDS)

    def remind(number: int, frame: object) -> None:
        if received.number is not signal.SIGINT:
            raise Terminated(received.number or number)
        # Not through the stream, which is not reentrant in a signal handler.
        os.write(1, reminder)

    with (
        _signal_handlers(interrupt, signal.SIGINT),
        _signal_handlers(terminate, signal.SIGTERM, signal.SIGHUP),
        _signal_handlers(remind, signal.SIGALRM),
    ):
        try:
            yield received
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    if received.number not in (None, signal.SIGINT):
        raise Terminated(received.number)


@contextmanager
def raise_on_terminate() -> Generator[None]:
    """Raise `Terminated` in the main thread on SIGTERM and SIGHUP."""

    def on_signal(number: int, frame: object) -> None:
        raise Terminated(number)

    with _signal_handlers(on_signal, signal.SIGTERM, signal.SIGHUP):
        yield


@contextmanager
def _signal_handlers(
    handler: Callable[[int, object], None], *numbers: signal.Signals
) -> Generator[None]:
    previous = [
        (number, signal.signal(number, handler))
        for number in numbers
        if signal.getsignal(number) is not signal.SIG_IGN
    ]
    try:
        yield
    finally:
        for number, previous_handler in previous:
            signal.signal(number, previous_handler)
