"""The connection to one MCP server: opened on demand, reconnected when lost.

It lives in its own task. Callers wait for answers separately and may be cancelled at any time.
"""

import logging
import math
from collections.abc import Awaitable, Callable
from enum import StrEnum
from functools import partial
from typing import TypeVar, cast

import anyio
import httpx2
import mcp_types as types
from anyio.abc import TaskGroup
from anyio.to_thread import run_sync
from mcp.client import Client, ClientRequestContext, IncomingMessage, Transport
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPError
from msgspec import Struct

from hermes import __version__
from hermes.kit.retry import Backoff
from hermes.kit.terminal_text import escape_controls
from hermes.kit.text import one_line
from hermes.mcp.pending_calls import PendingCall, PendingCalls
from hermes.mcp.server_config import CLOSE_TIMEOUT, HttpEndpoint, ServerConfig, StdioEndpoint
from hermes.mcp.tool_list import ActingTools, ToolListReader, ToolSpecs
from hermes.mcp.transports import (
    MAX_SHOWN_ERROR,
    LaunchServer,
    StderrLog,
    http_transport,
    stdio_transport,
)
from hermes.ports.approvals import AskPerson
from hermes.schema.errors import HermesError, ToolError

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_PAGES = 20
MAX_ERROR = 20_000
"""Characters of an error that are processed; far fewer are shown."""
SESSION_TERMINATED = "Session terminated"
"""The SDK's message for a server that no longer knows our session."""


class ReconnectPolicy(Struct, frozen=True, kw_only=True):
    """When to reconnect, reject calls and refresh the tool list; times are in seconds.

    - `max_failures`: failures in a row after which calls are rejected for `cooldown`.
    - `backoff`: delay between attempts; after `attempts` they are `parked_delay` apart.
    - `stable_seconds`: uptime after which a lost connection does not count as a failure.
    - `refresh_interval`, `max_refresh_interval`: between refreshes of a changing tool list.
    """

    backoff: Backoff = Backoff(base=1.0, cap=60.0)
    max_failures: int = 3
    cooldown: float = 60.0
    stable_seconds: float = 60.0
    attempts: int = 5
    parked_delay: float = 300.0
    refresh_interval: float = 1.0
    max_refresh_interval: float = 60.0


class ConnectionState(StrEnum):
    RESTING = "resting"
    CONNECTING = "connecting"
    READY = "ready"
    BROKEN = "broken"
    CLOSED = "closed"


class McpConnectionDeps(Struct, frozen=True, kw_only=True):
    """Dependencies of a connection.

    `log_stderr` stores a server's stderr; `on_tools_changed` is called when its tools are known.
    """

    launch: LaunchServer
    log_stderr: Callable[[str, str], Awaitable[None]]
    redact: Callable[[str], str]
    on_tools_changed: Callable[["McpConnection"], None]
    acting_tools: ActingTools | None = None
    reconnect: ReconnectPolicy = ReconnectPolicy()


class ConnectionLost(ToolError):
    """The connection ended during a call."""


class CallTimedOut(ToolError):
    """No answer came within the configured timeout."""


class McpConnection:
    def __init__(self, server: ServerConfig, deps: McpConnectionDeps) -> None:
        self.server = server
        self.state = ConnectionState.RESTING
        self.problem = ""
        self.tools: ToolSpecs = {}
        self.settled = anyio.Event()
        """Set once it is known whether the connection succeeded."""
        self._deps = deps
        self._client: Client | None = None
        self._group: TaskGroup | None = None
        self._listing = ToolListReader(server, deps.acting_tools)
        self._pending_calls = PendingCalls()
        self._stderr = self._new_stderr_log()
        self._connect_requested = anyio.Event()
        self._lost_event = anyio.Event()
        self._tools_changed = anyio.Event()
        self._lost = False
        self._failures = 0
        self._next_attempt = 0.0

    @property
    def capabilities(self) -> types.ServerCapabilities:
        return self._client.server_capabilities if self._client else types.ServerCapabilities()

    @property
    def version(self) -> str:
        """Name and version reported by the server."""
        info = self._client.server_info if self._client else None
        return one_line(escape_controls(f"{info.name} {info.version}"), 80) if info else ""

    def wake(self) -> None:
        # Current waiters keep their event: they wait for the same connection.
        disconnected = self._client is None and self.state is not ConnectionState.CLOSED
        if disconnected and self.settled.is_set():
            self.settled = anyio.Event()
        self._connect_requested.set()

    async def run(self) -> None:
        """Run as long as the profile is open and the server is configured."""
        try:
            while True:
                await self._connect_requested.wait()
                self._connect_requested = anyio.Event()
                while await self._connect_once():
                    await self._wait_before_retry()
        finally:
            self._client = self._group = None
            self.state, self.problem = ConnectionState.CLOSED, "it was disconnected"
            self.settled.set()

    async def call(
        self, work: Callable[[Client], Awaitable[T]], ask_person: AskPerson | None = None
    ) -> T:
        """Raises `ConnectionLost`, `CallTimedOut`, or `ToolError` if unavailable or rejected."""
        caller = PendingCall[T](ask_person)
        # A pending call keeps the connection from idling.
        with self._pending_calls.track(caller):
            client, group = await self._ensure_connected()
            group.start_soon(caller.run, work, client)
            answered = await caller.wait_answered(self.server.timeout)
        if self._pending_calls.record_outcome(answered=answered):
            log.warning("MCP server %s does not answer and is restarted", self.server.name)
            self._drop()
        if not answered:
            raise CallTimedOut(
                f"The MCP server {self.server.name} did not answer within "
                f"{self.server.timeout:g} s, and the call was cancelled."
            )
        return self._answer(caller)

    def _answer(self, caller: PendingCall[T]) -> T:
        if caller.result:
            self._failures = 0
            return caller.result[0]
        failure = _first_error(caller.failure)
        if _is_connection_loss(failure):
            self._drop()
            reason = self._stderr.disconnect_reason and f": {self._stderr.disconnect_reason}"
            raise ConnectionLost(
                f"The connection to the MCP server {self.server.name} was lost{reason}."
            )
        if isinstance(failure, MCPError):
            raise ToolError(
                f"The server returned an error: {self._error_text(failure)}."
            ) from failure
        log.warning("MCP server %s: %s", self.server.name, self._error_text(failure))
        raise ToolError(
            f"The MCP server {self.server.name} gave no usable answer: {self._error_text(failure)}."
        ) from failure

    def _drop(self) -> None:
        """Drop the connection; the next call waits for a new one."""
        self._client = None
        self._lost_event.set()

    async def _ensure_connected(self) -> tuple[Client, TaskGroup]:
        """Return the connection or open one, unless the server keeps failing."""
        if self._lost_event.is_set():
            self._client = None
        if self._client is None:
            left = self._next_attempt - anyio.current_time()
            if self._failures >= self._deps.reconnect.max_failures and left > 0:
                raise ToolError(f"{self._unavailable_text()} Next attempt in {math.ceil(left)} s.")
            self.wake()
            with anyio.move_on_after(self.server.connect + CLOSE_TIMEOUT):
                await self.settled.wait()
        if self._client is None or self._group is None:
            raise ToolError(self._unavailable_text())
        return self._client, self._group

    def _unavailable_text(self) -> str:
        problem = self.problem or "it is still connecting"
        return f"The MCP server {self.server.name} is unavailable: {problem}."

    async def _connect_once(self) -> bool:
        """Connect and stay until the end; return whether to reconnect."""
        self.state, self.problem = ConnectionState.CONNECTING, ""
        self._stderr = self._new_stderr_log()
        self._lost_event, self._tools_changed = anyio.Event(), anyio.Event()
        self._lost = False
        try:
            deadline = anyio.current_time() + self.server.connect
            with anyio.CancelScope(deadline=deadline) as limit:
                async with self._new_client() as client:
                    self.tools = await self._list_tools(client)
                    limit.deadline = math.inf
                    await self._serve(client)
                    limit.deadline = anyio.current_time() + CLOSE_TIMEOUT
            if not self._served:
                self.problem = f"it did not answer within {self.server.connect:g} s"
        except Exception as error:  # noqa: BLE001 - the boundary of the task, logged by `_fail`
            failure = _first_error(error)
            gone = isinstance(failure, MCPError) and failure.code == types.CONNECTION_CLOSED
            self.problem = "it exited before answering" if gone else self._error_text(failure)
            self._lost = True
        self._client = self._group = None
        if self._served and not self._lost:
            self.state = ConnectionState.RESTING
            return False
        self._fail(served=self._served)
        return True

    @property
    def _served(self) -> bool:
        """Whether this attempt had a connection."""
        return self.state is ConnectionState.READY

    def _fail(self, *, served: bool) -> None:
        self._failures += 1
        self.problem = self._stderr.disconnect_reason or self.problem or "the connection was lost"
        if self._stderr.last_line:
            self.problem += f"; its last output: {self._stderr.last_line}"
        log.warning("MCP server %s: %s", self.server.name, self.problem)
        self.state = ConnectionState.BROKEN
        if not served:
            # After a loss, waiters wait for the next attempt; those of this attempt get the error.
            self._connect_requested = anyio.Event()
            self.settled.set()

    async def _wait_before_retry(self) -> None:
        policy = self._deps.reconnect
        parked = self._failures > policy.attempts
        delay = policy.parked_delay if parked else policy.backoff.delay(self._failures)
        self._next_attempt = anyio.current_time() + min(delay, policy.cooldown)
        with anyio.move_on_after(delay):
            await self._connect_requested.wait()
        self._connect_requested = anyio.Event()
        if self.settled.is_set():
            self.settled = anyio.Event()

    async def _serve(self, client: Client) -> None:
        async with anyio.create_task_group() as group:
            began = self._pending_calls.last_used = anyio.current_time()
            self._client, self._group = client, group
            self._publish_tools()
            self.state, self._next_attempt = ConnectionState.READY, 0.0
            # The request for a connection is fulfilled; it may idle again.
            self._connect_requested = anyio.Event()
            self.settled.set()
            group.start_soon(self._refresh_tools, client)
            if _announces_changes(client):
                group.start_soon(self._watch_changes, client)
            await self._wait_until_over()
            # Closing makes the server exit, so `_lost_event` must be read before.
            self._client, self._lost = None, self._lost_event.is_set()
            if anyio.current_time() - began >= self._deps.reconnect.stable_seconds:
                self._failures = 0
            group.cancel_scope.cancel()

    def _publish_tools(self) -> None:
        try:
            self._deps.on_tools_changed(self)
        except Exception:
            # A failing listener must not break a working connection.
            log.exception("MCP server %s: its tools could not be updated", self.server.name)

    async def _wait_until_over(self) -> None:
        """Wait until it is lost, idle for too long, or too old."""
        end = anyio.current_time() + (self.server.lifetime or math.inf)
        idle = self.server.idle or math.inf
        while not self._lost_event.is_set():
            now = anyio.current_time()
            until = min((now if self._pending_calls else self._pending_calls.last_used) + idle, end)
            with anyio.move_on_at(until):
                await self._lost_event.wait()
            now = anyio.current_time()
            if not self._pending_calls and now >= min(self._pending_calls.last_used + idle, end):
                return
            if now >= end:
                end = now + 1.0

    def _new_client(self) -> Client:
        return Client(
            self._transport(),
            cache=None,
            client_info=types.Implementation(name="hermes", version=__version__),
            elicitation_callback=self._elicit,
            message_handler=self._on_message,
        )

    def _transport(self) -> Transport:
        match self.server.endpoint:
            case StdioEndpoint() as program:
                return stdio_transport(program, self._deps.launch, self._stderr, self._lost_event)
            case HttpEndpoint() as site:
                return http_transport(site, self.server.connect, self._stderr)

    def _new_stderr_log(self) -> StderrLog:
        return StderrLog(self._deps.redact, partial(self._deps.log_stderr, self.server.name))

    async def _list_tools(self, client: Client) -> ToolSpecs:
        self._listing.start()
        cursor: str | None = None
        if client.server_capabilities.tools is None:
            return {}
        for _ in range(MAX_PAGES):
            page = await client.list_tools(cursor=cursor)
            await run_sync(self._listing.add_page, page.tools)
            cursor = page.next_cursor
            if not cursor or self._listing.full:
                break
        return await run_sync(partial(self._listing.finish, cut=bool(cursor)))

    async def _on_message(self, message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._tools_changed.set()

    async def _watch_changes(self, client: Client) -> None:
        """Subscribe to changes, which newer servers only send to subscribers.

        A restarted server has lost the subscription and may have other tools.
        """
        policy = self._deps.reconnect
        pause = Backoff(base=1.0, cap=policy.max_refresh_interval)
        attempt = 0
        while True:
            began = anyio.current_time()
            try:
                async with client.listen(tools_list_changed=True) as events:
                    if attempt:
                        self._tools_changed.set()
                    async for _ in events:
                        self._tools_changed.set()
            except SubscriptionLost as error:
                log.info("MCP server %s: %s", self.server.name, error)
            except MCPError as error:
                log.info("MCP server %s: cannot watch its changes: %s", self.server.name, error)
                if attempt or _is_connection_loss(error):
                    self._drop()
                return
            attempt = 1 if anyio.current_time() - began >= policy.stable_seconds else attempt + 1
            await anyio.sleep(pause.delay(attempt))

    async def _refresh_tools(self, client: Client) -> None:
        """Refresh the list after a change, less often if it changes all the time."""
        policy = self._deps.reconnect
        interval = policy.refresh_interval
        while True:
            await self._tools_changed.wait()
            self._tools_changed = anyio.Event()
            try:
                with anyio.fail_after(self.server.connect):
                    found = await self._list_tools(client)
            except (MCPError, TimeoutError) as error:
                log.warning("MCP server %s: cannot refresh its tools: %s", self.server.name, error)
            else:
                if found != self.tools:
                    self.tools = found
                    self._publish_tools()
            await anyio.sleep(interval)
            longer = min(2 * interval, policy.max_refresh_interval)
            interval = longer if self._tools_changed.is_set() else policy.refresh_interval

    async def _elicit(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        return await self._pending_calls.ask_user(self.server.name, params)

    def _error_text(self, failure: Exception | None) -> str:
        text = failure.sentence if isinstance(failure, HermesError) else str(failure or "")
        text = self._deps.redact((text or type(failure).__name__)[:MAX_ERROR])
        return one_line(escape_controls(text), MAX_SHOWN_ERROR).rstrip(".")


def _announces_changes(client: Client) -> bool:
    tools = client.server_capabilities.tools
    return bool(tools and tools.list_changed) and client.session.discover_result is not None


def _is_connection_loss(failure: Exception | None) -> bool:
    """Whether the server, or its memory of our session, is gone; other failures are answers."""
    if isinstance(failure, MCPError):
        forgotten = failure.code == types.INVALID_REQUEST and failure.message == SESSION_TERMINATED
        return forgotten or failure.code == types.CONNECTION_CLOSED
    return failure is None or isinstance(failure, OSError | httpx2.TransportError)


def _first_error(error: Exception | None) -> Exception | None:
    while isinstance(error, ExceptionGroup):
        group = cast("ExceptionGroup[Exception]", error)
        error = group.exceptions[0]
    return error
