"""The connection to one server: made when it is needed, found again when it is lost.

It lives in a task of its own. Who calls waits beside it, and may go away at any time: no answer
that does not come holds anybody.
"""

import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Generic, TypeVar, cast

import anyio
import httpx2
import mcp_types as types
from anyio.abc import TaskGroup
from mcp.client import Client, ClientRequestContext, IncomingMessage, Transport
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPError
from msgspec import Struct

from hermes import __version__
from hermes.kit.retry import Backoff
from hermes.kit.text import one_line
from hermes.mcp.forms import CANCELLED, DECLINED, filled
from hermes.mcp.server import Program, Server, Site
from hermes.mcp.ways import Launch, over_http, started
from hermes.ports.counsel import Inquire
from hermes.schema.errors import HermesError, ToolError

log = logging.getLogger(__name__)

T = TypeVar("T")

PAGES = 20
MOST_QUESTIONS = 5
HANGS = 3
"""Calls in a row without an answer after which a server is begun anew."""
FORGOTTEN = "Session terminated"
"""What the SDK says for a server that no longer knows us."""
GOODBYE = 5.0
SHOWN = 300
LAST_WORDS = 2_000
LONGEST_LINE = 8_000


class Patience(Struct, frozen=True, kw_only=True):
    """After `strikes` failures in a row calls are refused at once, for `refuses` seconds at most.

    It is tried again after `backoff`, and after `attempts` of that every `parked` seconds. What
    has lived for `steady` seconds was no failure. A changed list is asked for once in `calm`.
    """

    backoff: Backoff = Backoff(base=1.0, cap=60.0)
    strikes: int = 3
    refuses: float = 60.0
    steady: float = 60.0
    attempts: int = 5
    parked: float = 300.0
    calm: float = 1.0


class State(StrEnum):
    RESTING = "resting"
    CONNECTING = "connecting"
    READY = "ready"
    BROKEN = "broken"
    CLOSED = "closed"


class Near(Struct, frozen=True, kw_only=True):
    """What of this house a connection needs. `log` keeps what a server writes to stderr.

    `listed` hears which tools there are, each time that is known anew.
    """

    launch: Launch
    log: Callable[[str, str], Awaitable[None]]
    redact: Callable[[str], str]
    listed: Callable[["Link"], None]
    patience: Patience = Patience()


class Lost(ToolError):
    """The connection ended while a call ran."""


class _Caller:
    """Who waits for an answer, and can be asked something meanwhile."""

    def __init__(self, inquire: Inquire | None) -> None:
        self.inquire = inquire
        self.questions = 0
        self.scope = anyio.CancelScope()
        self.gone = anyio.Event()


class _Told(Generic[T]):
    def __init__(self) -> None:
        self.done = anyio.Event()
        self.result: list[T] = []
        self.failure: Exception | None = None


class Link:
    def __init__(self, server: Server, near: Near) -> None:
        self.server = server
        self.state = State.RESTING
        self.trouble = ""
        self.tools: Sequence[types.Tool] = ()
        self.settled = anyio.Event()
        """Set once it is known whether there is a connection."""
        self._near = near
        self._client: Client | None = None
        self._group: TaskGroup | None = None
        self._callers: list[_Caller] = []
        self._wanted = anyio.Event()
        self._over = anyio.Event()
        self._changed = anyio.Event()
        self._lost = False
        self._failures = 0
        self._hangs = 0
        self._next = 0.0
        self._used = 0.0
        self._last_words = ""
        self._begun = b""

    @property
    def capabilities(self) -> types.ServerCapabilities:
        return self._client.server_capabilities if self._client else types.ServerCapabilities()

    @property
    def version(self) -> str:
        """What the server calls itself."""
        info = self._client.server_info if self._client else None
        return one_line(f"{info.name} {info.version}", 80) if info else ""

    def wake(self) -> None:
        # Who waits already waits for the same.
        if self._client is None and self.settled.is_set() and self.state is not State.CLOSED:
            self.settled = anyio.Event()
        self._wanted.set()

    async def run(self) -> None:
        """For as long as the profile is open, and the settings name the server."""
        try:
            while True:
                await self._wanted.wait()
                self._wanted = anyio.Event()
                while await self._once():
                    await self._pause()
        finally:
            self._client = self._group = None
            self.state, self.trouble = State.CLOSED, "it was disconnected"
            self.settled.set()

    async def call(
        self, work: Callable[[Client], Awaitable[T]], inquire: Inquire | None = None
    ) -> T:
        """Raises `Lost`, and `ToolError` when there is no connection or the server refuses."""
        caller, told = _Caller(inquire), _Told[T]()
        began = anyio.current_time()
        # From now on it does not rest.
        self._callers.append(caller)
        try:
            client, group = await self._connected()
            began = anyio.current_time()
            group.start_soon(self._work, work, client, caller, told)
            await told.done.wait()
        finally:
            caller.scope.cancel()
            caller.gone.set()
            self._callers.remove(caller)
            self._used = anyio.current_time()
            self._count_hang(self._used - began, answered=told.done.is_set())
        return self._answer(told)

    async def _work(
        self,
        work: Callable[[Client], Awaitable[T]],
        client: Client,
        caller: _Caller,
        told: "_Told[T]",
    ) -> None:
        try:
            with caller.scope:
                told.result.append(await work(client))
        except Exception as error:  # noqa: BLE001 - whoever waits tells of it
            told.failure = error
        finally:
            told.done.set()

    def _answer(self, told: "_Told[T]") -> T:
        if told.result:
            self._failures = 0
            return told.result[0]
        failure = _first(told.failure)
        if _is_loss(failure):
            self._let_go()
            raise Lost(f"The connection to the MCP server {self.server.name} was lost.")
        if isinstance(failure, MCPError):
            raise ToolError(f"The server refused: {self._says(failure)}.") from failure
        log.warning("MCP server %s: %s", self.server.name, self._says(failure))
        raise ToolError(
            f"The MCP server {self.server.name} gave no usable answer: {self._says(failure)}."
        ) from failure

    def _let_go(self) -> None:
        """Of no more use; what comes next waits for another one."""
        self._client = None
        self._over.set()

    def _count_hang(self, took: float, *, answered: bool) -> None:
        self._hangs = 0 if answered else self._hangs + (took >= self.server.timeout)
        if self._hangs >= HANGS:
            log.warning("MCP server %s answers no more and is begun anew", self.server.name)
            self._hangs = 0
            self._let_go()

    async def _connected(self) -> tuple[Client, TaskGroup]:
        """The running one, or one that is begun for this; a server that keeps failing is left."""
        if self._over.is_set():
            self._client = None
        if self._client is None:
            left = self._next - anyio.current_time()
            if self._failures >= self._near.patience.strikes and left > 0:
                raise ToolError(f"{self._why()} It is tried again in {math.ceil(left)} s.")
            self.wake()
            with anyio.move_on_after(self.server.connect + GOODBYE):
                await self.settled.wait()
        if self._client is None or self._group is None:
            raise ToolError(self._why())
        return self._client, self._group

    def _why(self) -> str:
        trouble = self.trouble or "it is still being connected"
        return f"The MCP server {self.server.name} cannot be used now: {trouble}."

    async def _once(self) -> bool:
        """Connect and stay until the end; whether it is to be tried again by itself."""
        self.state, self.trouble, self._last_words = State.CONNECTING, "", ""
        self._begun = b""
        self._over, self._changed = anyio.Event(), anyio.Event()
        served = self._lost = False
        try:
            deadline = anyio.current_time() + self.server.connect
            with anyio.CancelScope(deadline=deadline) as limit:
                async with self._new_client() as client:
                    self.tools = await self._list(client)
                    limit.deadline = math.inf
                    served = True
                    await self._serve(client)
                    limit.deadline = anyio.current_time() + GOODBYE
            if not served:
                self.trouble = f"it did not answer within {self.server.connect:g} s"
        except Exception as error:  # noqa: BLE001 - the boundary of the background: `_fail` tells
            failure = _first(error)
            gone = isinstance(failure, MCPError) and failure.code == types.CONNECTION_CLOSED
            self.trouble = "it ended before it had answered" if gone else self._says(failure)
            self._lost = True
        self._client = self._group = None
        if served and not self._lost:
            self.state = State.RESTING
            return False
        self._fail(served=served)
        return True

    def _fail(self, *, served: bool) -> None:
        self._failures += 1
        self.trouble = self.trouble or "the connection was lost"
        if self._last_words:
            self.trouble += f"; the last it said: {self._last_words}"
        log.warning("MCP server %s: %s", self.server.name, self.trouble)
        self.state = State.BROKEN
        if not served:
            # Who waits since a loss waits for the next attempt.
            self.settled.set()

    async def _pause(self) -> None:
        patience = self._near.patience
        parked = self._failures > patience.attempts
        delay = patience.parked if parked else patience.backoff.delay(self._failures)
        self._next = anyio.current_time() + min(delay, patience.refuses)
        with anyio.move_on_after(delay):
            await self._wanted.wait()
        self._wanted = anyio.Event()
        if self.settled.is_set():
            self.settled = anyio.Event()

    async def _serve(self, client: Client) -> None:
        async with anyio.create_task_group() as group:
            began = self._used = anyio.current_time()
            self._client, self._group = client, group
            self.state, self._next = State.READY, 0.0
            self._near.listed(self)
            self.settled.set()
            group.start_soon(self._keep_list, client)
            if _tells_of_changes(client):
                group.start_soon(self._hear_changes, client)
            await self._until_over()
            # Whoever is let go says goodbye as well.
            self._client, self._lost = None, self._over.is_set()
            if anyio.current_time() - began >= self._near.patience.steady:
                self._failures = 0
            group.cancel_scope.cancel()

    async def _until_over(self) -> None:
        """Until it is lost, or has been of no use for long enough."""
        end = anyio.current_time() + (self.server.lifetime or math.inf)
        idle = self.server.idle or math.inf
        while not self._over.is_set():
            now = anyio.current_time()
            until = min((now if self._callers else self._used) + idle, end)
            with anyio.move_on_at(until):
                await self._over.wait()
            now = anyio.current_time()
            if not self._callers and now >= min(self._used + idle, end):
                return
            if now >= end:
                end = now + 1.0

    def _new_client(self) -> Client:
        return Client(
            self._transport(),
            cache=None,
            client_info=types.Implementation(name="hermes", version=__version__),
            elicitation_callback=self._elicit,
            message_handler=self._hear,
        )

    def _transport(self) -> Transport:
        match self.server.way:
            case Program() as program:
                return started(program, self._near.launch, self._complain, self._over)
            case Site() as site:
                return over_http(site, self.server.connect)

    async def _complain(self, data: bytes) -> None:
        """Line by line, so that no secret is cut in two."""
        *lines, rest = (self._begun + data).split(b"\n")
        self._begun = rest[-LONGEST_LINE:]
        text = self._near.redact(b"\n".join(lines).decode("utf-8", "replace")).strip()
        if text:
            self._last_words = one_line(text.splitlines()[-1], SHOWN)
            await self._near.log(self.server.name, text[-LAST_WORDS:])

    async def _list(self, client: Client) -> list[types.Tool]:
        tools: list[types.Tool] = []
        cursor: str | None = None
        if client.server_capabilities.tools is None:
            return tools
        for _ in range(PAGES):
            page = await client.list_tools(cursor=cursor)
            tools += page.tools
            cursor = page.next_cursor
            if not cursor:
                break
        return tools

    async def _hear(self, message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._changed.set()

    async def _hear_changes(self, client: Client) -> None:
        """Newer servers tell only who listens."""
        try:
            async with client.listen(tools_list_changed=True) as events:
                async for _ in events:
                    self._changed.set()
        except (MCPError, SubscriptionLost) as error:
            log.info("MCP server %s: its changes are not heard: %s", self.server.name, error)

    async def _keep_list(self, client: Client) -> None:
        while True:
            await self._changed.wait()
            self._changed = anyio.Event()
            try:
                with anyio.fail_after(self.server.connect):
                    self.tools = await self._list(client)
            except (MCPError, TimeoutError) as error:
                log.warning("MCP server %s: no new list: %s", self.server.name, error)
            else:
                self._near.listed(self)
            await anyio.sleep(self._near.patience.calm)

    async def _elicit(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """Only where it is certain whose call it is about."""
        caller = self._callers[0] if len(self._callers) == 1 else None
        if caller is None or caller.inquire is None or caller.questions >= MOST_QUESTIONS:
            return DECLINED
        caller.questions += 1
        answer = CANCELLED
        async with anyio.create_task_group() as group:

            async def end_with_the_call() -> None:
                await caller.gone.wait()
                group.cancel_scope.cancel()

            group.start_soon(end_with_the_call)
            answer = await filled(caller.inquire, self.server.name, params)
            group.cancel_scope.cancel()
        return answer

    def _says(self, failure: Exception | None) -> str:
        said = failure.sentence if isinstance(failure, HermesError) else str(failure or "")
        return one_line(self._near.redact(said or type(failure).__name__), SHOWN).rstrip(".")


def _tells_of_changes(client: Client) -> bool:
    tools = client.server_capabilities.tools
    return bool(tools and tools.list_changed) and client.session.discover_result is not None


def _is_loss(failure: Exception | None) -> bool:
    """Nobody is there any more, or nobody who remembers us: other failures are answers."""
    if isinstance(failure, MCPError):
        forgotten = failure.code == types.INVALID_REQUEST and failure.message == FORGOTTEN
        return forgotten or failure.code == types.CONNECTION_CLOSED
    return failure is None or isinstance(failure, OSError | httpx2.TransportError)


def _first(error: Exception | None) -> Exception | None:
    """Of several at once, which come as a group, the first says it all."""
    while isinstance(error, ExceptionGroup):
        group = cast("ExceptionGroup[Exception]", error)
        error = group.exceptions[0]
    return error
