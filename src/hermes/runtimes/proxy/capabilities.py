"""Whether the far side is one of ours, asked once in a while."""

import logging

import aiohttp
import msgspec
from msgspec import Struct, structs

from hermes.kit.clock import Clock
from hermes.runtimes.proxy.errors import broken, refused
from hermes.runtimes.proxy.line import NOT_NOW, Cut, Line, Patience, Refused
from hermes.runtimes.proxy.runtime import Far
from hermes.schema.errors import ModelError

log = logging.getLogger(__name__)

PATH = "/v1/capabilities"
OURS = "hermes.api_server.capabilities"
NEEDED = ("run_submission", "run_status", "run_events_sse", "run_stop", "idempotency_keys")
LIFE = 300.0
"""Seconds for which an answer counts."""
SOON = 15.0
"""Seconds of silence after which the question is put again."""
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
    """Remembers what the far side said of itself.

    Who gives another answer, or knows no such question, is a plain server. Who gives none is not
    taken for one: it would be told nothing of who asks, and to one of ours that is the owner.
    """

    def __init__(self, far: Far, clock: Clock) -> None:
        self._far = far
        self._clock = clock
        self._known: Abilities | None = None
        self._until = 0.0

    async def abilities(self) -> Abilities:
        """Raises `ModelError` when nobody can tell."""
        now = self._clock.monotonic()
        if self._known is not None and now < self._until:
            return self._known
        try:
            told = abilities_of(await self._ask())
        except Refused as error:
            if _is_trouble(error.status):
                return self._as_before(refused(error.status, error.body, self._far.key))
            if error.status not in UNKNOWN:
                return Abilities()
            told = Abilities()
        except Cut as error:
            return self._as_before(broken(error.cause, self._far.connect, self._far.key))
        except ModelError as error:
            return self._as_before(error)
        if told != self._known:
            log.info("the far gateway at %s: %s", self._far.url, told)
        self._known, self._until = told, now + LIFE
        return told

    def _as_before(self, trouble: ModelError) -> Abilities:
        """A link that is down says nothing about who is behind it."""
        log.info("the far gateway could not be asked what it can do: %s", trouble)
        if self._known is None:
            raise trouble
        return self._known

    async def is_plain(self) -> bool:
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
        soon = structs.replace(self._far, alive=min(SOON, self._far.alive))
        patience = Patience(soon, self._clock)
        async with Line(soon, self._clock) as line:
            while True:
                try:
                    return await line.call("GET", PATH)
                except Cut as error:
                    if self._known is not None or _nobody_is_there(error.cause):
                        raise
                    await patience.wait(error)
                except Refused as error:
                    if self._known is not None or error.status not in NOT_NOW:
                        raise
                    await patience.wait(error)


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


def _is_trouble(status: int) -> bool:
    """Whether that is no answer, but somebody on the way, or something broken, in its place."""
    return status in NOT_NOW or (status >= 500 and status not in UNKNOWN)


def _nobody_is_there(error: Exception) -> bool:
    """Whether there was no connection at all: most often the address is a wrong one."""
    return isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
