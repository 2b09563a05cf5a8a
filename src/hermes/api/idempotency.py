"""Answers under the key that their asker gave: asked again, they are told again, not done again.

A key is written down before its turn begins. The turn goes on without its client, and its answer
is kept for whoever asks again. When there is no answer, the key is free again only if the turn did
nothing: what a tool did is done, and must not be done again.
"""

import hashlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import TypeAlias

import anyio
import msgspec
from aiohttp import web
from msgspec import Raw, Struct

from hermes.api.context import ApiContext
from hermes.api.errors import ApiError, invalid
from hermes.app.build import App
from hermes.kit.clock import Clock
from hermes.kit.process_identity import is_surely_dead, new_holder_id
from hermes.ports.records import PutRecord, StateRecord
from hermes.ports.store import Store, Write
from hermes.schema.errors import StateConflict, StoreError

log = logging.getLogger(__name__)

KEY_HEADER = "Idempotency-Key"
REPLAYED_HEADERS = {"X-Hermes-Replayed": "true"}
TURN_ERRORS = {
    409: "Another turn of this session goes on.",
    410: "The turn of this Idempotency-Key has no answer, and is not run again.",
    422: "The Idempotency-Key was used for another request.",
    429: "Too many turns go on.",
    502: "The agent gave no answer.",
    503: "The gateway is about to end, or its settings or its disk are in trouble.",
}
"""What a turn may be refused with."""
REPLY_KIND = "api_reply"
RETENTION = timedelta(hours=24)
SWEEP_INTERVAL = 3600.0
BEGUN, DONE, FREE, LOST = "begun", "done", "free", "lost"
_NO_ANSWER = Raw(b"null")


class StoredReply(Struct, frozen=True):
    """`print` is of the request: a key stands for one request only."""

    print: str
    finished: Raw = _NO_ANSWER


class KeyClaim(Struct, frozen=True):
    """The right to answer for a key, and what is written down about it."""

    topic: str
    print: str
    holder: str
    was: str = ""

    def begun(self, session: str, now: datetime) -> Write:
        """To be committed before anything is done; refused when somebody else was faster."""
        return PutRecord(self._matter(session, BEGUN, now), was=self.was)

    def done(self, session: str, finished: Raw, now: datetime) -> Write:
        """To be written together with the turn's last word."""
        return PutRecord(self._matter(session, DONE, now, finished))

    def undone(self, session: str, now: datetime, *, acted: bool) -> Write:
        """It came to nothing that is worth keeping; refused where an answer was kept."""
        return PutRecord(self._matter(session, LOST if acted else FREE, now), was=BEGUN)

    def _matter(
        self, session: str, state: str, now: datetime, finished: Raw = _NO_ANSWER
    ) -> StateRecord:
        return StateRecord(
            kind=REPLY_KIND,
            id=self.topic,
            session=session,
            state=state,
            at=now,
            body=Raw(msgspec.json.encode(StoredReply(self.print, finished))),
            open=state == BEGUN,
            holder=self.holder if state == BEGUN else "",
        )


class KeyedTurn:
    """One turn and its key, if it has one; `acted` once a tool of it has begun.

    The key is taken on disk for the length of the block, and stays so only with an answer.
    What could not be given back on disk is `unwritten`.
    """

    def __init__(
        self, store: Store, clock: Clock, claim: KeyClaim | None, session: str, unwritten: set[str]
    ) -> None:
        self._store = store
        self._clock = clock
        self._claim = claim
        self._session = session
        self._unwritten = unwritten
        self.acted = False
        self.scope = None if claim is None else anyio.CancelScope()
        """To stop the turn by: nobody else does when its client has gone."""

    @property
    def has_key(self) -> bool:
        return self._claim is not None

    async def __aenter__(self) -> None:
        if (claim := self._claim) is None:
            return
        # Whoever is cut off meanwhile must know of the row to take it back.
        with anyio.CancelScope(shield=True):
            try:
                await self._store.commit(claim.begun(self._session, self._clock.now()))
            except StateConflict as error:
                raise request_in_progress() from error
        self._unwritten.discard(claim.topic)

    async def __aexit__(self, *_: object) -> None:
        if (claim := self._claim) is None:
            return
        # What somebody stopped must not begin again because somebody else still asks for it.
        over = self.acted or (self.scope is not None and self.scope.cancel_called)
        left = claim.undone(self._session, self._clock.now(), acted=over)
        with anyio.CancelScope(shield=True):
            try:
                await self._store.commit(left)
            except StateConflict:
                # Its answer was written with its last word.
                return
            except StoreError as error:
                log.warning("an Idempotency-Key could not be given back: %s", error)
                if not over:
                    self._unwritten.add(claim.topic)

    def closing(self, finished: object) -> Sequence[Write]:
        """What is written with the turn's last word, for an answer that is worth keeping."""
        if self._claim is None:
            return ()
        told = Raw(msgspec.json.encode(finished))
        return [self._claim.done(self._session, told, self._clock.now())]


RunTurn: TypeAlias = Callable[[KeyClaim | None], Awaitable[web.StreamResponse]]
ReplayAnswer: TypeAlias = Callable[[Raw], Awaitable[web.StreamResponse]]


class IdempotentRequests:
    """Duplicates that come at the same time wait for the first."""

    def __init__(self, desk: ApiContext) -> None:
        self._desk = desk
        self._clock = desk.clock
        self._holder = new_holder_id()
        self._going_on: dict[str, tuple[str, anyio.Event]] = {}
        self._unwritten: set[str] = set()
        self._swept: dict[str, float] = {}
        self._decoder = msgspec.json.Decoder(StoredReply)

    def claim(self, app: App, request: web.Request, body: bytes, *marks: str) -> KeyClaim | None:
        """None without a key. With the body, `marks` are what makes the request what it is."""
        key = request.headers.get(KEY_HEADER)
        if key is None:
            return None
        if len(key) > 256 or not key.isprintable() or not key.strip():
            told = "An idempotency key has 1 to 256 printable characters."
            raise invalid(told, param=KEY_HEADER, code="invalid_idempotency_key")
        topic = hashlib.sha256(f"{app.home.profile}\0{key}".encode()).hexdigest()
        print_ = hashlib.sha256("".join(f"{one}\0" for one in (request.path, *marks)).encode())
        print_.update(body)
        return KeyClaim(topic, print_.hexdigest(), self._holder)

    def once(self, app: App, claim: KeyClaim | None, session: str) -> KeyedTurn:
        return KeyedTurn(app.store, self._clock, claim, session, self._unwritten)

    async def serve(
        self, app: App, claim: KeyClaim | None, run: RunTurn, again: ReplayAnswer
    ) -> web.StreamResponse:
        """What is known under its key is told `again`; else it is `run`.

        With a key it goes on when its client leaves.
        """
        if claim is None:
            return await run(None)
        known = await self._begin(app, claim)
        if isinstance(known, Raw):
            return await again(known)

        async def work() -> web.StreamResponse:
            try:
                return await run(known)
            finally:
                self._end(claim)

        return await self._desk.apart(work, "a turn under a key")

    async def _begin(self, app: App, claim: KeyClaim) -> Raw | KeyClaim:
        """The answer if there is one; else whoever asked must give it, and then `_end`."""
        while going_on := self._going_on.get(claim.topic):
            print_, ended = going_on
            _check_fingerprint(print_, claim)
            await ended.wait()
        self._going_on[claim.topic] = (claim.print, anyio.Event())
        try:
            found = await self._known(app, claim)
        except BaseException:
            self._end(claim)
            raise
        if isinstance(found, Raw):
            self._end(claim)
        return found

    def _end(self, claim: KeyClaim) -> None:
        _, ended = self._going_on.pop(claim.topic)
        ended.set()

    async def _known(self, app: App, claim: KeyClaim) -> Raw | KeyClaim:
        await self._sweep(app)
        matter = await app.store.records.get(REPLY_KIND, claim.topic)
        if matter is None:
            return claim
        again = msgspec.structs.replace(claim, was=matter.state)
        if self._is_free(matter):
            return again
        kept = self._decoder.decode(matter.body)
        _check_fingerprint(kept.print, claim)
        if bytes(kept.finished) != bytes(_NO_ANSWER):
            return kept.finished.copy()
        if matter.open:
            if matter.holder != self._holder and not is_surely_dead(matter.holder):
                raise request_in_progress()
            await mark_lost(app.store, matter, self._clock.now())
        raise turn_interrupted(matter.session)

    def _is_free(self, matter: StateRecord) -> bool:
        if matter.open:
            return matter.id in self._unwritten
        return matter.state == FREE or self._clock.now() - matter.at >= RETENTION

    async def _sweep(self, app: App) -> None:
        """Once in a while, what is too old is let go."""
        now, profile = self._clock.monotonic(), app.home.profile
        if now - self._swept.get(profile, -SWEEP_INTERVAL) < SWEEP_INTERVAL:
            return
        self._swept[profile] = now
        await app.store.records.forget(REPLY_KIND, self._clock.now() - RETENTION)


async def mark_lost(store: Store, matter: StateRecord, now: datetime) -> None:
    """Its process is gone: the key has its last answer."""
    lost = msgspec.structs.replace(matter, state=LOST, open=False, holder="", at=now)
    try:
        await store.commit(PutRecord(lost, was=matter.state))
    except StateConflict:
        # Somebody else saw it, too.
        return


async def mark_abandoned_lost(store: Store, now: datetime) -> int:
    """At a start: keys whose turns a process left behind that is gone."""
    left = await store.records.abandoned(REPLY_KIND)
    for matter in left:
        await mark_lost(store, matter, now)
    return len(left)


def request_in_progress() -> ApiError:
    told = "The first request with this key is still being answered."
    return ApiError(409, "request_in_progress", told, wait=1)


def turn_interrupted(session: str) -> ApiError:
    """Final: no client tries it again by itself, as it would after a 409 or a 5xx."""
    told = (
        "The request with this key was begun, and has no answer: "
        "its turn failed, was stopped or was cut off. "
        f"What was done until then stays done and is in session {session}. "
        "To ask again, take a new key."
    )
    headers = {"X-Hermes-Session-Id": session}
    return ApiError(410, "turn_interrupted", told, param=KEY_HEADER, headers=headers)


def _check_fingerprint(print_: str, claim: KeyClaim) -> None:
    if print_ != claim.print:
        told = f"This {KEY_HEADER} was used for another request. Take a new one."
        raise ApiError(422, "idempotency_key_reused", told, param=KEY_HEADER)
