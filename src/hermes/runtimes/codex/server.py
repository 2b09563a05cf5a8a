"""One running app-server: requests with answers, notes and questions given to their threads."""

import logging
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager

import anyio
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from msgspec import Raw, Struct

from hermes.ports.sandbox import Process
from hermes.runtimes.codex import names
from hermes.runtimes.codex.errors import died, refused, silent
from hermes.runtimes.codex.spending import total_of
from hermes.runtimes.codex.wire import (
    Id,
    Incoming,
    Json,
    Lines,
    note,
    read,
    refusal,
    reply,
    request,
)

log = logging.getLogger(__name__)

WAITING = 10_000
"""Messages that may wait for a turn; then deltas are dropped, and nothing else."""
NOISE = 200
"""Lines that are no messages, of which the log is told."""


WRITING = 30.0
"""Seconds for one line to be taken."""


class _Window(Struct, rename="camel"):
    used_percent: float = 0.0
    window_duration_mins: int | None = None

    @property
    def words(self) -> str:
        hours, minutes = divmod(self.window_duration_mins or 0, 60)
        span = f"{hours // 24} d" if hours >= 48 else f"{hours} h" if hours else f"{minutes} min"
        return f"{self.used_percent:g} %" + (f" of {span}" if hours or minutes else "")


class Limits(Struct):
    """How much of what the account may use is used up."""

    primary: _Window | None = None
    secondary: _Window | None = None

    @property
    def used(self) -> float:
        windows = (self.primary, self.secondary)
        return max((one.used_percent for one in windows if one is not None), default=0.0)

    @property
    def words(self) -> str:
        """For people; empty when nothing was told of it."""
        windows = (self.primary, self.secondary)
        return ", ".join(one.words for one in windows if one is not None)


class _LimitsNote(Struct, rename="camel"):
    rate_limits: Limits = msgspec.field(default_factory=Limits)


def limits_of(params: Raw) -> Limits:
    try:
        return msgspec.json.decode(params, type=_LimitsNote).rate_limits
    except (msgspec.DecodeError, RecursionError):
        return Limits()


class _Call:
    def __init__(self) -> None:
        self.done = anyio.Event()
        self.answer: Incoming | None = None


class AppServer:
    """`serve` it for as long as it lives; `said` reads the end of its own log."""

    def __init__(self, process: Process, said: Callable[[], Awaitable[str]]) -> None:
        self._process = process
        self.said = said
        self._calls: dict[Id, _Call] = {}
        self._ears: dict[str, MemoryObjectSendStream[Incoming]] = {}
        self._number = 0
        self._writing = anyio.Lock()
        self._noise = 0
        self.dead = False
        self.retired = False
        self.threads: dict[str, tuple[str, str]] = {}
        """The threads that are open in this process, with the model and the provider of each."""
        self.spent: dict[str, int] = {}
        """Tokens that each of them took so far, as it was told last."""
        self.limits = Limits()
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
        lines = Lines()
        try:
            while data := await self._process.read():
                for line in lines.feed(data):
                    await self._take(line)
        finally:
            self._die()

    def _die(self) -> None:
        self.dead = True
        self.over.set()
        for call in self._calls.values():
            call.done.set()
        for ear in self._ears.values():
            ear.close()

    async def call(self, method: str, params: Json, seconds: float) -> Raw:
        """The result. Raises `ModelError`: refused, too slow, or nobody is there."""
        self._number += 1
        number, call = self._number, _Call()
        self._calls[number] = call
        try:
            with anyio.move_on_after(seconds) as limit:
                await self._write(request(number, method, params))
                if not self.dead:
                    await call.done.wait()
        finally:
            del self._calls[number]
        if limit.cancelled_caught:
            raise silent(method, seconds)
        if call.answer is None:
            raise died(await self.said())
        if call.answer.error is not None:
            raise refused(method, call.answer.error.message, await self.said())
        return call.answer.result

    async def initialized(self) -> None:
        await self._write(note(names.INITIALIZED))

    async def answer(self, number: Id, result: object) -> None:
        await self._write(reply(number, result))

    async def refuse(self, number: Id, why: str) -> None:
        await self._write(refusal(number, why))

    @contextmanager
    def listening(self, thread: str) -> Generator[MemoryObjectReceiveStream[Incoming]]:
        """What is said in a thread, for as long as somebody is in the block."""
        send, receive = anyio.create_memory_object_stream[Incoming](WAITING)
        self._ears[thread] = send
        if self.dead:
            send.close()
        try:
            yield receive
        finally:
            if self._ears.get(thread) is send:
                del self._ears[thread]
            send.close()
            receive.close()

    def is_heard(self, thread: str) -> bool:
        return thread in self._ears

    async def _write(self, line: bytes) -> None:
        async with self._writing:
            # Half a line would spoil the next one: who waits may go, the line goes to its end.
            with anyio.move_on_after(WRITING, shield=True) as limit:
                await self._process.feed(line)
            if limit.cancelled_caught:
                log.warning("codex does not read what it is told")
                self.retire()

    async def _take(self, line: bytes) -> None:
        message = read(line)
        if message is None:
            self._hear_noise(line)
        elif not message.method:
            if (call := self._calls.get(message.id or 0)) is not None:
                call.answer = message
                call.done.set()
        elif message.method == names.RATE_LIMITS:
            self.limits = limits_of(message.params)
        else:
            await self._give(message)

    def _hear_usage(self, message: Incoming) -> None:
        """A thread that was opened again says what it has taken."""
        if (total := total_of(message.params)) is not None:
            self.spent[message.thread] = total

    def _hear_noise(self, line: bytes) -> None:
        self._noise += 1
        if self._noise <= NOISE:
            log.info("codex wrote what is no message: %s", line[:200].decode("utf-8", "replace"))

    async def _give(self, message: Incoming) -> None:
        ear = self._ears.get(message.thread)
        if ear is None:
            if message.id is not None:
                await self.refuse(message.id, f"{message.method}: no turn of this thread runs")
            elif message.method == names.USAGE_UPDATED:
                self._hear_usage(message)
            return
        try:
            ear.send_nowait(message)
        except anyio.WouldBlock:
            if message.method in names.DELTAS:
                return
            try:
                await ear.send(message)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return
