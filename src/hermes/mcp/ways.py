"""The ways to a server: the pipes of a process that the door has started, or HTTP."""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
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
from pydantic import ValidationError

from hermes.mcp.complaints import Complaints
from hermes.mcp.server import Program, Site
from hermes.ports.sandbox import Process
from hermes.schema.errors import ToolError

log = logging.getLogger(__name__)

S = TypeVar("S")

LARGEST = 16_000_000
"""Bytes of one message."""
WAITING = 256
WRITING = 30.0
"""Seconds after which a server that does not read counts as lost."""
LAST_WORDS = 1.0
"""Seconds for what it says on its way out, which tells why."""
NOISE = 5
_BLANK_LINES = (b"\n\n", b"\r\r", b"\r\n\r\n", b"\n\r\n")
QUIET = 3600.0

Launch = Callable[[Program], AbstractAsyncContextManager[Process]]
Incoming: TypeAlias = SessionMessage | Exception
Streams: TypeAlias = tuple[
    MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]
]


@asynccontextmanager
async def through_pipes(
    process: Process, complaints: Complaints, over: anyio.Event
) -> AsyncGenerator[Streams]:
    """Streams for a session; `over` is set when it is gone."""
    inward, heard = anyio.create_memory_object_stream[Incoming](WAITING)
    told, outward = anyio.create_memory_object_stream[SessionMessage](WAITING)
    drained = anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(_complain, process, complaints, drained)
        group.start_soon(_hear, process, inward, drained, over)
        group.start_soon(_tell, process, outward, over)
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
    drained: anyio.Event,
    over: anyio.Event,
) -> None:
    """To its end; whoever waits for an answer then hears that there will be none."""
    noise = 0
    try:
        async for line in _lines(process):
            try:
                message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValidationError:
                noise += 1
                if noise <= NOISE:
                    log.info("an MCP server wrote what is no message: %r", line[:200])
                continue
            await inward.send(SessionMessage(message))
        with anyio.move_on_after(LAST_WORDS):
            await drained.wait()
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass
    finally:
        over.set()
        inward.close()


async def _lines(process: Process) -> AsyncIterator[bytes]:
    rest = bytearray()
    while data := await process.read():
        rest += data
        if b"\n" in data:
            *lines, last = bytes(rest).split(b"\n")
            rest = bytearray(last)
            for line in lines:
                if line.strip():
                    yield line
        elif len(rest) > LARGEST:
            log.warning("an MCP server sent a message that is too long, and is let go")
            return


async def _tell(
    process: Process, outward: MemoryObjectReceiveStream[SessionMessage], over: anyio.Event
) -> None:
    async for one in outward:
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


def over_http(site: Site, connect: float) -> Transport:
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
            transport=_Bounded(),
            trust_env=False,
            auth=auth,
        )

    if site.events:
        return sse_client(site.url, sse_read_timeout=QUIET, httpx_client_factory=client)
    http = client()
    return _within(
        http, streamable_http_client(site.url, http_client=http, max_sse_event_size=LARGEST)
    )


@asynccontextmanager
async def _within(
    http: httpx2.AsyncClient, streams: AbstractAsyncContextManager[S]
) -> AsyncGenerator[S]:
    """The SDK closes only clients of its own."""
    async with http, streams as both:
        yield both


class _Bounded(httpx2.AsyncHTTPTransport):
    """No answer fills the memory, and no event."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await super().handle_async_request(request)
        stream, kind = response.stream, response.headers.get("content-type", "")
        packed = response.headers.get("content-encoding", "identity")
        if packed != "identity":
            await response.aclose()
            raise ToolError(f"the server's answer is packed ({packed}), which was not asked for")
        if isinstance(stream, httpx2.AsyncByteStream):
            response.stream = Counted(stream, events="event-stream" in kind)
        return response


class Counted(httpx2.AsyncByteStream):
    """Of `events` each one may be as long as another answer: a blank line ends one."""

    def __init__(self, stream: httpx2.AsyncByteStream, *, events: bool = False) -> None:
        self._stream = stream
        self._events = events

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size, last = 0, b""
        async for chunk in self._stream:
            size += len(chunk)
            if self._events:
                window = last + chunk
                ends = [window.rfind(one) + len(one) for one in _BLANK_LINES if one in window]
                if ends:
                    size = len(window) - max(ends)
                last = window[-3:]
            if size > LARGEST:
                raise ToolError("the server's answer is too long")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
