"""A running app-server: sends requests, and routes its messages to their threads."""

import logging
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress

import anyio
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from msgspec import Raw, Struct

from hermes.kit.json_errors import JSON_ERRORS
from hermes.ports.sandbox import Process
from hermes.runtimes.codex import protocol
from hermes.runtimes.codex.errors import process_ended, request_rejected, request_timed_out
from hermes.runtimes.codex.notifications import thread_total
from hermes.runtimes.codex.protocol import (
    Json,
    LineSplitter,
    RpcId,
    RpcMessage,
    decode_message,
    encode_line,
)

log = logging.getLogger(__name__)

MAX_WAITING = 10_000
"""Messages that may wait for a turn; beyond that, deltas are dropped, but nothing else."""
MAX_LOGGED_NOISE = 200
"""Invalid lines to log."""
WRITE_TIMEOUT = 30.0
"""Seconds to write one line."""
_NOT_SUPPORTED = -32601


class _LimitWindow(Struct, rename="camel"):
    used_percent: float = 0.0
    window_duration_mins: int | None = None

    @property
    def description(self) -> str:
        hours, minutes = divmod(self.window_duration_mins or 0, 60)
        span = f"{hours // 24} d" if hours >= 48 else f"{hours} h" if hours else f"{minutes} min"
        return f"{self.used_percent:g} %" + (f" of {span}" if hours or minutes else "")


class AccountLimits(Struct):
    """How much of the account's limits is used."""

    primary: _LimitWindow | None = None
    secondary: _LimitWindow | None = None

    @property
    def used(self) -> float:
        windows = (self.primary, self.secondary)
        return max((window.used_percent for window in windows if window is not None), default=0.0)

    @property
    def description(self) -> str:
        """A description for users; empty if unknown."""
        windows = (self.primary, self.secondary)
        return ", ".join(window.description for window in windows if window is not None)


class _LimitsNotification(Struct, rename="camel"):
    rate_limits: AccountLimits = msgspec.field(default_factory=AccountLimits)


def read_limits(params: Raw) -> AccountLimits:
    try:
        return msgspec.json.decode(params, type=_LimitsNotification).rate_limits
    except JSON_ERRORS:
        return AccountLimits()


class _PendingCall:
    def __init__(self) -> None:
        self.done = anyio.Event()
        self.answer: RpcMessage | None = None


class AppServer:
    """Run `serve` for its whole lifetime; `log_tail` reads the end of its log."""

    def __init__(self, process: Process, log_tail: Callable[[], Awaitable[str]]) -> None:
        self._process = process
        self.log_tail = log_tail
        self._calls: dict[RpcId, _PendingCall] = {}
        self._listeners: dict[str, MemoryObjectSendStream[RpcMessage]] = {}
        self._number = 0
        self._writing = anyio.Lock()
        self._invalid_lines = 0
        self.dead = False
        self.retired = False
        self.threads: dict[str, tuple[str, str]] = {}
        """The open threads of this process, with model and provider."""
        self.token_totals: dict[str, int] = {}
        """The last reported token total of each thread."""
        self.limits = AccountLimits()
        """The last reported account limits."""
        self._users = 0
        self._last_used = anyio.current_time()
        self.ended = anyio.Event()
        """Set when it is dead, or retired and no longer in use."""

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def usable(self) -> bool:
        return not self.dead and not self.retired

    def retire(self) -> None:
        """Start nothing new with it, and end it once it is no longer in use."""
        self.retired = True
        if not self._users:
            self.ended.set()

    @property
    def idle(self) -> float:
        """Seconds since it was last in use."""
        return 0.0 if self._users else anyio.current_time() - self._last_used

    @contextmanager
    def in_use(self) -> Generator[None]:
        """Keep it running while the block is active."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            self._last_used = anyio.current_time()
            if self.retired and not self._users:
                self.ended.set()

    async def serve(self) -> None:
        """Read its output to the end, then fail all pending calls."""
        lines = LineSplitter()
        try:
            while data := await self._process.read():
                for line in lines.feed(data):
                    await self._take(line)
        finally:
            self.dead = True
            self.ended.set()
            for call in self._calls.values():
                call.done.set()
            for listener in self._listeners.values():
                listener.close()

    async def call(self, method: str, params: Json, seconds: float) -> Raw:
        """Return the result. Raises `ModelError` if rejected, too slow, or the process is dead."""
        self._number += 1
        number, call = self._number, _PendingCall()
        self._calls[number] = call
        try:
            with anyio.move_on_after(seconds) as limit:
                await self._write({"id": number, "method": method, "params": params})
                if not self.dead:
                    await call.done.wait()
        finally:
            del self._calls[number]
        if limit.cancelled_caught:
            raise request_timed_out(method, seconds)
        if call.answer is None:
            raise process_ended(await self.log_tail())
        if call.answer.error is not None:
            raise request_rejected(method, call.answer.error.message, await self.log_tail())
        return call.answer.result

    async def initialized(self) -> None:
        await self._write({"method": protocol.INITIALIZED})

    async def answer(self, number: RpcId, result: object) -> None:
        await self._write({"id": number, "result": result})

    async def reject(self, number: RpcId, reason: str) -> None:
        error = {"code": _NOT_SUPPORTED, "message": reason}
        await self._write({"id": number, "error": error})

    @contextmanager
    def subscribe(self, thread: str) -> Generator[MemoryObjectReceiveStream[RpcMessage]]:
        """Receive the messages of a thread while the block is active."""
        send, receive = anyio.create_memory_object_stream[RpcMessage](MAX_WAITING)
        self._listeners[thread] = send
        if self.dead:
            send.close()
        try:
            yield receive
        finally:
            if self._listeners.get(thread) is send:
                del self._listeners[thread]
            send.close()
            receive.close()

    def has_listener(self, thread: str) -> bool:
        return thread in self._listeners

    async def _write(self, message: Json) -> None:
        async with self._writing:
            # A partial line would corrupt the next one, so cancellation must not interrupt it.
            with anyio.move_on_after(WRITE_TIMEOUT, shield=True) as limit:
                await self._process.write_stdin(encode_line(message))
            if limit.cancelled_caught:
                log.warning("codex does not read its input")
                self.retire()

    async def _take(self, line: bytes) -> None:
        message = decode_message(line)
        if message is None:
            self._invalid_lines += 1
            if self._invalid_lines <= MAX_LOGGED_NOISE:
                log.info("invalid message from codex: %s", line[:200].decode("utf-8", "replace"))
        elif not message.method:
            if (call := self._calls.get(message.id or 0)) is not None:
                call.answer = message
                call.done.set()
        elif message.method == protocol.RATE_LIMITS:
            self.limits = read_limits(message.params)
        else:
            await self._dispatch(message)

    def _count_usage(self, message: RpcMessage) -> None:
        """A thread that was reopened reports its usage."""
        if (total := thread_total(message.params)) is not None:
            self.token_totals[message.thread] = total

    async def _dispatch(self, message: RpcMessage) -> None:
        listener = self._listeners.get(message.thread)
        if listener is None:
            if message.id is not None:
                reason = f"{message.method}: no turn is running in this thread"
                await self.reject(message.id, reason)
            elif message.method == protocol.USAGE_UPDATED:
                self._count_usage(message)
            return
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            try:
                listener.send_nowait(message)
            except anyio.WouldBlock:
                if message.method not in protocol.DELTAS:
                    await listener.send(message)
