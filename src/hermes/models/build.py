"""From a decision about models to a model that can be asked."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from hermes.kit.clock import Clock
from hermes.models import modes
from hermes.models.driver import Served, WireModel
from hermes.models.endpoint import CEILING, Endpoint, Place
from hermes.models.images import Images
from hermes.models.keys import KeyMemory, KeyRing
from hermes.models.providers import EMBEDDED
from hermes.models.resilient import Policy, Resilient, Route
from hermes.models.resolve import Resolved, Target
from hermes.models.wire.stream import Wire
from hermes.ports.blobs import Blobs
from hermes.ports.model import Model
from hermes.schema.errors import ConfigError

if TYPE_CHECKING:
    from hermes.models.embedded.model import Line


def build_model(
    resolved: Resolved,
    blobs: Blobs,
    clock: Clock,
    memory: Callable[[str], KeyMemory] | None = None,
    engine: Callable[[], "Line"] | None = None,
) -> Resilient:
    """The whole chain. Its `aclose` closes every connection.

    `memory` gives what is known of the keys of a provider from earlier; `engine` runs embedded
    models.
    """
    images = Images(blobs)
    endpoints: dict[Place, Endpoint] = {}

    def route(target: Target) -> Route:
        if target.provider == EMBEDDED:
            return Route(_embedded(target, images, clock, engine))
        model = _model(target, _endpoint(target, endpoints), images, clock)
        return _route(target, model, clock, memory)

    routes = [route(target) for target in (resolved.primary, *resolved.fallbacks)]
    closing = partial(_close, list(endpoints.values()))
    policy = Policy(tries=resolved.tries)
    return Resilient(routes, clock, policy, closing=closing, profile=resolved.primary.profile)


def _embedded(
    target: Target, images: Images, clock: Clock, engine: Callable[[], "Line"] | None
) -> Model:
    from hermes.models.embedded.catalogue import weights_named  # noqa: PLC0415 - few have it
    from hermes.models.embedded.model import EmbeddedModel  # noqa: PLC0415 - as above
    from hermes.models.embedded.place import place_at  # noqa: PLC0415 - as above

    place = place_at(target.base_url)
    return EmbeddedModel(weights_named(target.model), place, engine or _no_engine, images, clock)


def _no_engine() -> "Line":
    raise ConfigError("an embedded model can be chosen here, but not asked")


def _endpoint(target: Target, endpoints: dict[Place, Endpoint]) -> Endpoint:
    place = Place(
        base_url=target.base_url,
        connect=target.connect,
        idle=target.idle,
        ceiling=max(CEILING, target.idle),
        proxy=target.proxy,
        verify=target.verify,
        ca_file=target.ca_file,
        headers=tuple(target.headers.items()),
    )
    return endpoints.setdefault(place, Endpoint(place))


def _route(
    target: Target,
    model: WireModel,
    clock: Clock,
    memory: Callable[[str], KeyMemory] | None,
) -> Route:
    ring = KeyRing(
        target.keys,
        target.strategy,
        memory=memory(target.provider) if memory else None,
        now=clock.monotonic(),
    )
    return Route(model, ring, model.keyed, gap=target.gap)


def _model(target: Target, endpoint: Endpoint, images: Images, clock: Clock) -> WireModel:
    served = Served(
        model=target.model,
        provider=target.provider,
        window=target.window,
        profile=target.profile,
        max_output=target.max_output,
        extra=target.extra,
        key_env=target.key_env,
        local=target.local,
        cache_ttl=target.cache_ttl,
    )
    return WireModel(endpoint, served, images, clock, _wire(target.api_mode, served))


def _wire(mode: str, served: Served) -> Wire:
    """Only the language that is spoken is loaded."""
    match mode:
        case modes.CHAT:
            from hermes.models.chat_completions import ChatWire  # noqa: PLC0415 - only one is spoken

            return ChatWire(served)
        case modes.ANTHROPIC:
            from hermes.models.anthropic_messages import AnthropicWire  # noqa: PLC0415 - likewise

            return AnthropicWire(served)
        case modes.RESPONSES:
            from hermes.models.openai_responses import ResponsesWire  # noqa: PLC0415 - likewise

            return ResponsesWire(served)
        case modes.GEMINI:
            from hermes.models.gemini_native import GeminiWire  # noqa: PLC0415 - likewise

            return GeminiWire(served)
        case _:
            raise ConfigError(
                f"the API mode {mode!r} of {served.provider} is not supported",
                hint=f"Use one of: {', '.join(modes.MODES)}, or leave api_mode empty.",
            )


async def _close(endpoints: list[Endpoint]) -> None:
    for endpoint in endpoints:
        await endpoint.aclose()
