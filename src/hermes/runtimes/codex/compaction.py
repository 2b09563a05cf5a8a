"""Compact a codex thread, in a turn that answers no requests."""

import logging

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream

from hermes.ports.runtime import RuntimeCompaction
from hermes.runtimes.codex import protocol
from hermes.runtimes.codex.errors import CodexError, process_ended, request_timed_out, turn_failed
from hermes.runtimes.codex.event_mapper import EventMapper
from hermes.runtimes.codex.protocol import Json, RpcMessage
from hermes.runtimes.codex.server import AppServer
from hermes.runtimes.codex.service import CodexTimeouts
from hermes.runtimes.codex.thread_store import ContextFill
from hermes.runtimes.codex.threads import OpenThread
from hermes.schema.errors import ModelError

log = logging.getLogger(__name__)


class ThreadCompaction:
    """`turn` and `filled` describe the thread afterwards.

    `retire` means that the process should not be used again.
    """

    def __init__(self, server: AppServer, thread: OpenThread, timeouts: CodexTimeouts) -> None:
        self._server = server
        self._thread = thread
        self._timeouts = timeouts
        self._mapper = EventMapper(thread.model, thread.provider)
        self._mapper.usage_meter.total = server.token_totals.get(thread.id)
        self._before = thread.filled.tokens
        self.retire = False

    @property
    def turn(self) -> str:
        return self._mapper.turn

    @property
    def filled(self) -> ContextFill:
        return self._mapper.usage_meter.filled

    async def run(self) -> RuntimeCompaction:
        """Raises `ModelError`; the thread is unchanged then."""
        mapper = self._mapper
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
            raise turn_failed(
                mapper.end.error or mapper.last_error or CodexError(), await self._server.log_tail()
            )
        if mapper.usage_meter.total is not None:
            self._server.token_totals[self._thread.id] = mapper.usage_meter.total
        return RuntimeCompaction(
            before=self._before,
            after=self.filled.tokens,
            usage=mapper.usage_meter.take(),
            model=self._thread.model,
            provider=self._thread.provider,
        )

    async def _follow(self, incoming: MemoryObjectReceiveStream[RpcMessage]) -> None:
        while self._mapper.end is None:
            try:
                message = await incoming.receive()
            except (anyio.EndOfStream, anyio.ClosedResourceError):
                self.retire = True
                raise process_ended(await self._server.log_tail()) from None
            if message.id is not None:
                await self._server.refuse(message.id, "the thread is being compacted")
                continue
            self._mapper.feed(message)
            if message.method == protocol.USAGE_UPDATED and not self._before:
                self._before = self.filled.tokens

    async def _cancel(self) -> None:
        """Interrupt the compaction, so that the next turn does not meet it half done."""
        if self._server.dead:
            return
        if not self.turn:
            self.retire = True
            return
        params: Json = {"threadId": self._thread.id, "turnId": self.turn}
        with anyio.CancelScope(shield=True):
            try:
                await self._server.call(protocol.TURN_INTERRUPT, params, self._timeouts.interrupt)
            except ModelError as error:
                log.warning("codex did not stop compacting a thread: %s", error)
                self.retire = True


def compaction_notice(done: RuntimeCompaction) -> str:
    """Return a sentence for users."""
    return f"Codex compacted this conversation: about {done.before:,} tokens became {done.after:,}."
