"""Named places in the message path where a test can interrupt; otherwise they do nothing.

Only the testing package activates them; no setting or environment variable can.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager


class _Watcher:
    """Process-wide, because crash tests concern the whole process."""

    reached: Callable[[str], None] | None = None


def failpoint(name: str) -> None:
    """Mark a failpoint. The name is a literal, so that all can be found in the source."""
    if _Watcher.reached is not None:
        _Watcher.reached(name)


@contextmanager
def watch_failpoints(reached: Callable[[str], None]) -> Generator[None]:
    """Call `reached` for every failpoint passed on any thread while the block runs."""
    before, _Watcher.reached = _Watcher.reached, reached
    try:
        yield
    finally:
        _Watcher.reached = before
