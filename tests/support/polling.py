"""Waiting for what threads, processes and other event loops do, which sets no event here."""

from collections.abc import Callable

import anyio

_INTERVAL = 0.001
TIMEOUT = 60.0


async def pause() -> None:
    """Pause between two looks, so that polling takes no processor time from what is awaited."""
    await anyio.sleep(_INTERVAL)


async def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds; fail after a while of real time."""
    with anyio.fail_after(TIMEOUT):
        while not condition():
            await pause()
