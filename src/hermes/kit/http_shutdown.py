"""The end of an HTTP server: every socket is let go before its loop may end."""

import asyncio
from collections.abc import Collection
from typing import Protocol

import anyio

LOOP_ROUNDS = 5
"""Of the loop: by then a connection that came in just now is known, and a closed one has let go."""


class Site(Protocol):
    async def stop(self) -> None: ...


class Runner(Protocol):
    @property
    def sites(self) -> Collection[Site]: ...

    async def cleanup(self) -> None: ...


async def shut_down_server(runner: Runner) -> None:
    """Take nobody in any more, then close who is there; also when all else is cancelled."""
    with anyio.CancelScope(shield=True):
        for site in list(runner.sites):
            await site.stop()
        await _rounds()
        await runner.cleanup()
        await _rounds()


async def _rounds() -> None:
    for _ in range(LOOP_ROUNDS):
        await asyncio.sleep(0)
