"""From a decision about models to a model that can be asked."""

from functools import partial

from hermes.kit.clock import Clock
from hermes.models.chat_completions import ChatCompletions, Served
from hermes.models.endpoint import CEILING, Endpoint, Place
from hermes.models.images import Images
from hermes.models.keys import KeyRing
from hermes.models.resilient import Policy, Resilient, Route
from hermes.models.resolve import CHAT, Resolved, Target
from hermes.ports.blobs import Blobs
from hermes.schema.errors import ConfigError


def build_model(resolved: Resolved, blobs: Blobs, clock: Clock) -> Resilient:
    """The whole chain. Its `aclose` closes every connection."""
    images = Images(blobs)
    endpoints: dict[Place, Endpoint] = {}
    routes = [
        _route(target, _endpoint(target, endpoints), images, clock)
        for target in (resolved.primary, *resolved.fallbacks)
    ]
    closing = partial(_close, list(endpoints.values()))
    return Resilient(routes, clock, Policy(tries=resolved.tries), closing=closing)


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


def _route(target: Target, endpoint: Endpoint, images: Images, clock: Clock) -> Route:
    if target.api_mode != CHAT:
        raise ConfigError(
            f"the API mode {target.api_mode!r} of {target.provider} is not supported",
            hint=f"Use the compatible one: hermes config set model.api_mode {CHAT}",
        )
    served = Served(
        model=target.model,
        provider=target.provider,
        window=target.window,
        profile=target.profile,
        max_output=target.max_output,
        extra=target.extra,
        key_env=target.key_env,
        local=target.local,
    )
    model = ChatCompletions(endpoint, served, images, clock)
    return Route(model, KeyRing(target.keys, target.strategy), model.keyed, gap=target.gap)


async def _close(endpoints: list[Endpoint]) -> None:
    for endpoint in endpoints:
        await endpoint.aclose()
