"""One running app-server: requests with answers, notes and questions given to their threads."""

import logging
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager

import anyio
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from msgspec import Raw, Struct

from hermes.ports.sandbox import Process
from hermes.runtimes.codex import protocol
from hermes.runtimes.codex.errors import process_ended, request_refused, request_timed_out
from hermes.runtimes.codex.notifications import thread_total
from hermes.runtimes.codex.protocol import (
    Json,
    LineSplitter,
    RpcId,
    RpcMessage,
    decode_message,
    encode_error,
    encode_notification,
    encode_request,
    encode_result,
)

log = logging.getLogger(__name__)

MAX_WAITING = 10_000
"""Messages that may wait for a turn; then deltas are dropped, and nothing else."""
MAX_LOGGED_NOISE = 200
"""Lines that are no messages, of which the log is told."""


WRITE_TIMEOUT = 30.0
"""Seconds for one line to be taken."""


class _LimitWindow(Struct, rename="camel"):
    used_percent: float = 0.0
    window_duration_mins: int | None = None

    @property
    def words(self) -> str:
        hours, minutes = divmod(self.window_duration_mins or 0, 60)
        span = f"{hours // 24} d" if hours >= 48 else f"{hours} h" if hours else f"{minutes} min"
        return f"{self.used_percent:g} %" + (f" of {span}" if hours or minutes else "")


class AccountLimits(Struct):
    """How much of what the account may use is used up."""

    primary: _LimitWindow | None = None
    secondary: _LimitWindow | None = None

    @property
    def used(self) -> float:
        windows = (self.primary, self.secondary)
        return max((one.used_percent for one in windows if one is not None), default=0.0)

    @property
    def words(self) -> str:
        """For people; empty when nothing was told of it."""
        windows = (self.primary, self.secondary)
        return ", ".join(one.words for one in windows if one is not None)


class _LimitsNotification(Struct, rename="camel"):
    rate_limits: AccountLimits = msgspec.field(default_factory=AccountLimits)


def read_limits(params: Raw) -> AccountLimits:
    try:
        return msgspec.json.decode(params, type=_LimitsNotification).rate_limits
    except (msgspec.DecodeError, RecursionError):
        return AccountLimits()


class _PendingCall:
    def __init__(self) -> None:
        self.done = anyio.Event()
        self.answer: RpcMessage | None = None


class AppServer:
    """`serve` it for as long as it lives; `said` reads the end of its own log."""

    def __init__(self, process: Process, said: Callable[[], Awaitable[str]]) -> None:
        self._process = process
        self.said = said
        self._calls: dict[RpcId, _PendingCall] = {}
        self._listeners: dict[str, MemoryObjectSendStream[RpcMessage]] = {}
        self._number = 0
        self._writing = anyio.Lock()
        self._noise = 0
        self.dead = False
        self.retired = False
        self.threads: dict[str, tuple[str, str]] = {}
        """The threads that are open in this process, with the model and the provider of each."""
        self.spent: dict[str, int] = {}
        """Tokens that each of them took so far, as it was told last."""
        self.limits = AccountLimits()
        """What was told last of how much of the account is used up."""
        self._users = 0
        self._left = anyio.current_time()
        self.over = anyio.Event()
        """Set when it is dead, or retired and nobody uses it any more."""

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def usable(self) -> bool:
        return not self.dead and not self.retired

    def retire(self) -> None:
        """Nothing new is begun with it, and it is ended when nobody uses it any more."""
        self.retired = True
        if not self._users:
            self.over.set()

    @property
    def idle(self) -> float:
        """Seconds since somebody used it."""
        return 0.0 if self._users else anyio.current_time() - self._left

    @contextmanager
    def used(self) -> Generator[None]:
        """For as long as somebody is in the block it is not ended."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            self._left = anyio.current_time()
            if self.retired and not self._users:
                self.over.set()

    async def serve(self) -> None:
        """Read to the end; whoever waits then hears that there is nothing to wait for."""
        lines = LineSplitter()
        try:
            while data := await self._process.read():
                for line in lines.feed(data):
                    await self._take(line)
        finally:
            self._fail_pending()

    def _fail_pending(self) -> None:
        self.dead = True
        self.over.set()
        for call in self._calls.values():
            call.done.set()
        for ear in self._listeners.values():
            ear.close()

    async def call(self, method: str, params: Json, seconds: float) -> Raw:
        """The result. Raises `ModelError`: refused, too slow, or nobody is there."""
        self._number += 1
        number, call = self._number, _PendingCall()
        self._calls[number] = call
        try:
            with anyio.move_on_after(seconds) as limit:
                await self._write(encode_request(number, method, params))
                if not self.dead:
                    await call.done.wait()
        finally:
            del self._calls[number]
        if limit.cancelled_caught:
            raise request_timed_out(method, seconds)
        if call.answer is None:
            raise process_ended(await self.said())
        if call.answer.error is not None:
            raise request_refused(method, call.answer.error.message, await self.said())
        return call.answer.result

    async def initialized(self) -> None:
        await self._write(encode_notification(protocol.INITIALIZED))

    async def answer(self, number: RpcId, result: object) -> None:
        await self._write(encode_result(number, result))

    async def refuse(self, number: RpcId, why: str) -> None:
        await self._write(encode_error(number, why))

    @contextmanager
    def listening(self, thread: str) -> Generator[MemoryObjectReceiveStream[RpcMessage]]:
        """What is said in a thread, for as long as somebody is in the block."""
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

    async def _write(self, line: bytes) -> None:
        async with self._writing:
            # Half a line would spoil the next one: who waits may go, the line goes to its end.
            with anyio.move_on_after(WRITE_TIMEOUT, shield=True) as limit:
                await self._process.feed(line)
            if limit.cancelled_caught:
                log.warning("codex does not read what it is told")
                self.retire()

    async def _take(self, line: bytes) -> None:
        message = decode_message(line)
        if message is None:
            self._log_noise(line)
        elif not message.method:
            if (call := self._calls.get(message.id or 0)) is not None:
                call.answer = message
                call.done.set()
        elif message.method == protocol.RATE_LIMITS:
            self.limits = read_limits(message.params)
        else:
            await self._give(message)

    def _on_usage(self, message: RpcMessage) -> None:
        """A thread that was opened again says what it has taken."""
        if (total := thread_total(message.params)) is not None:
            self.spent[message.thread] = total

    def _log_noise(self, line: bytes) -> None:
        self._noise += 1
        if self._noise <= MAX_LOGGED_NOISE:
            log.info("codex wrote what is no message: %s", line[:200].decode("utf-8", "replace"))

    async def _give(self, message: RpcMessage) -> None:
        ear = self._listeners.get(message.thread)
        if ear is None:
            if message.id is not None:
                await self.refuse(message.id, f"{message.method}: no turn of this thread runs")
            elif message.method == protocol.USAGE_UPDATED:
                self._on_usage(message)
            return
        try:
            ear.send_nowait(message)
        except anyio.WouldBlock:
            if message.method in protocol.DELTAS:
                return
            try:
                await ear.send(message)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return
