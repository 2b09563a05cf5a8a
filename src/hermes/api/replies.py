"""Answers under the key that their asker gave: asked again, they are told again, not done again.

A key is written down before its turn begins. One whose turn did not live to its end is answered
with that, and never runs again: what the turn did until then is done.
"""

import hashlib
from datetime import datetime, timedelta

import anyio
import msgspec
from msgspec import Raw, Struct

from hermes.api.completion import Finished
from hermes.api.errors import ApiError, invalid
from hermes.app.build import App
from hermes.kit.clock import Clock
from hermes.kit.holder import is_surely_dead, new_holder
from hermes.ports.matters import Matter, PutMatter
from hermes.ports.store import Store, Write
from hermes.schema.errors import Overtaken

HEADER = "Idempotency-Key"
KIND = "api_reply"
KEPT = timedelta(hours=24)
SWEEP = 3600.0
BEGUN, DONE, FREE, LOST = "begun", "done", "free", "lost"


class Kept(Struct, frozen=True):
    """`print` is of the request: a key stands for one request only."""

    print: str
    finished: Finished | None = None


class Claim(Struct, frozen=True):
    """The right to answer for a key, and what is written down about it."""

    topic: str
    print: str
    holder: str
    was: str = ""

    def begun(self, session: str, now: datetime) -> Write:
        """To be committed before anything is done; refused when somebody else was faster."""
        return PutMatter(self._matter(session, BEGUN, now), was=self.was)

    def done(self, session: str, finished: Finished, now: datetime) -> Write:
        """To be written together with the turn's last word."""
        return PutMatter(self._matter(session, DONE, now, finished))

    def free(self, session: str, now: datetime) -> Write:
        """It came to nothing that is worth keeping: whoever asks again is answered anew."""
        return PutMatter(self._matter(session, FREE, now))

    def _matter(
        self, session: str, state: str, now: datetime, finished: Finished | None = None
    ) -> Matter:
        return Matter(
            kind=KIND,
            id=self.topic,
            session=session,
            state=state,
            at=now,
            body=Raw(msgspec.json.encode(Kept(self.print, finished))),
            open=state == BEGUN,
            holder=self.holder if state == BEGUN else "",
        )


class Replies:
    """Duplicates that come at the same time wait for the first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._holder = new_holder()
        self._going_on: dict[str, tuple[str, anyio.Event]] = {}
        self._swept: dict[str, float] = {}
        self._decoder = msgspec.json.Decoder(Kept)

    def claim(self, app: App, key: str, request: bytes) -> Claim:
        """`request` is all that makes the request what it is."""
        if len(key) > 256 or not key.isprintable():
            told = "The key may have 256 printable characters."
            raise invalid(told, param=HEADER, code="invalid_idempotency_key")
        topic = hashlib.sha256(f"{app.home.profile}\0{key}".encode()).hexdigest()
        return Claim(topic, hashlib.sha256(request).hexdigest(), self._holder)

    async def begin(self, app: App, claim: Claim) -> Finished | Claim:
        """The answer if there is one; else whoever asked must give it, and then call `end`."""
        while going_on := self._going_on.get(claim.topic):
            print_, ended = going_on
            _check(print_, claim)
            await ended.wait()
        self._going_on[claim.topic] = (claim.print, anyio.Event())
        try:
            found = await self._known(app, claim)
        except BaseException:
            self.end(claim)
            raise
        if isinstance(found, Finished):
            self.end(claim)
        return found

    def end(self, claim: Claim) -> None:
        _, ended = self._going_on.pop(claim.topic)
        ended.set()

    async def _known(self, app: App, claim: Claim) -> Finished | Claim:
        await self._sweep(app)
        matter = await app.store.matters.get(KIND, claim.topic)
        if matter is None:
            return claim
        again = msgspec.structs.replace(claim, was=matter.state)
        if matter.state == FREE or (not matter.open and self._clock.now() - matter.at >= KEPT):
            return again
        kept = self._decoder.decode(matter.body)
        _check(kept.print, claim)
        if kept.finished is not None:
            return kept.finished
        if matter.open:
            if matter.holder != self._holder and not is_surely_dead(matter.holder):
                raise in_progress()
            await lose(app.store, matter, self._clock.now())
        raise interrupted(matter.session)

    async def _sweep(self, app: App) -> None:
        """Once in a while, what is too old is let go."""
        now, profile = self._clock.monotonic(), app.home.profile
        if now - self._swept.get(profile, -SWEEP) < SWEEP:
            return
        self._swept[profile] = now
        await app.store.matters.forget(KIND, self._clock.now() - KEPT)


async def lose(store: Store, matter: Matter, now: datetime) -> None:
    """Its process is gone: the key has its last answer."""
    lost = msgspec.structs.replace(matter, state=LOST, open=False, holder="", at=now)
    try:
        await store.commit(PutMatter(lost, was=matter.state))
    except Overtaken:
        # Somebody else saw it, too.
        return


async def lose_abandoned(store: Store, now: datetime) -> int:
    """At a start: keys whose turns a process left behind that is gone."""
    left = await store.matters.abandoned(KIND)
    for matter in left:
        await lose(store, matter, now)
    return len(left)


def in_progress() -> ApiError:
    told = "The first request with this key is still being answered."
    return ApiError(409, "request_in_progress", told, wait=1)


def interrupted(session: str) -> ApiError:
    """Final: no client tries it again by itself, as it would after a 409 or a 5xx."""
    told = (
        "The gateway ended while the request with this key was being answered. What was done until "
        f"then stays done and is in session {session}. To ask again, take a new key."
    )
    headers = {"X-Hermes-Session-Id": session}
    return ApiError(410, "turn_interrupted", told, param=HEADER, headers=headers)


def _check(print_: str, claim: Claim) -> None:
    if print_ != claim.print:
        told = f"This {HEADER} was used for another request. Take a new one."
        raise ApiError(422, "idempotency_key_reused", told, param=HEADER)
