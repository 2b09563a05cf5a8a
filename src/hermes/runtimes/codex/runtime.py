"""Codex as a runtime: its process, its threads, and one turn after the other."""

import logging

import anyio
from msgspec import Struct, structs

from hermes.kit.clock import Clock
from hermes.ports.blobs import Blobs
from hermes.ports.counsel import Counsel
from hermes.ports.runtime import Ending, Errand, Shortened, Tell
from hermes.ports.store import Store
from hermes.runtimes.codex.compacting import Compacting, said
from hermes.runtimes.codex.kept import KeptThreads
from hermes.runtimes.codex.server import AppServer
from hermes.runtimes.codex.service import Service
from hermes.runtimes.codex.threads import Opened, Settings, Threads
from hermes.runtimes.codex.turn import CodexTurn, Look, TurnParts
from hermes.schema.errors import ModelError, Unauthorized
from hermes.schema.events import Notice

log = logging.getLogger(__name__)


class CodexParts(Struct, frozen=True, kw_only=True):
    """What of this house a turn needs that codex runs."""

    service: Service
    store: Store | None
    clock: Clock
    settings: Settings = Settings()
    blobs: Blobs | None = None
    counsel: Counsel | None = None
    look: Look | None = None


class CodexRuntime:
    """Implements `ports.runtime.Runtime`."""

    name = "Codex"

    def __init__(self, parts: CodexParts) -> None:
        self.parts = parts
        patience = parts.service.patience
        self.last: CodexTurn | None = None
        """The turn that began last."""
        self._kept = KeptThreads(parts.store, parts.clock)
        self._threads = Threads(self._kept, parts.settings, patience)
        self._turn_parts = TurnParts(
            clock=parts.clock,
            keep=self._kept.put,
            patience=patience,
            model=parts.settings.model,
            effort=parts.settings.effort,
            blobs=parts.blobs,
            counsel=parts.counsel,
            look=parts.look,
        )

    async def open(self, errand: Errand) -> str:
        """The session's thread, ready for a turn."""
        async with self.parts.service.server() as server:
            thread = await self._threads.open(server, errand)
            seen = errand.messages[-1].id if errand.messages else ""
            await self._kept.put(errand.scope.session, thread.kept(seen, thread.filled))
            return thread.id

    async def shorten(self, errand: Errand) -> Shortened:
        """Have codex tell its thread in short. Raises `ModelError`."""
        async with self.parts.service.server() as server:
            thread = await self._threads.open(server, errand)
            return (await self._compact(server, thread, errand))[1]

    async def run(self, errand: Errand, tell: Tell) -> Ending:
        async with self.parts.service.server() as server:
            thread = await self._threads.open(server, errand)
            if 0 < self.parts.settings.compact_at <= thread.filled.share:
                thread = await self._make_room(server, thread, errand, tell)
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

    async def _make_room(
        self, server: AppServer, thread: Opened, errand: Errand, tell: Tell
    ) -> Opened:
        """When it cannot be, the turn is tried all the same: codex has a limit of its own."""
        try:
            thread, done = await self._compact(server, thread, errand)
        except ModelError as error:
            if server.dead:
                raise
            log.warning("thread %s was not shortened: %s", thread.id, error)
        else:
            await tell(Notice(said(done)))
        return thread

    async def _compact(
        self, server: AppServer, thread: Opened, errand: Errand
    ) -> tuple[Opened, Shortened]:
        compacting = Compacting(server, thread, self.parts.service.patience)
        try:
            done = await compacting.run()
        finally:
            if compacting.retire:
                server.retire()
        kept = thread.kept(thread.known, compacting.filled, compacting.turn)
        await self._kept.put(errand.scope.session, kept)
        return structs.replace(thread, marks=kept.marks, filled=kept.filled), done

    async def close(self) -> None:
        """The process belongs to whoever opened the service."""
