"""Ask what the remote gateway supports, and cache the result."""

import logging

import aiohttp
import msgspec
from msgspec import Struct, structs

from hermes.kit.clock import Clock
from hermes.runtimes.proxy.chat_runtime import RemoteGateway
from hermes.runtimes.proxy.errors import connection_error, request_refused
from hermes.runtimes.proxy.gateway_client import (
    RETRYABLE_STATUSES,
    GatewayClient,
    LinkBroken,
    RequestRefused,
    RetryTimer,
)
from hermes.schema.errors import ModelError

log = logging.getLogger(__name__)

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


class RemoteCapabilities(Struct, frozen=True):
    """What the remote gateway supports; without runs, only plain chat completions."""

    runs: bool = False
    steering: bool = False
    files: bool = False
    roles: bool = False
    """Whether it accepts the role of the requester."""
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
        except RequestRefused as error:
            if _is_transient(error.status):
                return self._last_known(request_refused(error.status, error.body, self._remote.key))
            if error.status not in UNSUPPORTED_STATUSES:
                return RemoteCapabilities()
            capabilities = RemoteCapabilities()
        except LinkBroken as error:
            return self._last_known(
                connection_error(error.cause, self._remote.connect, self._remote.key)
            )
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
        """Try once if there is a cached result, else until the timeout."""
        probe = structs.replace(self._remote, alive=min(PROBE_TIMEOUT, self._remote.alive))
        retries = RetryTimer(probe, self._clock)
        async with GatewayClient(probe, self._clock) as client:
            while True:
                try:
                    return await client.call("GET", CAPABILITIES_PATH)
                except LinkBroken as error:
                    if self._known is not None or _is_unreachable(error.cause):
                        raise
                    await retries.wait(error)
                except RequestRefused as error:
                    if self._known is not None or error.status not in RETRYABLE_STATUSES:
                        raise
                    await retries.wait(error)


def read_capabilities(body: bytes) -> RemoteCapabilities:
    """Return no capabilities if it is not the response of a Hermes gateway."""
    try:
        parsed = msgspec.json.decode(body, type=_CapabilitiesBody)
    except (msgspec.DecodeError, RecursionError):
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


def _is_unreachable(error: Exception) -> bool:
    """Return whether there was no connection at all, usually due to a wrong address."""
    return isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
