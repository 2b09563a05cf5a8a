"""A model that does not give up at the first trouble: it waits, changes keys, changes models.

Only requests are repeated here, never turns. Every call has an end: so many tries for each
model, so many attempts in all, and no wait longer than a person would bear.
"""

import logging
import math
import random
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager

from anyio import CancelScope
from msgspec import Struct

from hermes.kit.clock import Clock
from hermes.kit.retry import Backoff
from hermes.kit.text import plural
from hermes.models.key_ring import KeyRing
from hermes.models.model_profile import ModelProfile
from hermes.ports.model import Model, ModelChunk, ModelRequest
from hermes.schema.errors import (
    ModelError,
    ModelNotFound,
    NotRunning,
    OutOfCredit,
    RateLimited,
    Unauthorized,
    Unreachable,
)
from hermes.schema.events import Notice, ReasoningDelta, StreamReset, TextDelta
from hermes.schema.messages import Assistant

log = logging.getLogger(__name__)

_MAX_RUNS = 256

_NEEDS_OTHER_KEY_OR_MODEL = Unauthorized | OutOfCredit | ModelNotFound | NotRunning
"""What is not worth another try here, but may go well with another key or model."""

_CONTENT_DELTAS = (TextDelta, ReasoningDelta)

_REASONS = {
    "auth": "the key was refused",
    "billing": "no credit left",
    "rate_limit": "rate limited",
    "overloaded": "overloaded",
    "network": "no connection",
    "model_not_found": "no such model",
}


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """`tries` are per model, `attempts` for the whole call; the rest is seconds."""

    tries: int = 3
    attempts: int = 8
    longest_wait: float = 60.0
    cool_down: float = 60.0
    bad_key_rest: float = 3600.0
    backoff: Backoff = Backoff()


class KeyedModel:
    """One model at one provider, with its keys. `gap` is the least time between requests."""

    def __init__(
        self,
        model: Model,
        ring: KeyRing | None = None,
        bind: Callable[[str], Model] | None = None,
        *,
        gap: float = 0.0,
    ) -> None:
        self.model = model
        self.ring = ring or KeyRing(())
        self.gap = gap
        self.cooling_until = -math.inf
        self.free_at = -math.inf
        self._bind = bind
        self._bound = ("", model)

    def with_key(self, key: str) -> Model:
        if self._bind is not None and self._bound[0] != key:
            self._bound = (key, self._bind(key))
        return self._bound[1]

    def __str__(self) -> str:
        return f"{self.model.name} at {self.model.provider}"


class _RequestState:
    """What one call has been through so far."""

    def __init__(self, routes: list[KeyedModel]) -> None:
        self.ahead = routes[1:]
        self.route = routes[0]
        self.tried = [routes[0]]
        self.total = 0
        self.tries = 1
        self.spoke = False

    def next_route(self) -> KeyedModel:
        self.route = self.ahead.pop(0)
        self.tried.append(self.route)
        self.tries = 1
        return self.route


class _NextStep(Struct, frozen=True):
    """What comes next: a word to people, then a wait."""

    notice: str
    wait: float = 0.0


class ResilientModel:
    """Implements `ports.model.Model` over a chain of routes, the first of them preferred.

    A run stays with the model that answered it; the preferred one returns with a later
    run, once its cool-down is over.
    """

    def __init__(
        self,
        routes: Sequence[KeyedModel],
        clock: Clock,
        policy: RetryPolicy = RetryPolicy(),  # noqa: B008 - a frozen value
        *,
        chance: Callable[[], float] = random.random,
        closing: Callable[[], Awaitable[None]] | None = None,
        profile: ModelProfile = ModelProfile(),  # noqa: B008 - likewise
    ) -> None:
        if not routes:
            raise ValueError("a chain needs at least one model")
        self._routes = list(routes)
        self._clock = clock
        self._policy = policy
        self._chance = chance
        self._closing = closing
        self.profile = profile
        """Of the preferred model."""
        self._answered: OrderedDict[str, KeyedModel] = OrderedDict()
        self._answering = 0
        self._replaced = False

    @property
    def name(self) -> str:
        return self._routes[0].model.name

    @property
    def provider(self) -> str:
        return self._routes[0].model.provider

    @property
    def window(self) -> int:
        return self._routes[0].model.window

    async def aclose(self) -> None:
        if self._closing:
            await self._closing()

    async def replaced(self) -> None:
        """Another one is there for new turns: from now on it is closed after each answer.

        A turn that has it still may go on for as long as it likes.
        """
        self._replaced = True
        if not self._answering:
            await self.aclose()

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[ModelChunk]]:
        self._answering += 1
        try:
            async with aclosing(self._run(request)) as chunks:
                yield chunks
        finally:
            self._answering -= 1
            if self._replaced and not self._answering:
                with CancelScope(shield=True):
                    await self.aclose()

    async def _run(self, request: ModelRequest) -> AsyncGenerator[ModelChunk]:
        so_far = _RequestState(self._order(request.run))
        while True:
            route = so_far.route
            await self._pace(route)
            key = route.ring.take(self._clock.monotonic())
            so_far.total += 1
            try:
                async with route.with_key(key).stream(request) as chunks:
                    async for chunk in chunks:
                        if isinstance(chunk, Assistant):
                            self._remember(request.run, route)
                            yield chunk
                            return
                        so_far.spoke = so_far.spoke or isinstance(chunk, _CONTENT_DELTAS)
                        yield chunk
                raise Unreachable(f"{route} ended without an answer")
            except ModelError as error:
                try:
                    move = self._after(error, key, so_far)
                finally:
                    await route.ring.remember()
            if so_far.spoke:
                so_far.spoke = False
                yield StreamReset(move.notice)
            yield Notice(move.notice)
            if move.wait:
                await self._clock.sleep(move.wait)

    def _order(self, run: str) -> list[KeyedModel]:
        """The model that already answered in this run, then the rested ones, then the others."""
        now = self._clock.monotonic()
        ordered = sorted(self._routes, key=lambda route: route.cooling_until > now)
        stuck = self._answered.get(run)
        return [stuck, *(route for route in ordered if route is not stuck)] if stuck else ordered

    def _remember(self, run: str, route: KeyedModel) -> None:
        route.cooling_until = -math.inf
        if not run:
            return
        self._answered[run] = route
        self._answered.move_to_end(run)
        if len(self._answered) > _MAX_RUNS:
            self._answered.popitem(last=False)

    async def _pace(self, route: KeyedModel) -> None:
        if not route.gap:
            return
        now = self._clock.monotonic()
        start = max(now, route.free_at)
        route.free_at = start + route.gap
        if start > now:
            await self._clock.sleep(start - now)

    def _after(self, error: ModelError, key: str, so_far: _RequestState) -> _NextStep:
        """Decide what follows a failure, or raise when nothing does."""
        log.warning("attempt %d, %s: %s: %s", so_far.total, so_far.route, error.code, error)
        if not (error.retryable or isinstance(error, _NEEDS_OTHER_KEY_OR_MODEL)):
            raise error
        if so_far.total >= self._policy.attempts:
            raise _final_error(error, so_far) from error
        return (
            self._another_key(error, key, so_far.route)
            or self._another_try(error, so_far)
            or self._another_model(error, so_far)
        )

    def _another_key(self, error: ModelError, key: str, route: KeyedModel) -> _NextStep | None:
        now = self._clock.monotonic()
        match error:
            case Unauthorized() | OutOfCredit():
                rest = self._policy.bad_key_rest
            case RateLimited():
                rest = error.wait or self._policy.cool_down
            case _:
                return None
        route.ring.start_cooldown(key, now, rest, error.code)
        if not route.ring.has_ready(now):
            return None
        return _NextStep(f"{route.model.provider}: {_REASONS[error.code]}, trying another key")

    def _another_try(self, error: ModelError, so_far: _RequestState) -> _NextStep | None:
        policy = self._policy
        if not error.retryable or so_far.tries >= policy.tries:
            return None
        wait = policy.backoff.delay(so_far.tries, self._chance)
        if error.wait is not None:
            wait = max(error.wait, 0.1)
        if wait > policy.longest_wait:
            return None
        so_far.tries += 1
        return _NextStep(
            f"{so_far.route.model.provider}: {_REASONS[error.code]}, trying again in "
            f"{math.ceil(wait)} s ({so_far.tries} of {policy.tries})",
            wait,
        )

    def _another_model(self, error: ModelError, so_far: _RequestState) -> _NextStep:
        failed = so_far.route
        rest = max(self._policy.cool_down, error.wait or 0.0)
        failed.cooling_until = self._clock.monotonic() + rest
        if not so_far.ahead:
            raise _final_error(error, so_far) from error
        return _NextStep(f"{failed}: {_REASONS[error.code]}, going on with {so_far.next_route()}")


def _final_error(error: ModelError, so_far: _RequestState) -> ModelError:
    """The last error again, saying how much was tried and what is left to do."""
    if so_far.total == 1 and error.hint:
        return error
    told = f"{error} (gave up after {plural(so_far.total, 'attempt')}"
    if len(so_far.tried) > 1:
        told += " with " + ", ".join(map(str, so_far.tried))
    waiting = (
        f" It asks to wait {_format_seconds(error.wait)}." if error.wait and error.wait > 1 else ""
    )
    hint = error.hint or "Try again later, or choose another model: hermes model"
    return type(error)(told + ")", hint=hint + waiting, wait=error.wait)


def _format_seconds(seconds: float) -> str:
    if seconds < 120:
        return plural(math.ceil(seconds), "second")
    return plural(math.ceil(seconds / 60), "minute")
