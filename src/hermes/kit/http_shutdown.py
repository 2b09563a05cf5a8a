"""Shut down an HTTP server and close all its sockets before the loop ends."""

import asyncio
from collections.abc import Collection
from typing import Protocol

import anyio

LOOP_ROUNDS = 5
"""Loop iterations after which new connections are known and closed ones are released."""


class Site(Protocol):
    async def stop(self) -> None: ...


class Runner(Protocol):
    @property
    def sites(self) -> Collection[Site]: ...

    async def cleanup(self) -> None: ...


async def shut_down_server(runner: Runner) -> None:
    """Stop accepting, then close all connections, even while being cancelled."""
    with anyio.CancelScope(shield=True):
        for site in list(runner.sites):
            await site.stop()
        await _rounds()
        await runner.cleanup()
        await _rounds()


async def _rounds() -> None:
    for _ in range(LOOP_ROUNDS):
        await asyncio.sleep(0)
