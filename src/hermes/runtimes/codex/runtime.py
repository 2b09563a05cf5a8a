"""The codex runtime: opens threads and runs turns and compactions in them."""

import logging

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream
from msgspec import structs

from hermes.ports.runtime import EmitRuntimeEvent, RuntimeCompaction, RuntimeRequest, TurnEnd
from hermes.runtimes.codex import protocol
from hermes.runtimes.codex.errors import process_ended, request_timed_out, turn_failed
from hermes.runtimes.codex.event_mapper import EventMapper
from hermes.runtimes.codex.protocol import Json, RpcMessage
from hermes.runtimes.codex.server import AppServer
from hermes.runtimes.codex.service import CodexTimeouts
from hermes.runtimes.codex.thread_store import ThreadStore
from hermes.runtimes.codex.threads import OpenThread, Threads
from hermes.runtimes.codex.turn import CodexDeps, CodexTurn
from hermes.schema.errors import ModelError, Unauthorized
from hermes.schema.events import Notice

log = logging.getLogger(__name__)


class CodexRuntime:
    """Implements `ports.runtime.Runtime`."""

    name = "Codex"

    def __init__(self, deps: CodexDeps) -> None:
        self.deps = deps
        self.last_turn: CodexTurn | None = None
        """The most recent turn."""
        self._store = ThreadStore(deps.store, deps.clock)
        self._threads = Threads(self._store, deps.settings, deps.service.timeouts)

    async def open(self, runtime_request: RuntimeRequest) -> str:
        """Open the session's thread and return its id."""
        async with self.deps.service.server() as server:
            thread = await self._threads.open(server, runtime_request)
            seen = runtime_request.messages[-1].id if runtime_request.messages else ""
            kept = thread.to_stored(seen, thread.filled)
            await self._store.put(runtime_request.scope.session, kept)
            return thread.id

    async def compact(self, runtime_request: RuntimeRequest) -> RuntimeCompaction:
        """Compact the session's thread. Raises `ModelError`."""
        async with self.deps.service.server() as server:
            thread = await self._threads.open(server, runtime_request)
            return (await self._compact(server, thread, runtime_request))[1]

    async def run(
        self,
        runtime_request: RuntimeRequest,
        emit: EmitRuntimeEvent,
        timeouts: CodexTimeouts | None = None,
    ) -> TurnEnd:
        """Run a turn, with `timeouts` instead of those of the service."""
        timeouts = timeouts or self.deps.service.timeouts
        async with self.deps.service.server() as server:
            thread = await self._threads.open(server, runtime_request)
            if 0 < self.deps.settings.compact_at <= thread.filled.share:
                thread = await self._compact_before_turn(server, thread, runtime_request, emit)
            turn = CodexTurn(
                self.deps, self._store, server, thread, runtime_request, emit, timeouts=timeouts
            )
            self.last_turn = turn
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
        emit: EmitRuntimeEvent,
    ) -> OpenThread:
        """If compaction fails, try the turn anyway: codex compacts by itself at its own limit."""
        try:
            thread, done = await self._compact(server, thread, runtime_request)
        except ModelError as error:
            if server.dead:
                raise
            log.warning("thread %s was not compacted: %s", thread.id, error)
        else:
            sizes = f"about {done.before:,} tokens became {done.after:,}"
            await emit(Notice(f"Codex compacted this conversation: {sizes}."))
        return thread

    async def _compact(
        self, server: AppServer, thread: OpenThread, runtime_request: RuntimeRequest
    ) -> tuple[OpenThread, RuntimeCompaction]:
        compaction = ThreadCompaction(server, thread, self.deps.service.timeouts)
        done = await compaction.run()
        mapper = compaction.mapper
        kept = thread.to_stored(thread.last_known, mapper.usage_meter.filled, mapper.turn)
        await self._store.put(runtime_request.scope.session, kept)
        return structs.replace(thread, marks=kept.marks, filled=kept.filled), done

    async def close(self) -> None:
        """Do nothing: the process belongs to the service."""


class ThreadCompaction:
    """Compacts a thread, in a turn that answers no requests."""

    def __init__(self, server: AppServer, thread: OpenThread, timeouts: CodexTimeouts) -> None:
        self._server = server
        self._thread = thread
        self._timeouts = timeouts
        self.mapper = EventMapper(thread.model, thread.provider)
        self.mapper.usage_meter.total = server.token_totals.get(thread.id)
        self._before = thread.filled.tokens

    async def run(self) -> RuntimeCompaction:
        """Raises `ModelError`; the thread is unchanged then."""
        mapper = self.mapper
        params: Json = {"threadId": self._thread.id}
        with self._server.subscribe(self._thread.id) as incoming:
            try:
                await self._server.call(protocol.THREAD_COMPACT, params, self._timeouts.turn)
                with anyio.move_on_after(self._timeouts.deadline):
                    await self._follow(incoming)
            finally:
                if mapper.end is None:
                    await self._cancel()
        if mapper.end is None:
            raise request_timed_out(protocol.THREAD_COMPACT, self._timeouts.deadline)
        if mapper.end.status != "completed":
            error = mapper.end.error or mapper.last_error
            raise turn_failed(error, await self._server.log_tail())
        if mapper.usage_meter.total is not None:
            self._server.token_totals[self._thread.id] = mapper.usage_meter.total
        return RuntimeCompaction(
            before=self._before,
            after=mapper.usage_meter.filled.tokens,
            usage=mapper.usage_meter.take(),
            model=self._thread.model,
            provider=self._thread.provider,
        )

    async def _follow(self, incoming: MemoryObjectReceiveStream[RpcMessage]) -> None:
        while self.mapper.end is None:
            try:
                message = await incoming.receive()
            except (anyio.EndOfStream, anyio.ClosedResourceError):
                self._server.retire()
                raise process_ended(await self._server.log_tail()) from None
            if message.id is not None:
                await self._server.reject(message.id, "the thread is being compacted")
                continue
            self.mapper.feed(message)
            if message.method == protocol.USAGE_UPDATED and not self._before:
                self._before = self.mapper.usage_meter.filled.tokens

    async def _cancel(self) -> None:
        """Interrupt the compaction, so that the next turn does not meet it half done."""
        if self._server.dead:
            return
        if not self.mapper.turn:
            self._server.retire()
            return
        params: Json = {"threadId": self._thread.id, "turnId": self.mapper.turn}
        with anyio.CancelScope(shield=True):
            try:
                await self._server.call(protocol.TURN_INTERRUPT, params, self._timeouts.interrupt)
            except ModelError as error:
                log.warning("codex did not stop compacting a thread: %s", error)
                self._server.retire()
