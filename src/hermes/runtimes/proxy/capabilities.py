"""Whether the far side is one of ours, asked once in a while."""

import logging

import aiohttp
import msgspec
from msgspec import Struct

from hermes.kit.clock import Clock
from hermes.runtimes.proxy.line import BACKOFF, Cut, Line, Refused
from hermes.runtimes.proxy.runtime import Far

log = logging.getLogger(__name__)

PATH = "/v1/capabilities"
OURS = "hermes.api_server.capabilities"
NEEDED = ("run_submission", "run_status", "run_events_sse", "run_stop", "idempotency_keys")
LIFE = 300.0
"""Seconds for which an answer counts."""
ATTEMPTS = 8
"""How often the question is put while the link breaks in the middle of the answer."""
UNKNOWN = frozenset({404, 405, 501})
"""Answers of a server that will not know the path in five minutes either."""


class Abilities(Struct, frozen=True):
    """What of the full protocol the far side speaks; without runs it is plain chat completions."""

    runs: bool = False
    steers: bool = False
    files: bool = False
    roles: bool = False
    """Whether it can be told that somebody else than the owner asks."""
    sessions: bool = False
    """Whether a session can be followed after its turn."""


class _Told(Struct, rename={"kind": "object"}):
    kind: str = ""
    features: dict[str, object] = {}


class Probe:
    """Remembers what the far side said of itself; whatever goes wrong, it is a plain server."""

    def __init__(self, far: Far, clock: Clock) -> None:
        self._far = far
        self._clock = clock
        self._known: Abilities | None = None
        self._until = 0.0

    async def abilities(self) -> Abilities:
        now = self._clock.monotonic()
        if self._known is not None and now < self._until:
            return self._known
        try:
            told = abilities_of(await self._ask())
        except Refused as error:
            if error.status not in UNKNOWN:
                return Abilities()
            told = Abilities()
        except Cut as error:
            # A link that is down says nothing about who is behind it.
            log.info("the far gateway could not be asked what it can do: %s", error)
            return self._known or Abilities()
        if told != self._known:
            log.info("the far gateway at %s: %s", self._far.url, told)
        self._known, self._until = told, now + LIFE
        return told

    def forget(self) -> None:
        """It proved wrong: ask again the next time."""
        self._known = None

    async def _ask(self) -> bytes:
        attempt = 1
        async with Line(self._far, self._clock) as line:
            while True:
                try:
                    return await line.call("GET", PATH)
                except Cut as error:
                    if attempt >= ATTEMPTS or not _was_there(error.cause):
                        raise
                await self._clock.sleep(BACKOFF.delay(attempt))
                attempt += 1


def abilities_of(body: bytes) -> Abilities:
    """Nothing at all, when it is not the answer of one of ours."""
    try:
        told = msgspec.json.decode(body, type=_Told)
    except (msgspec.DecodeError, RecursionError):
        return Abilities()
    able = {name for name, value in told.features.items() if value is True}
    if told.kind != OURS or not able.issuperset(NEEDED):
        return Abilities()
    return Abilities(
        runs=True,
        steers="run_steer" in able,
        files="file_input" in able,
        roles="run_roles" in able,
        sessions="session_events_sse" in able,
    )


def _was_there(error: Exception) -> bool:
    """Whether there was a connection, and it broke."""
    broke = isinstance(
        error,
        aiohttp.ClientPayloadError
        | aiohttp.ClientResponseError
        | aiohttp.ServerDisconnectedError
        | aiohttp.ClientOSError
        | ConnectionError,
    )
    return broke and not isinstance(error, aiohttp.ClientConnectorError)
