"""Connect to a server through a sandboxed process's pipes or over HTTP, and log its stderr."""

import logging
import re
from codecs import getincrementaldecoder
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
)
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

from hermes.kit.terminal_text import escape_controls
from hermes.kit.text import one_line
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
from hermes.ports.sandbox import Process
from hermes.schema.errors import ToolError

log = logging.getLogger(__name__)

R = TypeVar("R", bound=AsyncIterable[SessionMessage | Exception])
S = TypeVar("S")
W = TypeVar("W")

MAX_SHOWN_ERROR = 300
MAX_LINE = 8_000
"""Characters; longer lines are split."""
SECRET_OVERLAP = 8_000
"""Characters of an unfinished line that are held back, so that no secret is split."""


class StderrLog:
    def __init__(
        self, redact: Callable[[str], str], keep: Callable[[str], Awaitable[None]]
    ) -> None:
        self.last_line = ""
        """The last line, for users."""
        self.disconnect_reason = ""
        """Why we disconnected, if we did."""
        self._redact = redact
        self._keep = keep
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self._partial = ""

    async def feed(self, data: bytes) -> None:
        lines, end, rest = (self._partial + self._decoder.decode(data)).rpartition("\n")
        self._partial = rest
        if len(rest) > MAX_LINE + SECRET_OVERLAP:
            # Redact before cutting.
            rest = self._redact(rest)
            lines, self._partial = f"{lines}{end}{rest[:-SECRET_OVERLAP]}", rest[-SECRET_OVERLAP:]
        await self._write(lines)

    async def end(self) -> None:
        """Flush the unfinished line."""
        rest, self._partial = self._partial + self._decoder.decode(b"", final=True), ""
        await self._write(rest)

    async def _write(self, text: str) -> None:
        lines = [line for line in self._redact(text).splitlines() if line.strip()]
        if lines:
            self.last_line = one_line(escape_controls(lines[-1]), MAX_SHOWN_ERROR)
            pieces = (
                line[start : start + MAX_LINE]
                for line in lines
                for start in range(0, len(line), MAX_LINE)
            )
            await self._keep("\n".join(pieces))


MAX_WAITING = 256
WRITE_TIMEOUT = 30.0
"""Seconds after which a server that does not read counts as lost."""
STDERR_GRACE = 1.0
"""Seconds to read its last error output."""
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
    """One line of output; `cut` means that only its beginning was kept."""

    data: bytes
    size: int
    cut: bool


async def read_lines(process: Process) -> AsyncIterator[OutputLine]:
    """Yield lines as they arrive; of one with too many values only the head is kept."""
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
    """Tracks requests to a server, to recognize unsolicited messages."""

    def __init__(self, stderr: StderrLog) -> None:
        self.stderr = stderr
        self._pending = set[types.RequestId]()
        self._unsolicited = UnsolicitedLimit()
        self._noise = 0

    def record_sent(self, message: types.JSONRPCMessage) -> None:
        if isinstance(message, types.JSONRPCRequest):
            self._pending.add(message.id)

    def receive(self, line: OutputLine) -> types.JSONRPCMessage | None:
        """Return the message, if it is one. Raises `LimitExceeded`."""
        message = _unread_response(line) if line.cut else self._read(line.data)
        answers = isinstance(message, types.JSONRPCResponse | types.JSONRPCError)
        if answers and message.id in self._pending:
            self._pending.discard(message.id)
        elif line.cut:
            raise LimitExceeded(MESSAGE_HAS_TOO_MANY_VALUES)
        else:
            self._unsolicited.count(line.size, anyio.current_time())
        return message and without_costly_parts(message)

    def _read(self, line: bytes) -> types.JSONRPCMessage | None:
        try:
            return types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValidationError:
            self._noise += 1
            if self._noise <= MAX_LOGGED_NOISE:
                log.info("an MCP server printed a line that is not a message: %r", line[:200])
            return None


def _unread_response(line: OutputLine) -> types.JSONRPCMessage | None:
    found = _RESPONSE_ID.match(line.data[:_HEAD_BYTES])
    return error_response(int(found[1]), RESPONSE_HAS_TOO_MANY_VALUES) if found else None


@asynccontextmanager
async def stdio_streams(
    process: Process, stderr: StderrLog, over: anyio.Event
) -> AsyncGenerator[Streams]:
    """Open the streams of a session; `over` is set when the process has exited."""
    inward, received = anyio.create_memory_object_stream[Incoming](MAX_WAITING)
    sent, outward = anyio.create_memory_object_stream[SessionMessage](MAX_WAITING)
    drained, tracker = anyio.Event(), RequestTracker(stderr)
    async with anyio.create_task_group() as group:
        group.start_soon(_read_stderr, process, stderr, drained)
        group.start_soon(_read_stdout, process, inward, tracker, drained, over)
        group.start_soon(_write_stdin, process, outward, tracker, over)
        try:
            yield received, sent
        finally:
            group.cancel_scope.cancel()
            for stream in (inward, received, sent, outward):
                stream.close()


async def _read_stderr(process: Process, stderr: StderrLog, drained: anyio.Event) -> None:
    try:
        while data := await process.read_stderr():
            await stderr.feed(data)
    finally:
        # The last line often has no newline; do not lose it.
        with anyio.move_on_after(STDERR_GRACE, shield=True):
            await stderr.end()
        drained.set()


async def _read_stdout(
    process: Process,
    inward: MemoryObjectSendStream[Incoming],
    tracker: RequestTracker,
    drained: anyio.Event,
    over: anyio.Event,
) -> None:
    """Read to the end; pending requests then fail."""
    try:
        async for line in read_lines(process):
            message = tracker.receive(line)
            if message is not None:
                await inward.send(SessionMessage(message))
        with anyio.move_on_after(STDERR_GRACE):
            await drained.wait()
    except LimitExceeded as error:
        log.warning("an MCP server is disconnected: %s", error)
        tracker.stderr.disconnect_reason = str(error)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass
    finally:
        over.set()
        inward.close()


async def _write_stdin(
    process: Process,
    outward: MemoryObjectReceiveStream[SessionMessage],
    tracker: RequestTracker,
    over: anyio.Event,
) -> None:
    async for message in outward:
        tracker.record_sent(message.message)
        line = message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        with anyio.move_on_after(WRITE_TIMEOUT) as limit:
            await process.write_stdin(line)
        if limit.cancelled_caught:
            log.warning("an MCP server does not read its input and is disconnected")
            over.set()
            return


@asynccontextmanager
async def stdio_transport(
    program: StdioEndpoint, launch: LaunchServer, stderr: StderrLog, over: anyio.Event
) -> AsyncGenerator[Streams]:
    async with launch(program) as process:
        if not process.pid:
            # It did not start; this raises the reason.
            await process.wait()
        async with stdio_streams(process, stderr, over) as streams:
            yield streams


def http_transport(site: HttpEndpoint, connect: float, stderr: StderrLog) -> Transport:
    """Connect without proxies and netrc of the environment, as for models."""
    # httpx logs every URL, which may contain a key.
    logging.getLogger("httpx2").setLevel(logging.WARNING)

    def client(
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            # The size of compressed data is unknown before it is decompressed.
            headers={**site.headers, **(headers or {}), "Accept-Encoding": "identity"},
            timeout=httpx2.Timeout(connect, read=None),
            transport=_LimitedTransport(stderr),
            trust_env=False,
            auth=auth,
        )

    if site.sse:
        return filtered_streams(
            sse_client(site.url, sse_read_timeout=SSE_READ_TIMEOUT, httpx_client_factory=client),
            stderr,
        )
    http = client()
    return _closing_client(
        http,
        filtered_streams(
            streamable_http_client(
                site.url, http_client=http, max_sse_event_size=MAX_MESSAGE_BYTES
            ),
            stderr,
        ),
    )


@asynccontextmanager
async def _closing_client(
    http: httpx2.AsyncClient, streams: AbstractAsyncContextManager[S]
) -> AsyncGenerator[S]:
    """Close the client as well; the SDK closes only its own."""
    async with http, streams as both:
        yield both


@asynccontextmanager
async def filtered_streams(
    streams: AbstractAsyncContextManager[tuple[R, W]], stderr: StderrLog
) -> AsyncGenerator[tuple[MemoryObjectReceiveStream[Incoming], W]]:
    """Filter messages before the SDK processes them."""
    inward, received = anyio.create_memory_object_stream[Incoming](0)
    async with streams as (source, sent), anyio.create_task_group() as group:
        group.start_soon(_filter_messages, source, inward, stderr)
        try:
            yield received, sent
        finally:
            group.cancel_scope.cancel()
            inward.close()
            received.close()


async def _filter_messages(
    source: AsyncIterable[Incoming],
    inward: MemoryObjectSendStream[Incoming],
    stderr: StderrLog,
) -> None:
    unasked = UnsolicitedLimit()
    try:
        async for item in source:
            if isinstance(item, SessionMessage):
                item.message = without_costly_parts(item.message)
                if not isinstance(item.message, types.JSONRPCResponse | types.JSONRPCError):
                    unasked.count(0, anyio.current_time())
            await inward.send(item)
    except LimitExceeded as error:
        log.warning("an MCP server is disconnected: %s", error)
        stderr.disconnect_reason = str(error)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass
    finally:
        inward.close()


class _LimitedTransport(httpx2.AsyncHTTPTransport):
    def __init__(self, stderr: StderrLog) -> None:
        super().__init__()
        self._stderr = stderr
        self._flow = UnsolicitedLimit(4 * MAX_MESSAGE_BYTES)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await super().handle_async_request(request)
        stream, kind = response.stream, response.headers.get("content-type", "")
        compression = response.headers.get("content-encoding", "identity")
        if compression != "identity":
            await response.aclose()
            raise ToolError(
                f"the server's answer is compressed ({compression}), which was not requested"
            )
        if isinstance(stream, httpx2.AsyncByteStream):
            flow = self._flow if "event-stream" in kind else None
            response.stream = LimitedStream(stream, self._stderr, flow)
        return response


class LimitedStream(httpx2.AsyncByteStream):
    """Limits the size of an answer, or of each event, which a blank line ends.

    `flow` counts the events of all streams of a server.
    """

    def __init__(
        self,
        stream: httpx2.AsyncByteStream,
        stderr: StderrLog,
        flow: UnsolicitedLimit | None = None,
    ) -> None:
        self._stream = stream
        self._stderr = stderr
        self._flow = flow

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._counted():
                yield chunk
        except LimitExceeded as error:
            self._stderr.disconnect_reason = str(error)
            raise

    async def _counted(self) -> AsyncIterator[bytes]:
        size, last = MessageSize(), b""
        async for chunk in self._stream:
            begins = 0
            if self._flow:
                self._flow.count(len(chunk), anyio.current_time())
                window = last + chunk
                ends = [window.rfind(line) + len(line) for line in _BLANK_LINES if line in window]
                begins = max(ends, default=0) - len(last)
                last = window[-3:]
            if begins > 0:
                _count_values(size, chunk[:begins])
                size = MessageSize()
            _count_values(size, chunk[max(begins, 0) :])
            if size.size > MAX_MESSAGE_BYTES:
                raise LimitExceeded(MESSAGE_TOO_LARGE)
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


def _count_values(size: MessageSize, data: bytes) -> None:
    first, *others = _LINE_END.split(data)
    size.add(first)
    for line in others:
        size.end_line()
        size.add(line)
    if size.has_too_many_values:
        raise LimitExceeded(RESPONSE_HAS_TOO_MANY_VALUES)
