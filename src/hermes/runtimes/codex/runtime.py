"""Codex as a runtime: its process, its threads, and one turn after the other."""

import anyio
from msgspec import Struct

from hermes.kit.clock import Clock
from hermes.ports.blobs import Blobs
from hermes.ports.counsel import Counsel
from hermes.ports.runtime import Ending, Errand, Tell
from hermes.ports.store import Store
from hermes.runtimes.codex.server import AppServer
from hermes.runtimes.codex.service import Service
from hermes.runtimes.codex.threads import Settings, Threads
from hermes.runtimes.codex.turn import CodexTurn, TurnParts
from hermes.schema.errors import Unauthorized


class CodexParts(Struct, frozen=True, kw_only=True):
    """What of this house a turn needs that codex runs."""

    service: Service
    store: Store | None
    clock: Clock
    settings: Settings = Settings()
    blobs: Blobs | None = None
    counsel: Counsel | None = None


class CodexRuntime:
    """Implements `ports.runtime.Runtime`."""

    name = "Codex"

    def __init__(self, parts: CodexParts) -> None:
        self.parts = parts
        patience = parts.service.patience
        self.last: CodexTurn | None = None
        """The turn that began last."""
        self._threads = Threads(parts.store, parts.clock, parts.settings, patience)
        self._turn_parts = TurnParts(
            clock=parts.clock,
            keep=self._threads.keep,
            patience=patience,
            model=parts.settings.model,
            effort=parts.settings.effort,
            blobs=parts.blobs,
            counsel=parts.counsel,
        )

    async def open(self, errand: Errand) -> str:
        """The session's thread, ready for a turn."""
        async with self.parts.service.server() as server:
            thread = await self._threads.open(server, errand)
            seen = errand.messages[-1].id if errand.messages else ""
            await self._threads.keep(errand.scope.session, thread.id, seen)
            return thread.id

    async def run(self, errand: Errand, tell: Tell) -> Ending:
        async with self.parts.service.server() as server:
            thread = await self._threads.open(server, errand)
            turn = self.last = CodexTurn(self._turn_parts, server, thread, errand, tell)
            return await self._run(turn, server)

    async def _run(self, turn: CodexTurn, server: AppServer) -> Ending:
        try:
            return await turn.run()
        except Unauthorized:
            # What it knows of the login is read when it starts.
            turn.retire = True
            raise
        finally:
            if turn.retire:
                server.retire()
            with anyio.CancelScope(shield=True):
                await turn.keep()

    async def close(self) -> None:
        """The process belongs to whoever opened the service."""
