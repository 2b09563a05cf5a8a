"""Whether the far side is one of ours, asked once in a while."""

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
"""Seconds for which an answer counts."""
PROBE_TIMEOUT = 15.0
"""Seconds of silence after which the question is put again."""
UNSUPPORTED_STATUSES = frozenset({404, 405, 501})
"""Answers of a server that will not know the path in five minutes either."""


class RemoteCapabilities(Struct, frozen=True):
    """What of the full protocol the far side speaks; without runs it is plain chat completions."""

    runs: bool = False
    steers: bool = False
    files: bool = False
    roles: bool = False
    """Whether it can be told that somebody else than the owner asks."""
    sessions: bool = False
    """Whether a session can be followed after its turn."""


class _CapabilitiesBody(Struct, rename={"kind": "object"}):
    kind: str = ""
    features: dict[str, object] = {}


class CapabilityProbe:
    """Remembers what the far side said of itself.

    Who gives another answer, or knows no such question, is a plain server. Who gives none is not
    taken for one: it would be told nothing of who asks, and to one of ours that is the owner.
    """

    def __init__(self, far: RemoteGateway, clock: Clock) -> None:
        self._far = far
        self._clock = clock
        self._known: RemoteCapabilities | None = None
        self._until = 0.0

    async def abilities(self) -> RemoteCapabilities:
        """Raises `ModelError` when nobody can tell."""
        now = self._clock.monotonic()
        if self._known is not None and now < self._until:
            return self._known
        try:
            told = read_capabilities(await self._ask())
        except RequestRefused as error:
            if _is_transient(error.status):
                return self._last_known(request_refused(error.status, error.body, self._far.key))
            if error.status not in UNSUPPORTED_STATUSES:
                return RemoteCapabilities()
            told = RemoteCapabilities()
        except LinkBroken as error:
            return self._last_known(connection_error(error.cause, self._far.connect, self._far.key))
        except ModelError as error:
            return self._last_known(error)
        if told != self._known:
            log.info("the far gateway at %s: %s", self._far.url, told)
        self._known, self._until = told, now + CACHE_SECONDS
        return told

    def _last_known(self, trouble: ModelError) -> RemoteCapabilities:
        """A link that is down says nothing about who is behind it."""
        log.info("the far gateway could not be asked what it can do: %s", trouble)
        if self._known is None:
            raise trouble
        return self._known

    async def is_chat_only(self) -> bool:
        """Whether it says so itself when asked anew, because what is known proved wrong.

        Raises `ModelError` when nobody can tell.
        """
        self._forget()
        told = await self.abilities()
        return told == self._known and not told.runs

    def _forget(self) -> None:
        self._known = None

    async def _ask(self) -> bytes:
        """Once, if it is known what to expect; else for as long as a link may be down."""
        soon = structs.replace(self._far, alive=min(PROBE_TIMEOUT, self._far.alive))
        patience = RetryTimer(soon, self._clock)
        async with GatewayClient(soon, self._clock) as line:
            while True:
                try:
                    return await line.call("GET", CAPABILITIES_PATH)
                except LinkBroken as error:
                    if self._known is not None or _is_unreachable(error.cause):
                        raise
                    await patience.wait(error)
                except RequestRefused as error:
                    if self._known is not None or error.status not in RETRYABLE_STATUSES:
                        raise
                    await patience.wait(error)


def read_capabilities(body: bytes) -> RemoteCapabilities:
    """Nothing at all, when it is not the answer of one of ours."""
    try:
        told = msgspec.json.decode(body, type=_CapabilitiesBody)
    except (msgspec.DecodeError, RecursionError):
        return RemoteCapabilities()
    able = {name for name, value in told.features.items() if value is True}
    if told.kind != HERMES_OBJECT or not able.issuperset(REQUIRED_FEATURES):
        return RemoteCapabilities()
    return RemoteCapabilities(
        runs=True,
        steers="run_steer" in able,
        files="file_input" in able,
        roles="run_roles" in able,
        sessions="session_events_sse" in able,
    )


def _is_transient(status: int) -> bool:
    """Whether that is no answer, but somebody on the way, or something broken, in its place."""
    return status in RETRYABLE_STATUSES or (status >= 500 and status not in UNSUPPORTED_STATUSES)


def _is_unreachable(error: Exception) -> bool:
    """Whether there was no connection at all: most often the address is a wrong one."""
    return isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
