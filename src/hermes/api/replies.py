"""Answers under the key that their asker gave: asked again, they are told again, not done again."""

import hashlib
from datetime import datetime, timedelta

import anyio
import msgspec
from msgspec import Raw, Struct

from hermes.api.completion import Finished
from hermes.api.errors import ApiError, invalid
from hermes.app.build import App
from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
from hermes.ports.store import Done, Parcel, Post

HEADER = "Idempotency-Key"
LANE = "api_replies"
KEPT = timedelta(hours=24)
SWEEP = 3600.0
_BATCH = 200


class Kept(Struct, frozen=True):
    """`print` is of the request: a key stands for one request only."""

    print: str
    at: datetime
    finished: Finished


class Claim(Struct, frozen=True):
    """The right to answer for a key, and where the answer goes."""

    topic: str
    print: str

    def post(self, finished: Finished, now: datetime) -> Post:
        """To be written together with the turn's last word."""
        body = Raw(msgspec.json.encode(Kept(self.print, now, finished)))
        key = f"{LANE}:{self.topic}:{new_id('reply')}"
        return Post(Parcel(key=key, lane=LANE, topic=self.topic, body=body))


class Replies:
    """Duplicates that come at the same time wait for the first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._going_on: dict[str, tuple[str, anyio.Event]] = {}
        self._swept: dict[str, float] = {}
        self._decoder = msgspec.json.Decoder(Kept)

    def claim(self, app: App, key: str, request: bytes) -> Claim:
        """`request` is all that makes the request what it is."""
        if len(key) > 256 or not key.isprintable():
            told = "The key may have 256 printable characters."
            raise invalid(told, param=HEADER, code="invalid_idempotency_key")
        topic = hashlib.sha256(f"{app.home.profile}\0{key}".encode()).hexdigest()
        return Claim(topic, hashlib.sha256(request).hexdigest())

    async def begin(self, app: App, claim: Claim) -> Finished | None:
        """The answer if there is one; else whoever asked must give it, and then call `end`."""
        while going_on := self._going_on.get(claim.topic):
            print_, ended = going_on
            _check(print_, claim)
            await ended.wait()
        self._going_on[claim.topic] = (claim.print, anyio.Event())
        try:
            kept = await self._kept(app, claim.topic)
            if kept is not None:
                _check(kept.print, claim)
                self.end(claim)
                return kept.finished
        except BaseException:
            self.end(claim)
            raise
        return None

    def end(self, claim: Claim) -> None:
        _, ended = self._going_on.pop(claim.topic)
        ended.set()

    async def _kept(self, app: App, topic: str) -> Kept | None:
        await self._sweep(app)
        parcels = await app.store.lanes.claim(LANE, topic, "api", timedelta(0), _BATCH)
        kept = [self._decoder.decode(parcel.body) for parcel in parcels]
        young = [one for one in kept if self._clock.now() - one.at < KEPT]
        return young[-1] if young else None

    async def _sweep(self, app: App) -> None:
        """Once in a while, what is too old is let go."""
        now, profile = self._clock.monotonic(), app.home.profile
        if now - self._swept.get(profile, -SWEEP) < SWEEP:
            return
        self._swept[profile] = now
        while True:
            parcels = await app.store.lanes.claim(LANE, None, "api", timedelta(0), _BATCH)
            ages = [(one.key, self._decoder.decode(one.body).at) for one in parcels]
            old = [Done(key) for key, at in ages if self._clock.now() - at >= KEPT]
            if old:
                await app.store.commit(*old)
            if len(old) < _BATCH:
                return


def _check(print_: str, claim: Claim) -> None:
    if print_ != claim.print:
        told = f"This {HEADER} was used for another request. Take a new one."
        raise ApiError(422, "idempotency_key_reused", told, param=HEADER)
