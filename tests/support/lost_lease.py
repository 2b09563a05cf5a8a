"""A runner that loses every session it holds to another process."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from hermes.app.build import App
from hermes.ports.ownership import WORKER_TTL
from hermes.session.lease import Lease
from hermes.session.runner import Runner

OTHER_HOLDER = "elsewhere/boot/7/1"


class LeaseLosingRunner:
    """Loses all its sessions, or only the given one."""

    def __init__(self, app: App, only: str = "") -> None:
        self._leases = app.store.leases
        self._runner: Runner = app.runner
        self._only = only

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    @asynccontextmanager
    async def holding(self, session: str) -> AsyncGenerator[Lease]:
        async with self._runner.holding(session) as lease:
            if self._only not in {"", session}:
                yield lease
                return
            await self._leases.release(session, lease.fence.generation)
            generation = await self._leases.hold(session, OTHER_HOLDER, WORKER_TTL)
            try:
                yield lease
            finally:
                await self._leases.release(session, generation)
