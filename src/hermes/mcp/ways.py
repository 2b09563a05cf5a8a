"""The ways to a server: the pipes of a process that the door has started, or HTTP."""

import logging
import re
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeAlias, TypeVar

import anyio
import httpx2
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client import Transport
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from msgspec import Struct
from pydantic import ValidationError

from hermes.mcp.complaints import Complaints
from hermes.mcp.measure import (
    LARGEST,
    MANY_VALUES,
    TOO_LARGE,
    TOO_MANY,
    TooMuch,
    Unasked,
    Weight,
    refusal,
    spared,
)
from hermes.mcp.server import Program, Site
from hermes.ports.sandbox import Process
from hermes.schema.errors import ToolError

log = logging.getLogger(__name__)

R = TypeVar("R", bound=AsyncIterable[SessionMessage | Exception])
S = TypeVar("S")
W = TypeVar("W")

WAITING = 256
WRITING = 30.0
"""Seconds after which a server that does not read counts as lost."""
LAST_WORDS = 1.0
"""Seconds for what it says on its way out, which tells why."""
NOISE = 5
_HEAD = 200
_ANSWERS = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*([0-9]{1,15})\s*,')
_BLANK_LINES = (b"\n\n", b"\r\r", b"\r\n\r\n", b"\n\r\n")
QUIET = 3600.0
_LINE_END = re.compile(rb"[\r\n]")

Launch = Callable[[Program], AbstractAsyncContextManager[Process]]
Incoming: TypeAlias = SessionMessage | Exception
Streams: TypeAlias = tuple[
    MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]
]


class Line(Struct, frozen=True):
    """`cut` of one that is not read: only its beginning."""

    data: bytes
    size: int
    cut: bool


async def lines(process: Process) -> AsyncIterator[Line]:
    """Counted while they come; of one with too many values the rest passes by unkept."""
    kept, weight = bytearray(), Weight()
    while data := await process.read():
        *ends, last = data.split(b"\n")
        for piece in ends:
            kept += piece
            weight.add(piece)
            if kept.strip():
                yield Line(bytes(kept), weight.size, weight.too_much)
            kept, weight = bytearray(), Weight()
        kept += last
        weight.add(last)
        if weight.too_much:
            del kept[_HEAD:]
        if weight.size > LARGEST:
            raise TooMuch(TOO_LARGE)


class Talk:
    """What was asked of a server, so that it is known what was not."""

    def __init__(self, complaints: Complaints) -> None:
        self.complaints = complaints
        self._asked = set[types.RequestId]()
        self._unasked = Unasked()
        self._noise = 0

    def told(self, message: types.JSONRPCMessage) -> None:
        if isinstance(message, types.JSONRPCRequest):
            self._asked.add(message.id)

    def heard(self, line: Line) -> types.JSONRPCMessage | None:
        """The message, if it is one. Raises `TooMuch`."""
        message = _refused(line) if line.cut else self._read(line.data)
        answers = isinstance(message, types.JSONRPCResponse | types.JSONRPCError)
        if answers and message.id in self._asked:
            self._asked.discard(message.id)
        elif line.cut:
            raise TooMuch(MANY_VALUES)
        else:
            self._unasked.hear(line.size, anyio.current_time())
        return message and spared(message)

    def _read(self, line: bytes) -> types.JSONRPCMessage | None:
        try:
            return types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValidationError:
            self._noise += 1
            if self._noise <= NOISE:
                log.info("an MCP server wrote what is no message: %r", line[:200])
            return None


def _refused(line: Line) -> types.JSONRPCMessage | None:
    found = _ANSWERS.match(line.data[:_HEAD])
    return refusal(int(found[1]), TOO_MANY) if found else None


@asynccontextmanager
async def through_pipes(
    process: Process, complaints: Complaints, over: anyio.Event
) -> AsyncGenerator[Streams]:
    """Streams for a session; `over` is set when it is gone."""
    inward, heard = anyio.create_memory_object_stream[Incoming](WAITING)
    told, outward = anyio.create_memory_object_stream[SessionMessage](WAITING)
    drained, talk = anyio.Event(), Talk(complaints)
    async with anyio.create_task_group() as group:
        group.start_soon(_complain, process, complaints, drained)
        group.start_soon(_hear, process, inward, talk, drained, over)
        group.start_soon(_tell, process, outward, talk, over)
        try:
            yield heard, told
        finally:
            group.cancel_scope.cancel()
            for stream in (inward, heard, told, outward):
                stream.close()


async def _complain(process: Process, complaints: Complaints, drained: anyio.Event) -> None:
    try:
        while data := await process.complaint():
            await complaints.hear(data)
    finally:
        # Often the last line has no end; it is not lost when the server is let go, either.
        with anyio.move_on_after(LAST_WORDS, shield=True):
            await complaints.end()
        drained.set()


async def _hear(
    process: Process,
    inward: MemoryObjectSendStream[Incoming],
    talk: Talk,
    drained: anyio.Event,
    over: anyio.Event,
) -> None:
    """To its end; whoever waits for an answer then hears that there will be none."""
    try:
        async for line in lines(process):
            message = talk.heard(line)
            if message is not None:
                await inward.send(SessionMessage(message))
        with anyio.move_on_after(LAST_WORDS):
            await drained.wait()
    except TooMuch as much:
        log.warning("an MCP server is let go: %s", much)
        talk.complaints.fault = str(much)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass
    finally:
        over.set()
        inward.close()


async def _tell(
    process: Process,
    outward: MemoryObjectReceiveStream[SessionMessage],
    talk: Talk,
    over: anyio.Event,
) -> None:
    async for one in outward:
        talk.told(one.message)
        line = one.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        with anyio.move_on_after(WRITING) as limit:
            await process.feed(line)
        if limit.cancelled_caught:
            log.warning("an MCP server does not read what it is told, and is let go")
            over.set()
            return


@asynccontextmanager
async def started(
    program: Program, launch: Launch, complaints: Complaints, over: anyio.Event
) -> AsyncGenerator[Streams]:
    async with launch(program) as process:
        if not process.pid:
            # It never began; this raises why.
            await process.wait()
        async with through_pipes(process, complaints, over) as streams:
            yield streams


def over_http(site: Site, connect: float, complaints: Complaints) -> Transport:
    """The environment has no say in it, as for models: no proxy, no netrc."""
    # It would write down every address, and there may be a key in it.
    logging.getLogger("httpx2").setLevel(logging.WARNING)

    def client(
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            # What is packed could not be counted before it is unpacked.
            headers={**site.headers, **(headers or {}), "Accept-Encoding": "identity"},
            timeout=httpx2.Timeout(connect, read=None),
            transport=_Bounded(complaints),
            trust_env=False,
            auth=auth,
        )

    if site.events:
        return sieved(
            sse_client(site.url, sse_read_timeout=QUIET, httpx_client_factory=client), complaints
        )
    http = client()
    return _within(
        http,
        sieved(
            streamable_http_client(site.url, http_client=http, max_sse_event_size=LARGEST),
            complaints,
        ),
    )


@asynccontextmanager
async def _within(
    http: httpx2.AsyncClient, streams: AbstractAsyncContextManager[S]
) -> AsyncGenerator[S]:
    """The SDK closes only clients of its own."""
    async with http, streams as both:
        yield both


@asynccontextmanager
async def sieved(
    streams: AbstractAsyncContextManager[tuple[R, W]], complaints: Complaints
) -> AsyncGenerator[tuple[MemoryObjectReceiveStream[Incoming], W]]:
    """What the SDK has read, before it looks closer."""
    inward, heard = anyio.create_memory_object_stream[Incoming](0)
    async with streams as (source, told), anyio.create_task_group() as group:
        group.start_soon(_sieve, source, inward, complaints)
        try:
            yield heard, told
        finally:
            group.cancel_scope.cancel()
            inward.close()
            heard.close()


async def _sieve(
    source: AsyncIterable[Incoming],
    inward: MemoryObjectSendStream[Incoming],
    complaints: Complaints,
) -> None:
    unasked = Unasked()
    try:
        async for one in source:
            if isinstance(one, SessionMessage):
                one.message = spared(one.message)
                if not isinstance(one.message, types.JSONRPCResponse | types.JSONRPCError):
                    unasked.hear(0, anyio.current_time())
            await inward.send(one)
    except TooMuch as much:
        log.warning("an MCP server is let go: %s", much)
        complaints.fault = str(much)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass
    finally:
        inward.close()


class _Bounded(httpx2.AsyncHTTPTransport):
    """No answer fills the memory, and no event."""

    def __init__(self, complaints: Complaints) -> None:
        super().__init__()
        self._complaints = complaints
        self._flow = Unasked(4 * LARGEST)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await super().handle_async_request(request)
        stream, kind = response.stream, response.headers.get("content-type", "")
        packed = response.headers.get("content-encoding", "identity")
        if packed != "identity":
            await response.aclose()
            raise ToolError(f"the server's answer is packed ({packed}), which was not asked for")
        if isinstance(stream, httpx2.AsyncByteStream):
            flow = self._flow if "event-stream" in kind else None
            response.stream = Counted(stream, self._complaints, flow)
        return response


class Counted(httpx2.AsyncByteStream):
    """Of events each one may be as long as another answer: a blank line ends one.

    `flow` counts those of all streams of a server.
    """

    def __init__(
        self,
        stream: httpx2.AsyncByteStream,
        complaints: Complaints,
        flow: Unasked | None = None,
    ) -> None:
        self._stream = stream
        self._complaints = complaints
        self._flow = flow

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._counted():
                yield chunk
        except TooMuch as much:
            self._complaints.fault = str(much)
            raise

    async def _counted(self) -> AsyncIterator[bytes]:
        weight, last = Weight(), b""
        async for chunk in self._stream:
            begins = 0
            if self._flow:
                self._flow.hear(len(chunk), anyio.current_time())
                window = last + chunk
                ends = [window.rfind(one) + len(one) for one in _BLANK_LINES if one in window]
                begins = max(ends, default=0) - len(last)
                last = window[-3:]
            if begins > 0:
                _weigh(weight, chunk[:begins])
                weight = Weight()
            _weigh(weight, chunk[max(begins, 0) :])
            if weight.size > LARGEST:
                raise TooMuch(TOO_LARGE)
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


def _weigh(weight: Weight, data: bytes) -> None:
    first, *others = _LINE_END.split(data)
    weight.add(first)
    for line in others:
        weight.end_line()
        weight.add(line)
    if weight.too_much:
        raise TooMuch(TOO_MANY)
