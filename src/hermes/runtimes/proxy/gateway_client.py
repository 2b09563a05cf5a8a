"""Ask what a remote Hermes gateway supports, and call it over an unreliable link."""

import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Self

import aiohttp
import msgspec
from msgspec import Struct, structs

from hermes.kit.clock import Clock
from hermes.kit.json_errors import JSON_ERRORS
from hermes.kit.retry import Backoff
from hermes.kit.sse import SseEvent, SseReader, SseTooLong
from hermes.runtimes.proxy.chat_runtime import RemoteGateway
from hermes.runtimes.proxy.errors import (
    MAX_ERROR_BODY,
    LinkBroken,
    connection_error,
    request_rejected,
    stream_invalid,
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
CAPABILITIES_PATH = "/v1/capabilities"
HERMES_OBJECT = "hermes.api_server.capabilities"
REQUIRED_FEATURES = (
    "run_submission",
    "run_status",
    "run_events_sse",
    "run_stop",
    "idempotency_keys",
)
CACHE_SECONDS = 300.0
"""Seconds for which a result is cached."""
PROBE_TIMEOUT = 15.0
"""Seconds without a response after which the request is repeated."""
UNSUPPORTED_STATUSES = frozenset({404, 405, 501})
"""Responses of a server that does not support the path."""


class RequestRejected(Exception):
    """The remote gateway answered with an error status."""

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
        self._attempts = 0

    async def wait(self, error: LinkBroken | RequestRejected) -> None:
        """Raises the matching `ModelError` when retrying is pointless."""
        now, remote = self._clock.monotonic(), self._remote
        if not self._attempts:
            self._since = now
        self._attempts += 1
        if isinstance(error, RequestRejected):
            if error.status not in RETRYABLE_STATUSES or now - self._since >= min(
                MAX_BUSY_SECONDS, remote.reconnect_timeout
            ):
                raise request_rejected(error.status, error.body, remote.key) from error
        elif isinstance(error.cause, ValueError) or now - self._since >= remote.reconnect_timeout:
            raise connection_error(error.cause, remote.silence_timeout, remote.key) from error
        log.info("connection to the remote gateway: %s, attempt %d", error, self._attempts)
        await self._clock.sleep(BACKOFF.delay(self._attempts))


class GatewayClient:
    """Serves one turn; reconnects whenever the connection breaks."""

    def __init__(self, remote: RemoteGateway, clock: Clock) -> None:
        self._remote = remote
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        remote = self._remote
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=remote.connect, sock_read=remote.silence_timeout
        )
        self._session = aiohttp.ClientSession(timeout=timeout, auto_decompress=False)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def call(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> bytes:
        """Try once. Header names use underscores. Raises `LinkBroken` or `RequestRefused`."""
        try:
            async with self._request(method, path, body, headers) as response:
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
            except (LinkBroken, RequestRejected) as error:
                await retries.wait(error)

    async def stream(self, path: str, after: int) -> AsyncGenerator[SseEvent]:
        """Stream what follows that number. Raises `LinkBroken` or `RequestRefused`."""
        reader = SseReader(self._remote.max_event_bytes)
        headers = {"Accept": "text/event-stream", "Last_Event_ID": str(after)}
        try:
            async with self._request("GET", path, None, headers) as response:
                async for piece in response.content.iter_any():
                    for event in reader.feed(piece):
                        yield event
        except SseTooLong as error:
            raise stream_invalid(error) from error
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
        url = self._remote.url + path
        async with self._session.request(
            method, url, data=body, headers=headers, allow_redirects=False
        ) as response:
            if response.status // 100 != 2:
                raise RequestRejected(response.status, await response.content.read(MAX_ERROR_BODY))
            yield response


async def _read_all(response: aiohttp.ClientResponse) -> bytes:
    body = b""
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > MAX_RESPONSE:
            raise aiohttp.ClientPayloadError("the response is too large")
    return body


class RemoteCapabilities(Struct, frozen=True):
    """What the remote gateway supports; without runs, only plain chat completions."""

    runs: bool = False
    steering: bool = False
    files: bool = False
    roles: bool = False
    """Whether it accepts the requester's role."""
    sessions: bool = False
    """Whether a session can be followed after its turn."""


class _CapabilitiesBody(Struct, rename={"kind": "object"}):
    kind: str = ""
    features: dict[str, object] = {}


class CapabilityProbe:
    """Caches what the remote gateway supports.

    A server with another response, or without this path, is a plain one. A server that does not
    respond is not treated as one: without a role, another Hermes would treat every guest as its
    owner.
    """

    def __init__(self, remote: RemoteGateway, clock: Clock) -> None:
        self._remote = remote
        self._clock = clock
        self._known: RemoteCapabilities | None = None
        self._until = 0.0

    async def capabilities(self) -> RemoteCapabilities:
        """Raises `ModelError` if it cannot be determined."""
        now = self._clock.monotonic()
        if self._known is not None and now < self._until:
            return self._known
        try:
            capabilities = read_capabilities(await self._ask())
        except RequestRejected as error:
            if _is_transient(error.status):
                return self._last_known(
                    request_rejected(error.status, error.body, self._remote.key)
                )
            if error.status not in UNSUPPORTED_STATUSES:
                return RemoteCapabilities()
            capabilities = RemoteCapabilities()
        except LinkBroken as error:
            remote = self._remote
            return self._last_known(connection_error(error.cause, remote.connect, remote.key))
        except ModelError as error:
            return self._last_known(error)
        if capabilities != self._known:
            log.info("the remote gateway at %s: %s", self._remote.url, capabilities)
        self._known, self._until = capabilities, now + CACHE_SECONDS
        return capabilities

    def _last_known(self, error: ModelError) -> RemoteCapabilities:
        """A broken link does not change what the server supports."""
        log.info("cannot ask the remote gateway for its capabilities: %s", error)
        if self._known is None:
            raise error
        return self._known

    async def is_chat_only(self) -> bool:
        """Ask again after a wrong assumption, and return whether it only supports chat.

        Raises `ModelError` if it cannot be determined.
        """
        self._forget()
        capabilities = await self.capabilities()
        return capabilities == self._known and not capabilities.runs

    def _forget(self) -> None:
        self._known = None

    async def _ask(self) -> bytes:
        """Try once if there is a cached result; without one, until the timeout."""
        probe = structs.replace(
            self._remote, silence_timeout=min(PROBE_TIMEOUT, self._remote.silence_timeout)
        )
        retries = RetryTimer(probe, self._clock)
        async with GatewayClient(probe, self._clock) as client:
            while True:
                try:
                    return await client.call("GET", CAPABILITIES_PATH)
                except (LinkBroken, RequestRejected) as error:
                    if self._known is not None or not _is_worth_a_retry(error):
                        raise
                    await retries.wait(error)


def read_capabilities(body: bytes) -> RemoteCapabilities:
    """Return no capabilities if it is not a Hermes gateway's response."""
    try:
        parsed = msgspec.json.decode(body, type=_CapabilitiesBody)
    except JSON_ERRORS:
        return RemoteCapabilities()
    features = {name for name, value in parsed.features.items() if value is True}
    if parsed.kind != HERMES_OBJECT or not features.issuperset(REQUIRED_FEATURES):
        return RemoteCapabilities()
    return RemoteCapabilities(
        runs=True,
        steering="run_steer" in features,
        files="file_input" in features,
        roles="run_roles" in features,
        sessions="session_events_sse" in features,
    )


def _is_transient(status: int) -> bool:
    """Return whether the response comes from a proxy in between, or a temporary failure."""
    return status in RETRYABLE_STATUSES or (status >= 500 and status not in UNSUPPORTED_STATUSES)


def _is_worth_a_retry(error: LinkBroken | RequestRejected) -> bool:
    """A missing connection is usually due to a wrong address."""
    if isinstance(error, RequestRejected):
        return error.status in RETRYABLE_STATUSES
    unreachable = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
    return not isinstance(error.cause, unreachable)
