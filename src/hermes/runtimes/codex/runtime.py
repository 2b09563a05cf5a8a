"""Codex as a runtime: its process, its threads, and one turn after the other."""

import logging

import anyio
from msgspec import Struct, structs

from hermes.kit.clock import Clock
from hermes.ports.approvals import Approvals
from hermes.ports.blobs import Blobs
from hermes.ports.runtime import EmitRuntimeEvent, RuntimeCompaction, RuntimeRequest, TurnEnd
from hermes.ports.store import Store
from hermes.runtimes.codex.compaction import ThreadCompaction, compaction_notice
from hermes.runtimes.codex.server import AppServer
from hermes.runtimes.codex.service import CodexService
from hermes.runtimes.codex.thread_store import ThreadStore
from hermes.runtimes.codex.threads import OpenThread, Threads, ThreadSettings
from hermes.runtimes.codex.turn import CodexTurn, CodexTurnDeps, WatchCommand
from hermes.schema.errors import ModelError, Unauthorized
from hermes.schema.events import Notice

log = logging.getLogger(__name__)


class CodexDeps(Struct, frozen=True, kw_only=True):
    """What of this house a turn needs that codex runs."""

    service: CodexService
    store: Store | None
    clock: Clock
    settings: ThreadSettings = ThreadSettings()
    blobs: Blobs | None = None
    counsel: Approvals | None = None
    look: WatchCommand | None = None


class CodexRuntime:
    """Implements `ports.runtime.Runtime`."""

    name = "Codex"

    def __init__(self, parts: CodexDeps) -> None:
        self.parts = parts
        patience = parts.service.patience
        self.last: CodexTurn | None = None
        """The turn that began last."""
        self._kept = ThreadStore(parts.store, parts.clock)
        self._threads = Threads(self._kept, parts.settings, patience)
        self._turn_deps = CodexTurnDeps(
            clock=parts.clock,
            keep=self._kept.put,
            patience=patience,
            model=parts.settings.model,
            effort=parts.settings.effort,
            blobs=parts.blobs,
            counsel=parts.counsel,
            look=parts.look,
        )

    async def open(self, runtime_request: RuntimeRequest) -> str:
        """The session's thread, ready for a turn."""
        async with self.parts.service.server() as server:
            thread = await self._threads.open(server, runtime_request)
            seen = runtime_request.messages[-1].id if runtime_request.messages else ""
            await self._kept.put(runtime_request.scope.session, thread.kept(seen, thread.filled))
            return thread.id

    async def compact(self, runtime_request: RuntimeRequest) -> RuntimeCompaction:
        """Have codex tell its thread in short. Raises `ModelError`."""
        async with self.parts.service.server() as server:
            thread = await self._threads.open(server, runtime_request)
            return (await self._compact(server, thread, runtime_request))[1]

    async def run(self, runtime_request: RuntimeRequest, tell: EmitRuntimeEvent) -> TurnEnd:
        async with self.parts.service.server() as server:
            thread = await self._threads.open(server, runtime_request)
            if 0 < self.parts.settings.compact_at <= thread.filled.share:
                thread = await self._make_room(server, thread, runtime_request, tell)
            turn = self.last = CodexTurn(self._turn_deps, server, thread, runtime_request, tell)
            return await self._run(turn, server)

    async def _run(self, turn: CodexTurn, server: AppServer) -> TurnEnd:
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
        self,
        server: AppServer,
        thread: OpenThread,
        runtime_request: RuntimeRequest,
        tell: EmitRuntimeEvent,
    ) -> OpenThread:
        """When it cannot be, the turn is tried all the same: codex has a limit of its own."""
        try:
            thread, done = await self._compact(server, thread, runtime_request)
        except ModelError as error:
            if server.dead:
                raise
            log.warning("thread %s was not shortened: %s", thread.id, error)
        else:
            await tell(Notice(compaction_notice(done)))
        return thread

    async def _compact(
        self, server: AppServer, thread: OpenThread, runtime_request: RuntimeRequest
    ) -> tuple[OpenThread, RuntimeCompaction]:
        compacting = ThreadCompaction(server, thread, self.parts.service.patience)
        try:
            done = await compacting.run()
        finally:
            if compacting.retire:
                server.retire()
        kept = thread.kept(thread.known, compacting.filled, compacting.turn)
        await self._kept.put(runtime_request.scope.session, kept)
        return structs.replace(thread, marks=kept.marks, filled=kept.filled), done

    async def close(self) -> None:
        """The process belongs to whoever opened the service."""
