"""Signals that end a run in order; a second one does not wait for that."""

import asyncio
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Heard:
    """Which signal came, if any; its exit code is the one shells use."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None

    @property
    def exit_code(self) -> int | None:
        return None if self.signal is None else 128 + self.signal


@contextmanager
def ended_by_signals(end: Callable[[], object]) -> Generator[Heard]:
    """Call `end` for the first signal. What was ignored before (as under nohup) stays ignored.

    The second signal does what it does to any program: all that matters is on disk by then.
    """
    loop = asyncio.get_running_loop()
    heard = Heard()
    watched = [one for one in _ENDING if signal.getsignal(one) is not signal.SIG_IGN]

    def hear(one: signal.Signals) -> None:
        heard.signal = one
        for each in watched:
            loop.remove_signal_handler(each)
            signal.signal(each, signal.SIG_DFL)
        end()

    for one in watched:
        loop.add_signal_handler(one, hear, one)
    try:
        yield heard
    finally:
        for one in watched:
            loop.remove_signal_handler(one)


class Terminated(BaseException):
    """Somebody wants this process to end; not an error, and not for those who catch errors."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.exit_code = 128 + number


@contextmanager
def raised_when_terminated() -> Generator[None]:
    """For code that waits in the main thread: SIGTERM and SIGHUP become `Terminated` there."""

    def leave(number: int, frame: object) -> None:
        raise Terminated(number)

    watched = [
        one
        for one in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(one) is not signal.SIG_IGN
    ]
    before = [(one, signal.signal(one, leave)) for one in watched]
    try:
        yield
    finally:
        for one, handler in before:
            signal.signal(one, handler)
