"""Send requests to a remote Hermes gateway, with retries over an unreliable link."""

import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Self

import aiohttp

from hermes.kit.clock import Clock
from hermes.kit.retry import Backoff
from hermes.kit.sse import SseEvent, SseReader, SseTooLong
from hermes.runtimes.proxy.chat_runtime import RemoteGateway
from hermes.runtimes.proxy.errors import (
    MAX_ERROR_BODY,
    connection_error,
    request_refused,
    stream_broken,
)
from hermes.schema.errors import ModelError

log = logging.getLogger(__name__)

RUNS_PATH = "/v1/runs"
BACKOFF = Backoff(base=0.05, cap=5.0)
RETRYABLE_STATUSES = frozenset({409, 429, 502, 503, 504})
"""Responses that may change soon."""
MAX_BUSY_SECONDS = 30.0
"""Seconds for which such responses are retried."""
MAX_RESPONSE = 16 * 1024 * 1024
"""Bytes of a response that is not a stream."""


class LinkBroken(Exception):
    """The connection failed or broke."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause) or type(cause).__name__)
        self.cause = cause


class RequestRefused(Exception):
    """The remote gateway refused the request."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"status {status}")
        self.status = status
        self.body = body


class RetryTimer:
    """Waits between two attempts with a growing delay, up to a limit."""

    def __init__(self, remote: RemoteGateway, clock: Clock) -> None:
        self._remote = remote
        self._clock = clock
        self._attempts = 0
        self._since = 0.0

    def reset(self) -> None:
        """Reset after progress."""
        self._attempts = 0

    async def wait(self, error: LinkBroken | RequestRefused) -> None:
        """Raises the matching `ModelError` when retrying is pointless."""
        now, far = self._clock.monotonic(), self._remote
        if not self._attempts:
            self._since = now
        self._attempts += 1
        if isinstance(error, RequestRefused):
            if error.status not in RETRYABLE_STATUSES or now - self._since >= min(
                MAX_BUSY_SECONDS, far.patience
            ):
                raise request_refused(error.status, error.body, far.key) from error
        elif isinstance(error.cause, ValueError) or now - self._since >= far.patience:
            raise connection_error(error.cause, far.alive, far.key) from error
        log.info("connection to the remote gateway: %s, attempt %d", error, self._attempts)
        await self._clock.sleep(BACKOFF.delay(self._attempts))


class GatewayClient:
    """Serves one turn; reconnects whenever the connection breaks."""

    def __init__(self, remote: RemoteGateway, clock: Clock) -> None:
        self._remote = remote
        self._clock = clock
        self._stack = AsyncExitStack()
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        far = self._remote
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=far.connect, sock_read=far.alive)
        session = aiohttp.ClientSession(timeout=timeout, auto_decompress=False)
        self._session = await self._stack.enter_async_context(session)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    async def call(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> bytes:
        """Try once. Header names use underscores. Raises `LinkBroken` or `RequestRefused`."""
        try:
            async with self._request(method, path, body, headers) as response:
                if response.status // 100 != 2:
                    raise RequestRefused(
                        response.status, await response.content.read(MAX_ERROR_BODY)
                    )
                return await _read_all(response)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise LinkBroken(error) from error

    async def call_with_retries(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> bytes:
        """Retry until it succeeds: only for idempotent requests. Raises `ModelError`."""
        retries = RetryTimer(self._remote, self._clock)
        while True:
            try:
                return await self.call(method, path, body, **headers)
            except (LinkBroken, RequestRefused) as error:
                await retries.wait(error)

    def events(self, run: str, after: int) -> AsyncGenerator[SseEvent]:
        """Stream the events of a run after that number."""
        return self.stream(f"{RUNS_PATH}/{run}/events", after)

    async def stream(self, path: str, after: int) -> AsyncGenerator[SseEvent]:
        """Stream what follows that number. Raises `LinkBroken` or `RequestRefused`."""
        reader = SseReader(self._remote.one_event)
        headers = {"Accept": "text/event-stream", "Last_Event_ID": str(after)}
        try:
            async with self._request("GET", path, None, headers) as response:
                if response.status != 200:
                    raise RequestRefused(
                        response.status, await response.content.read(MAX_ERROR_BODY)
                    )
                async for piece in response.content.iter_any():
                    for event in reader.feed(piece):
                        yield event
        except SseTooLong as error:
            raise stream_broken(f"the remote gateway sent an invalid stream: {error}") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise LinkBroken(error) from error

    @asynccontextmanager
    async def _request(
        self, method: str, path: str, body: bytes | None, more: Mapping[str, str]
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        if self._session is None:
            raise ModelError("The client is not open.")
        headers = {"Accept-Encoding": "identity"}
        headers |= {name.replace("_", "-"): value for name, value in more.items()}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self._remote.key:
            headers["Authorization"] = f"Bearer {self._remote.key}"
        async with self._session.request(
            method, self._remote.url + path, data=body, headers=headers, allow_redirects=False
        ) as response:
            yield response


async def _read_all(response: aiohttp.ClientResponse) -> bytes:
    body = b""
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > MAX_RESPONSE:
            raise aiohttp.ClientPayloadError("the response is too large")
    return body
