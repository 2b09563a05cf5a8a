"""The signals that end a gateway: one that comes early waits until somebody can hear it."""

import signal
from collections.abc import Generator
from contextlib import contextmanager

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)


@contextmanager
def held_back() -> Generator[None]:
    """Else one that comes before `let_through` would end the process on the spot.

    Processes that are started meanwhile would be deaf to them, too; there must be none.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def let_through() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
