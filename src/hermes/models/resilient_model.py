"""A model that handles failures: it retries, switches keys, and falls back to other models.

Only requests are repeated here, never turns. Every call is bounded: in tries per model, in
attempts overall, and in the length of each wait.
"""

import logging
import math
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from anyio import CancelScope
from msgspec import Struct, field

from hermes.kit.clock import Clock
from hermes.kit.lru_map import LruMap
from hermes.kit.retry import Backoff
from hermes.kit.text import plural
from hermes.models.endpoint import (
    MAX_REQUEST_SECONDS,
    Endpoint,
    EndpointSettings,
    endpoint_settings,
)
from hermes.models.images import ImageUrls
from hermes.models.key_pool import CooldownStore, KeyRing
from hermes.models.providers import EMBEDDED, ModelProfile
from hermes.models.resolver import ModelTarget, ResolvedModels
from hermes.models.urls import ANTHROPIC, API_MODES, CHAT, GEMINI, RESPONSES
from hermes.models.wire.codec import Wire
from hermes.models.wire_model import WireModel
from hermes.ports.model import Model, ModelChunk, ModelRequest
from hermes.ports.plugins import BuildModel
from hermes.ports.store import Blobs
from hermes.schema.errors import (
    ConfigError,
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

if TYPE_CHECKING:
    from hermes.models.embedded.model import EngineQueue

log = logging.getLogger(__name__)

_MAX_RUNS = 256

_NEEDS_OTHER_KEY_OR_MODEL = Unauthorized | OutOfCredit | ModelNotFound | NotRunning
"""Not worth a retry, but another key or model may work."""

_CONTENT_DELTAS = (TextDelta, ReasoningDelta)

_REASONS = {
    "auth": "the key was rejected",
    "billing": "no credit left",
    "rate_limit": "rate limited",
    "overloaded": "overloaded",
    "network": "no connection",
    "timeout": "no answer in time",
    "model_not_found": "no such model",
}


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """`tries` are per model, `attempts` for the whole call; the rest is seconds."""

    tries: int = 3
    attempts: int = 8
    max_wait: float = 60.0
    cooldown: float = 60.0
    bad_key_cooldown: float = 3600.0
    backoff: Backoff = Backoff()


class KeyedModel(Struct, eq=False):
    """A model at a provider, with its keys. `min_interval` is in seconds between requests.

    `by_key` holds the model that uses a key, if it is not `model`.
    """

    model: Model
    ring: KeyRing = field(default_factory=partial(KeyRing, ()))
    by_key: Mapping[str, Model] = {}
    min_interval: float = 0.0
    cooling_until: float = -math.inf
    free_at: float = -math.inf

    def __str__(self) -> str:
        return f"{self.model.name} at {self.model.provider}"


class _RequestState(Struct):
    run: str
    model: KeyedModel
    remaining: list[KeyedModel]
    tried: list[KeyedModel]
    total: int = 0
    tries: int = 1
    has_content: bool = False

    def next_model(self) -> KeyedModel:
        self.model = self.remaining.pop(0)
        self.tried.append(self.model)
        self.tries = 1
        return self.model


class _NextStep(Struct, frozen=True):
    """What follows a failure: a notice to the user, then a wait."""

    notice: str
    wait: float = 0.0

    @property
    def passing(self) -> bool:
        """Whether the notice is transient: it is for a retry, but not for another model or key."""
        return self.wait > 0


class ResilientModel:
    """Implements `ports.model.Model` over a chain of models, the first of them preferred.

    A run stays with the model that answered it; later runs return to the preferred one, once its
    cooldown is over.
    """

    def __init__(
        self,
        routes: Sequence[KeyedModel],
        clock: Clock,
        policy: RetryPolicy = RetryPolicy(),  # noqa: B008 - a frozen value
        *,
        chance: Callable[[], float] = random.random,
        close: Callable[[], Awaitable[None]] | None = None,
        profile: ModelProfile = ModelProfile(),  # noqa: B008 - see above
    ) -> None:
        if not routes:
            raise ValueError("a chain needs at least one model")
        preferred = routes[0].model
        self.name, self.provider, self.window = preferred.name, preferred.provider, preferred.window
        self._routes = list(routes)
        self._clock = clock
        self._policy = policy
        self._chance = chance
        self._closing = close
        self.profile = profile
        """Profile of the preferred model."""
        self._answered: LruMap[str, KeyedModel] = LruMap(_MAX_RUNS)
        self._answering = 0
        self._replaced = False

    async def aclose(self) -> None:
        if self._closing:
            await self._closing()

    async def close_when_idle(self) -> None:
        """Mark the model as replaced for new turns: it is closed after each remaining answer.

        Turns that still use it can continue.
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
        first, *others = self._order(request.run) if len(self._routes) > 1 else self._routes
        state = _RequestState(request.run, first, others, [first])
        while True:
            route = state.model
            if route.min_interval:
                await self._pace(route)
            key = route.ring.next_key(self._clock.monotonic())
            state.total += 1
            try:
                model = route.by_key.get(key, route.model)
                async with model.stream(request) as chunks:
                    async for chunk in chunks:
                        if isinstance(chunk, Assistant):
                            route.cooling_until = -math.inf
                            if request.run and len(self._routes) > 1:
                                self._answered.put(request.run, route)
                            yield chunk
                            return
                        state.has_content = state.has_content or isinstance(chunk, _CONTENT_DELTAS)
                        yield chunk
                raise Unreachable(f"{route} ended without an answer")
            except ModelError as error:
                try:
                    step = self._after(error, key, state)
                finally:
                    await route.ring.save_cooldowns()
            if state.has_content:
                state.has_content = False
                yield StreamReset(step.notice)
            yield Notice(step.notice, passing=step.passing)
            if step.wait:
                await self._clock.sleep(step.wait)

    def _order(self, run: str) -> list[KeyedModel]:
        """Order: the model that already answered in this run, then ready ones, then the others."""
        now = self._clock.monotonic()
        ready = [route for route in self._routes if route.cooling_until <= now]
        ordered = [*ready, *(route for route in self._routes if route not in ready)]
        sticky = self._answered.get(run)
        return [sticky, *(route for route in ordered if route is not sticky)] if sticky else ordered

    async def _pace(self, route: KeyedModel) -> None:
        now = self._clock.monotonic()
        start = max(now, route.free_at)
        route.free_at = start + route.min_interval
        if start > now:
            await self._clock.sleep(start - now)

    def _after(self, error: ModelError, key: str, state: _RequestState) -> _NextStep:
        """Return what follows a failure, or raise if nothing does."""
        log.warning("attempt %d, %s: %s: %s", state.total, state.model, error.code, error)
        if not (error.retryable or isinstance(error, _NEEDS_OTHER_KEY_OR_MODEL)):
            raise error
        if state.total >= self._policy.attempts:
            raise _final_error(error, state) from error
        return (
            self._another_key(error, key, state.model)
            or self._another_try(error, state)
            or self._another_model(error, state)
        )

    def _another_key(self, error: ModelError, key: str, route: KeyedModel) -> _NextStep | None:
        now = self._clock.monotonic()
        match error:
            case Unauthorized() | OutOfCredit():
                cooldown = self._policy.bad_key_cooldown
            case RateLimited():
                cooldown = error.wait or self._policy.cooldown
            case _:
                return None
        route.ring.start_cooldown(key, now, cooldown, error.code)
        if not route.ring.has_ready(now):
            return None
        return _NextStep(f"{route.model.provider}: {_REASONS[error.code]}, trying another key")

    def _another_try(self, error: ModelError, state: _RequestState) -> _NextStep | None:
        policy = self._policy
        if not error.retryable or state.tries >= policy.tries or self._failed_recently(state):
            return None
        wait = policy.backoff.delay(state.tries, self._chance)
        if error.wait is not None:
            wait = max(error.wait, 0.1)
        if wait > policy.max_wait:
            return None
        state.tries += 1
        return _NextStep(
            f"{state.model.model.provider}: {_REASONS[error.code]}, trying again in "
            f"{math.ceil(wait)} s ({state.tries} of {policy.tries})",
            wait,
        )

    def _failed_recently(self, state: _RequestState) -> bool:
        """Whether an earlier run has used up its tries on this model a short time ago.

        A client that repeats a failed request would otherwise multiply our tries by its own. A
        run that the model has already answered gets all its tries.
        """
        is_cooling = state.model.cooling_until > self._clock.monotonic()
        return is_cooling and self._answered.get(state.run) is not state.model

    def _another_model(self, error: ModelError, state: _RequestState) -> _NextStep:
        failed = state.model
        cooldown = max(self._policy.cooldown, error.wait or 0.0)
        failed.cooling_until = self._clock.monotonic() + cooldown
        if not state.remaining:
            raise _final_error(error, state) from error
        return _NextStep(f"{failed}: {_REASONS[error.code]}, switching to {state.next_model()}")


def _final_error(error: ModelError, state: _RequestState) -> ModelError:
    """Return the last error, with the number of attempts and what to do next."""
    if state.total == 1 and error.hint:
        return error
    message = f"{error} (gave up after {plural(state.total, 'attempt')}"
    if len(state.tried) > 1:
        message += " with " + ", ".join(map(str, state.tried))
    waiting = (
        f"Retry after {_format_seconds(error.wait)}. " if error.wait and error.wait > 1 else ""
    )
    hint = error.hint or "Try again later, or choose another model: hermes model"
    return type(error)(message + ")", hint=waiting + hint, wait=error.wait)


def _format_seconds(seconds: float) -> str:
    if seconds < 120:
        return plural(math.ceil(seconds), "second")
    return plural(math.ceil(seconds / 60), "minute")


def no_provider(name: str) -> BuildModel | None:
    return None


def build_model(
    resolved: ResolvedModels,
    blobs: Blobs,
    clock: Clock,
    cooldowns: Callable[[str], CooldownStore] | None = None,
    registered: Callable[[str], BuildModel | None] = no_provider,
) -> ResilientModel:
    """Build the primary model with its fallbacks. `aclose` closes every connection.

    `cooldowns` returns the stored key cooldowns of a provider, `registered` what builds the
    models of a plugin's provider.
    """
    images = ImageUrls(blobs)
    endpoints: dict[EndpointSettings, Endpoint] = {}

    models: list[KeyedModel] = []
    for target in (resolved.primary, *resolved.fallbacks):
        build = registered(target.provider)
        if build is None and target.provider == EMBEDDED:
            build = _without_engine(images, clock)
        if build is not None:
            models.append(KeyedModel(build(target.model, target.base_url)))
            continue
        total = max(MAX_REQUEST_SECONDS, target.idle)
        settings = endpoint_settings(target, target.connect, target.idle, total)
        endpoint = endpoints.setdefault(settings, Endpoint(settings))
        with_key = partial(WireModel, endpoint, target, images, clock, _wire(target))
        first, *others = target.keys or ("",)
        store = cooldowns(target.provider) if cooldowns else None
        ring = KeyRing(target.keys, target.strategy, cooldowns=store, now=clock.monotonic())
        by_key = {key: with_key(key) for key in others}
        models.append(KeyedModel(with_key(first), ring, by_key, min_interval=target.min_interval))
    policy, connections = RetryPolicy(tries=resolved.tries), AsyncExitStack()
    for endpoint in endpoints.values():
        connections.push_async_callback(endpoint.client.aclose)
    profile = resolved.primary.profile
    return ResilientModel(models, clock, policy, close=connections.aclose, profile=profile)


def _without_engine(images: ImageUrls, clock: Clock) -> BuildModel:
    """Embedded models can be chosen where no plugins are open, but not used."""
    from hermes.models.embedded.plugin import model_builder  # noqa: PLC0415 - rarely needed

    return model_builder(_no_engine, images, clock)


def _no_engine() -> "EngineQueue":
    raise ConfigError("embedded models are not available here: no engine is configured")


def _wire(target: ModelTarget) -> Wire:
    mode = target.api_mode
    if mode == CHAT:
        from hermes.models.wire.chat_completions import ChatWire as Used  # noqa: PLC0415 - load only the one used
    elif mode == ANTHROPIC:
        from hermes.models.wire.anthropic_messages import AnthropicWire as Used  # noqa: PLC0415 - see above
    elif mode == RESPONSES:
        from hermes.models.wire.openai_responses import ResponsesWire as Used  # noqa: PLC0415 - see above
    elif mode == GEMINI:
        from hermes.models.wire.gemini_native import GeminiWire as Used  # noqa: PLC0415 - see above
    else:
        raise ConfigError(
            f"{target.provider}'s API mode {mode!r} is not supported",
            hint=f"Use one of: {', '.join(API_MODES)}, or leave api_mode empty.",
        )
    return Used(target)
