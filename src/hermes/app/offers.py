"""Which models can be reached from here: local servers, and providers that have a key."""

from collections.abc import Sequence

import anyio
from msgspec import Struct

from hermes.models.discover import find_local, list_models
from hermes.models.providers import PROVIDERS
from hermes.models.resolve import Target, resolve
from hermes.models.settings import Flags, LocalServer, Lookup, ModelSettings
from hermes.schema.errors import ConfigError, ModelError

PATIENCE = 5.0


class Offer(Struct, frozen=True, kw_only=True):
    """One provider and what it has; `trouble` says why nothing could be listed."""

    provider: str
    base_url: str
    models: tuple[str, ...] = ()
    local: bool = False
    trouble: str = ""


async def reachable(settings: ModelSettings, env: Lookup) -> Sequence[Offer]:
    """Asks all at once and waits a few seconds for the slowest."""
    found: list[Offer] = []
    asked: dict[str, Offer] = {}

    async def look_around() -> None:
        found.extend(
            Offer(
                provider=server.provider,
                base_url=server.base_url,
                models=tuple(server.models),
                local=True,
            )
            for server in [*await find_local(env), *_embedded(settings)]
        )

    async def ask(target: Target) -> None:
        asked[target.provider] = await _ask(target)

    targets = _targets(settings, env)
    async with anyio.create_task_group() as group:
        group.start_soon(look_around)
        for target in targets:
            group.start_soon(ask, target)
    known = {offer.base_url for offer in found}
    others = [asked[target.provider] for target in targets]
    return [*found, *(offer for offer in others if offer.base_url not in known)]


def _embedded(settings: ModelSettings) -> Sequence[LocalServer]:
    """The models that run inside Hermes, as far as they are here."""
    from hermes.models.embedded.place import place_at  # noqa: PLC0415 - for lists only
    from hermes.models.embedded.target import found_in  # noqa: PLC0415 - as above

    return found_in(place_at(settings.weights)) if settings.weights else ()


async def _ask(target: Target) -> Offer:
    models: tuple[str, ...] = ()
    trouble = ""
    try:
        models = tuple(sorted(await list_models(target, PATIENCE)))
    except ModelError as error:
        trouble = error.sentence
    return Offer(
        provider=target.provider,
        base_url=target.base_url,
        models=models,
        local=target.local,
        trouble=trouble,
    )


def _targets(settings: ModelSettings, env: Lookup) -> list[Target]:
    """Every provider that could be asked: it has a key, or an address of its own."""
    own_address = settings.base_url or env("OPENAI_BASE_URL")
    names = ["", *(one.name for one in settings.custom_providers)]
    # A key that was set for an address of one's own is not shown to OpenAI.
    names += [
        one.name
        for one in PROVIDERS
        if not one.local and not (own_address and one.name == "openai")
    ]
    targets: dict[str, Target] = {}
    for name in names:
        try:
            target = resolve(settings, env, Flags(provider=name, model="any")).primary
        except ConfigError:
            continue
        if target.keys or target.local or target.base_url == settings.base_url:
            targets.setdefault(target.provider, target)
    return list(targets.values())
