"""The codex runtime: opens threads and runs turns and compactions in them."""

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
    """The dependencies of the codex runtime."""

    service: CodexService
    store: Store | None
    clock: Clock
    settings: ThreadSettings = ThreadSettings()
    blobs: Blobs | None = None
    approvals: Approvals | None = None
    watch_command: WatchCommand | None = None


class CodexRuntime:
    """Implements `ports.runtime.Runtime`."""

    name = "Codex"

    def __init__(self, deps: CodexDeps) -> None:
        self.deps = deps
        patience = deps.service.timeouts
        self.last_turn: CodexTurn | None = None
        """The most recent turn."""
        self._store = ThreadStore(deps.store, deps.clock)
        self._threads = Threads(self._store, deps.settings, patience)
        self._turn_deps = CodexTurnDeps(
            clock=deps.clock,
            save_thread=self._store.put,
            timeouts=patience,
            model=deps.settings.model,
            effort=deps.settings.effort,
            blobs=deps.blobs,
            approvals=deps.approvals,
            watch_command=deps.watch_command,
        )

    async def open(self, runtime_request: RuntimeRequest) -> str:
        """Open the session's thread and return its id."""
        async with self.deps.service.server() as server:
            thread = await self._threads.open(server, runtime_request)
            seen = runtime_request.messages[-1].id if runtime_request.messages else ""
            await self._store.put(
                runtime_request.scope.session, thread.to_stored(seen, thread.filled)
            )
            return thread.id

    async def compact(self, runtime_request: RuntimeRequest) -> RuntimeCompaction:
        """Compact the session's thread. Raises `ModelError`."""
        async with self.deps.service.server() as server:
            thread = await self._threads.open(server, runtime_request)
            return (await self._compact(server, thread, runtime_request))[1]

    async def run(self, runtime_request: RuntimeRequest, tell: EmitRuntimeEvent) -> TurnEnd:
        async with self.deps.service.server() as server:
            thread = await self._threads.open(server, runtime_request)
            if 0 < self.deps.settings.compact_at <= thread.filled.share:
                thread = await self._compact_before_turn(server, thread, runtime_request, tell)
            turn = self.last_turn = CodexTurn(
                self._turn_deps, server, thread, runtime_request, tell
            )
            return await self._run(turn, server)

    async def _run(self, turn: CodexTurn, server: AppServer) -> TurnEnd:
        try:
            return await turn.run()
        except Unauthorized:
            # It reads its login only when it starts.
            turn.retire = True
            raise
        finally:
            if turn.retire:
                server.retire()
            with anyio.CancelScope(shield=True):
                await turn.save()

    async def _compact_before_turn(
        self,
        server: AppServer,
        thread: OpenThread,
        runtime_request: RuntimeRequest,
        tell: EmitRuntimeEvent,
    ) -> OpenThread:
        """If compaction fails, try the turn anyway: codex compacts by itself at its own limit."""
        try:
            thread, done = await self._compact(server, thread, runtime_request)
        except ModelError as error:
            if server.dead:
                raise
            log.warning("thread %s was not compacted: %s", thread.id, error)
        else:
            await tell(Notice(compaction_notice(done)))
        return thread

    async def _compact(
        self, server: AppServer, thread: OpenThread, runtime_request: RuntimeRequest
    ) -> tuple[OpenThread, RuntimeCompaction]:
        compacting = ThreadCompaction(server, thread, self.deps.service.timeouts)
        try:
            done = await compacting.run()
        finally:
            if compacting.retire:
                server.retire()
        kept = thread.to_stored(thread.known, compacting.filled, compacting.turn)
        await self._store.put(runtime_request.scope.session, kept)
        return structs.replace(thread, marks=kept.marks, filled=kept.filled), done

    async def close(self) -> None:
        """Do nothing: the process belongs to the service."""
