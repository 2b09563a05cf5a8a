"""Idempotency keys: a repeated request gets the first answer and does not run again.

A key is stored before its turn begins. The turn continues without its client, and its answer is
stored for replay. Without an answer the key is released only if no tool ran, because effects of
tools must not be repeated.
"""

import hashlib
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TypeAlias

import anyio
import msgspec
from aiohttp import web
from msgspec import Raw, Struct

from hermes.api.context import KEY_HEADER, SESSION_ID_HEADER, ApiContext
from hermes.api.errors import ApiError, invalid
from hermes.app.build import App
from hermes.kit.clock import Clock
from hermes.ports.api_records import BEGUN, DONE, FREE, LOST, KeyedRequest, PutKeyedRequest
from hermes.ports.store import Store, Write
from hermes.schema.errors import StateConflict, StoreError

log = logging.getLogger(__name__)

REPLAYED_HEADERS = {"X-Hermes-Replayed": "true"}
TURN_ERRORS = {
    402: "The provider's account has no credit left.",
    409: "Another turn of this session is running.",
    410: "The turn of this Idempotency-Key has no answer and is not run again.",
    422: "The Idempotency-Key was used for a different request.",
    429: "Too many turns are running, or the provider is rate limited.",
    502: "The agent returned no answer.",
    503: "The gateway is shutting down, its settings or storage have a problem, or the provider "
    "is overloaded.",
    504: "The provider did not answer in time.",
}
"""Statuses with which a turn may be rejected."""
RETENTION = timedelta(hours=24)
SWEEP_INTERVAL = 3600.0
MAX_KEY = 256
_VISIBLE = re.compile(r"[\x21-\x7e]+( [\x21-\x7e]+)*")


class KeyClaim(Struct, frozen=True):
    """A key and the request that came with it."""

    topic: str
    fingerprint: str
    holder: str
    previous_state: str = ""

    def write(
        self,
        session: str,
        state: str,
        now: datetime,
        *,
        expected: str | None,
        answer: Raw | None = None,
    ) -> Write:
        """Return the write that changes the key from the expected state to this one."""
        record = KeyedRequest(
            id=self.topic,
            session=session,
            state=state,
            fingerprint=self.fingerprint,
            at=now,
            answer=answer,
            holder=self.holder if state == BEGUN else "",
        )
        return PutKeyedRequest(record, expected_state=expected)


class KeyedTurn:
    """One turn and its key, if any; `acted` is set once a tool has started.

    Inside the block the key is taken in the store; it stays taken only with an answer. Keys that
    could not be released in the store are collected in `unwritten`.
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
        """Cancel this to stop the turn; it does not end when its client disconnects."""

    async def __aenter__(self) -> None:
        if (claim := self._claim) is None:
            return
        now, expected = self._clock.now(), claim.previous_state
        # Cancelling the commit halfway would leave a row that cannot be released.
        with anyio.CancelScope(shield=True):
            try:
                await self._store.commit(claim.write(self._session, BEGUN, now, expected=expected))
            except StateConflict as error:
                raise request_in_progress() from error
        self._unwritten.discard(claim.topic)

    async def __aexit__(self, *_: object) -> None:
        if (claim := self._claim) is None:
            return
        # A stopped turn must not run again when another client repeats the request.
        is_final = self.acted or (self.scope is not None and self.scope.cancel_called)
        state, now = LOST if is_final else FREE, self._clock.now()
        release = claim.write(self._session, state, now, expected=BEGUN)
        with anyio.CancelScope(shield=True):
            try:
                await self._store.commit(release)
            except StateConflict:
                # The answer was stored with the end of the turn.
                return
            except StoreError as error:
                log.warning("cannot release an Idempotency-Key: %s", error)
                if not is_final:
                    self._unwritten.add(claim.topic)

    def final_writes(self, finished: object) -> Sequence[Write]:
        """Return the write that stores the answer, to be committed with the end of the turn."""
        if self._claim is None:
            return ()
        answer, now = Raw(msgspec.json.encode(finished)), self._clock.now()
        return [self._claim.write(self._session, DONE, now, expected=None, answer=answer)]


RunTurn: TypeAlias = Callable[[KeyClaim | None], Awaitable[web.StreamResponse]]
ReplayAnswer: TypeAlias = Callable[[Raw], Awaitable[web.StreamResponse]]


class IdempotentRequests:
    """Deduplicates requests; concurrent duplicates wait for the first one."""

    def __init__(self, context: ApiContext) -> None:
        self._context = context
        self._clock = context.clock
        self._running: dict[str, tuple[str, anyio.Event]] = {}
        self._unwritten: set[str] = set()
        self._swept: dict[str, float] = {}

    def claim(self, app: App, request: web.Request, body: bytes, *extra: str) -> KeyClaim | None:
        """Return the claim, or None without a key. `extra` belong to the request's fingerprint."""
        key = request.headers.get(KEY_HEADER)
        if key is None:
            return None
        if len(key) > MAX_KEY or not key.isprintable() or not key.strip():
            message = f"An idempotency key must have 1 to {MAX_KEY} printable characters."
            raise invalid(message, param=KEY_HEADER, code="invalid_idempotency_key")
        topic = hashlib.sha256(f"{app.home.profile}\0{key}".encode()).hexdigest()
        fingerprint = hashlib.sha256("".join(f"{one}\0" for one in (request.path, *extra)).encode())
        fingerprint.update(body)
        return KeyClaim(topic, fingerprint.hexdigest(), app.store.workers.own)

    def keyed_turn(self, app: App, claim: KeyClaim | None, session: str) -> KeyedTurn:
        return KeyedTurn(app.store, self._clock, claim, session, self._unwritten)

    async def serve(
        self, app: App, claim: KeyClaim | None, run: RunTurn, replay: ReplayAnswer
    ) -> web.StreamResponse:
        """Replay the stored answer of the key with `replay`, or `run` the turn.

        A turn with a key continues when its client disconnects.
        """
        if claim is None:
            return await run(None)
        answer = await self._begin(app, claim)
        if isinstance(answer, Raw):
            return await replay(answer)

        async def work() -> web.StreamResponse:
            try:
                return await run(answer)
            finally:
                self._end(claim)

        return await self._context.run_detached(work, "turn with an idempotency key")

    async def _begin(self, app: App, claim: KeyClaim) -> Raw | KeyClaim:
        """Return the stored answer, or a claim whose holder must run the turn and call `_end`."""
        while running := self._running.get(claim.topic):
            fingerprint, ended = running
            _check_fingerprint(fingerprint, claim)
            await ended.wait()
        self._running[claim.topic] = (claim.fingerprint, anyio.Event())
        try:
            found = await self._known(app, claim)
        except BaseException:
            self._end(claim)
            raise
        if isinstance(found, Raw):
            self._end(claim)
        return found

    def _end(self, claim: KeyClaim) -> None:
        _, ended = self._running.pop(claim.topic)
        ended.set()

    async def _known(self, app: App, claim: KeyClaim) -> Raw | KeyClaim:
        await self._sweep(app)
        record = await app.store.api.keyed_request(claim.topic)
        if record is None:
            return claim
        reclaimed = msgspec.structs.replace(claim, previous_state=record.state)
        if self._is_free(record):
            return reclaimed
        _check_fingerprint(record.fingerprint, claim)
        if record.answer is not None:
            return record.answer
        if record.state == BEGUN:
            workers = app.store.workers
            if record.holder != workers.own and await workers.alive(record.holder):
                raise request_in_progress()
            await mark_lost(app.store, record, self._clock.now())
            # Its process may have stored the answer meanwhile.
            record = await app.store.api.keyed_request(claim.topic) or record
            if record.answer is not None:
                return record.answer
        raise turn_interrupted(record.session)

    def _is_free(self, record: KeyedRequest) -> bool:
        if record.state == BEGUN:
            return record.id in self._unwritten
        return record.state == FREE or self._clock.now() - record.at >= RETENTION

    async def _sweep(self, app: App) -> None:
        """Delete old answers from time to time."""
        now, profile = self._clock.monotonic(), app.home.profile
        if now - self._swept.get(profile, -SWEEP_INTERVAL) < SWEEP_INTERVAL:
            return
        self._swept[profile] = now
        await app.store.api.forget_requests(self._clock.now() - RETENTION)


async def mark_lost(store: Store, record: KeyedRequest, now: datetime) -> None:
    """Mark the turn of a dead process as having no answer."""
    lost = msgspec.structs.replace(record, state=LOST, holder="", at=now)
    # Another process may have marked it first.
    with suppress(StateConflict):
        await store.commit(PutKeyedRequest(lost, expected_state=record.state))


async def mark_abandoned_lost(store: Store, now: datetime) -> int:
    """At startup, mark the keys of turns whose process is gone; return their number."""
    records = await store.api.abandoned_requests()
    for record in records:
        await mark_lost(store, record, now)
    return len(records)


def run_key(header: str | None, body: bytes, kind: str) -> tuple[str, str]:
    """Return a run's key and fingerprint, both empty without a key. Raises `ApiError`."""
    if header is None:
        return "", ""
    key = header.strip()
    if not 0 < len(key) <= MAX_KEY or not _VISIBLE.fullmatch(key):
        message = f"An idempotency key must have 1 to {MAX_KEY} visible characters."
        raise invalid(message, param=KEY_HEADER, code="invalid_idempotency_key")
    return f"{kind}:{key}", hashlib.sha256(body).hexdigest()


def request_in_progress() -> ApiError:
    message = "The first request with this key is still running."
    return ApiError(409, "request_in_progress", message, wait=1)


def turn_interrupted(session: str) -> ApiError:
    """Not retryable: clients do not repeat a 410 on their own, unlike a 409 or 5xx."""
    message = (
        "The request with this key was started but has no answer: its turn failed, was "
        f"stopped or was interrupted. What it did until then is in session {session}. To "
        "try again, use a new key."
    )
    headers = {SESSION_ID_HEADER: session}
    return ApiError(410, "turn_interrupted", message, param=KEY_HEADER, headers=headers)


def key_reused() -> ApiError:
    message = f"This {KEY_HEADER} was used for a different request. Use a new key."
    return ApiError(422, "idempotency_key_reused", message, param=KEY_HEADER)


def _check_fingerprint(fingerprint: str, claim: KeyClaim) -> None:
    if fingerprint != claim.fingerprint:
        raise key_reused()
