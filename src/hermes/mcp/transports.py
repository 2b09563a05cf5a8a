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

from hermes.mcp.limits import (
    MAX_MESSAGE_BYTES,
    MESSAGE_HAS_TOO_MANY_VALUES,
    MESSAGE_TOO_LARGE,
    RESPONSE_HAS_TOO_MANY_VALUES,
    LimitExceeded,
    MessageSize,
    UnsolicitedLimit,
    error_response,
    without_costly_parts,
)
from hermes.mcp.server_config import HttpEndpoint, StdioEndpoint
from hermes.mcp.stderr import StderrLog
from hermes.ports.sandbox import Process
from hermes.schema.errors import ToolError

log = logging.getLogger(__name__)

R = TypeVar("R", bound=AsyncIterable[SessionMessage | Exception])
S = TypeVar("S")
W = TypeVar("W")

MAX_WAITING = 256
WRITE_TIMEOUT = 30.0
"""Seconds after which a server that does not read counts as lost."""
STDERR_GRACE = 1.0
"""Seconds for what it says on its way out, which tells why."""
MAX_LOGGED_NOISE = 5
_HEAD_BYTES = 200
_RESPONSE_ID = re.compile(
    rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*([0-9]{1,15})\s*,'
)
_BLANK_LINES = (b"\n\n", b"\r\r", b"\r\n\r\n", b"\n\r\n")
SSE_READ_TIMEOUT = 3600.0
_LINE_END = re.compile(rb"[\r\n]")

LaunchServer = Callable[[StdioEndpoint], AbstractAsyncContextManager[Process]]
Incoming: TypeAlias = SessionMessage | Exception
Streams: TypeAlias = tuple[
    MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]
]


class OutputLine(Struct, frozen=True):
    """`cut` of one that is not read: only its beginning."""

    data: bytes
    size: int
    cut: bool


async def read_lines(process: Process) -> AsyncIterator[OutputLine]:
    """Counted while they come; of one with too many values the rest passes by unkept."""
    kept, weight = bytearray(), MessageSize()
    while data := await process.read():
        *ends, last = data.split(b"\n")
        for piece in ends:
            kept += piece
            weight.add(piece)
            if kept.strip():
                yield OutputLine(bytes(kept), weight.size, weight.has_too_many_values)
            kept, weight = bytearray(), MessageSize()
        kept += last
        weight.add(last)
        if weight.has_too_many_values:
            del kept[_HEAD_BYTES:]
        if weight.size > MAX_MESSAGE_BYTES:
            raise LimitExceeded(MESSAGE_TOO_LARGE)


class RequestTracker:
    """What was asked of a server, so that it is known what was not."""

    def __init__(self, complaints: StderrLog) -> None:
        self.complaints = complaints
        self._asked = set[types.RequestId]()
        self._unasked = UnsolicitedLimit()
        self._noise = 0

    def told(self, message: types.JSONRPCMessage) -> None:
        if isinstance(message, types.JSONRPCRequest):
            self._asked.add(message.id)

    def heard(self, line: OutputLine) -> types.JSONRPCMessage | None:
        """The message, if it is one. Raises `TooMuch`."""
        message = _unread_response(line) if line.cut else self._read(line.data)
        answers = isinstance(message, types.JSONRPCResponse | types.JSONRPCError)
        if answers and message.id in self._asked:
            self._asked.discard(message.id)
        elif line.cut:
            raise LimitExceeded(MESSAGE_HAS_TOO_MANY_VALUES)
        else:
            self._unasked.hear(line.size, anyio.current_time())
        return message and without_costly_parts(message)

    def _read(self, line: bytes) -> types.JSONRPCMessage | None:
        try:
            return types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValidationError:
            self._noise += 1
            if self._noise <= MAX_LOGGED_NOISE:
                log.info("an MCP server wrote what is no message: %r", line[:200])
            return None


def _unread_response(line: OutputLine) -> types.JSONRPCMessage | None:
    found = _RESPONSE_ID.match(line.data[:_HEAD_BYTES])
    return error_response(int(found[1]), RESPONSE_HAS_TOO_MANY_VALUES) if found else None


@asynccontextmanager
async def stdio_streams(
    process: Process, complaints: StderrLog, over: anyio.Event
) -> AsyncGenerator[Streams]:
    """Streams for a session; `over` is set when it is gone."""
    inward, heard = anyio.create_memory_object_stream[Incoming](MAX_WAITING)
    told, outward = anyio.create_memory_object_stream[SessionMessage](MAX_WAITING)
    drained, talk = anyio.Event(), RequestTracker(complaints)
    async with anyio.create_task_group() as group:
        group.start_soon(_read_stderr, process, complaints, drained)
        group.start_soon(_read_stdout, process, inward, talk, drained, over)
        group.start_soon(_write_stdin, process, outward, talk, over)
        try:
            yield heard, told
        finally:
            group.cancel_scope.cancel()
            for stream in (inward, heard, told, outward):
                stream.close()


async def _read_stderr(process: Process, complaints: StderrLog, drained: anyio.Event) -> None:
    try:
        while data := await process.complaint():
            await complaints.hear(data)
    finally:
        # Often the last line has no end; it is not lost when the server is let go, either.
        with anyio.move_on_after(STDERR_GRACE, shield=True):
            await complaints.end()
        drained.set()


async def _read_stdout(
    process: Process,
    inward: MemoryObjectSendStream[Incoming],
    talk: RequestTracker,
    drained: anyio.Event,
    over: anyio.Event,
) -> None:
    """To its end; whoever waits for an answer then hears that there will be none."""
    try:
        async for line in read_lines(process):
            message = talk.heard(line)
            if message is not None:
                await inward.send(SessionMessage(message))
        with anyio.move_on_after(STDERR_GRACE):
            await drained.wait()
    except LimitExceeded as much:
        log.warning("an MCP server is let go: %s", much)
        talk.complaints.fault = str(much)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass
    finally:
        over.set()
        inward.close()


async def _write_stdin(
    process: Process,
    outward: MemoryObjectReceiveStream[SessionMessage],
    talk: RequestTracker,
    over: anyio.Event,
) -> None:
    async for one in outward:
        talk.told(one.message)
        line = one.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        with anyio.move_on_after(WRITE_TIMEOUT) as limit:
            await process.feed(line)
        if limit.cancelled_caught:
            log.warning("an MCP server does not read what it is told, and is let go")
            over.set()
            return


@asynccontextmanager
async def stdio_transport(
    program: StdioEndpoint, launch: LaunchServer, complaints: StderrLog, over: anyio.Event
) -> AsyncGenerator[Streams]:
    async with launch(program) as process:
        if not process.pid:
            # It never began; this raises why.
            await process.wait()
        async with stdio_streams(process, complaints, over) as streams:
            yield streams


def http_transport(site: HttpEndpoint, connect: float, complaints: StderrLog) -> Transport:
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
            transport=_LimitedTransport(complaints),
            trust_env=False,
            auth=auth,
        )

    if site.events:
        return filtered_streams(
            sse_client(site.url, sse_read_timeout=SSE_READ_TIMEOUT, httpx_client_factory=client),
            complaints,
        )
    http = client()
    return _closing_client(
        http,
        filtered_streams(
            streamable_http_client(
                site.url, http_client=http, max_sse_event_size=MAX_MESSAGE_BYTES
            ),
            complaints,
        ),
    )


@asynccontextmanager
async def _closing_client(
    http: httpx2.AsyncClient, streams: AbstractAsyncContextManager[S]
) -> AsyncGenerator[S]:
    """The SDK closes only clients of its own."""
    async with http, streams as both:
        yield both


@asynccontextmanager
async def filtered_streams(
    streams: AbstractAsyncContextManager[tuple[R, W]], complaints: StderrLog
) -> AsyncGenerator[tuple[MemoryObjectReceiveStream[Incoming], W]]:
    """What the SDK has read, before it looks closer."""
    inward, heard = anyio.create_memory_object_stream[Incoming](0)
    async with streams as (source, told), anyio.create_task_group() as group:
        group.start_soon(_filter_messages, source, inward, complaints)
        try:
            yield heard, told
        finally:
            group.cancel_scope.cancel()
            inward.close()
            heard.close()


async def _filter_messages(
    source: AsyncIterable[Incoming],
    inward: MemoryObjectSendStream[Incoming],
    complaints: StderrLog,
) -> None:
    unasked = UnsolicitedLimit()
    try:
        async for one in source:
            if isinstance(one, SessionMessage):
                one.message = without_costly_parts(one.message)
                if not isinstance(one.message, types.JSONRPCResponse | types.JSONRPCError):
                    unasked.hear(0, anyio.current_time())
            await inward.send(one)
    except LimitExceeded as much:
        log.warning("an MCP server is let go: %s", much)
        complaints.fault = str(much)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass
    finally:
        inward.close()


class _LimitedTransport(httpx2.AsyncHTTPTransport):
    """No answer fills the memory, and no event."""

    def __init__(self, complaints: StderrLog) -> None:
        super().__init__()
        self._complaints = complaints
        self._flow = UnsolicitedLimit(4 * MAX_MESSAGE_BYTES)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await super().handle_async_request(request)
        stream, kind = response.stream, response.headers.get("content-type", "")
        packed = response.headers.get("content-encoding", "identity")
        if packed != "identity":
            await response.aclose()
            raise ToolError(f"the server's answer is packed ({packed}), which was not asked for")
        if isinstance(stream, httpx2.AsyncByteStream):
            flow = self._flow if "event-stream" in kind else None
            response.stream = LimitedStream(stream, self._complaints, flow)
        return response


class LimitedStream(httpx2.AsyncByteStream):
    """Of events each one may be as long as another answer: a blank line ends one.

    `flow` counts those of all streams of a server.
    """

    def __init__(
        self,
        stream: httpx2.AsyncByteStream,
        complaints: StderrLog,
        flow: UnsolicitedLimit | None = None,
    ) -> None:
        self._stream = stream
        self._complaints = complaints
        self._flow = flow

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._counted():
                yield chunk
        except LimitExceeded as much:
            self._complaints.fault = str(much)
            raise

    async def _counted(self) -> AsyncIterator[bytes]:
        weight, last = MessageSize(), b""
        async for chunk in self._stream:
            begins = 0
            if self._flow:
                self._flow.hear(len(chunk), anyio.current_time())
                window = last + chunk
                ends = [window.rfind(one) + len(one) for one in _BLANK_LINES if one in window]
                begins = max(ends, default=0) - len(last)
                last = window[-3:]
            if begins > 0:
                _count_values(weight, chunk[:begins])
                weight = MessageSize()
            _count_values(weight, chunk[max(begins, 0) :])
            if weight.size > MAX_MESSAGE_BYTES:
                raise LimitExceeded(MESSAGE_TOO_LARGE)
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


def _count_values(weight: MessageSize, data: bytes) -> None:
    first, *others = _LINE_END.split(data)
    weight.add(first)
    for line in others:
        weight.end_line()
        weight.add(line)
    if weight.has_too_many_values:
        raise LimitExceeded(RESPONSE_HAS_TOO_MANY_VALUES)
