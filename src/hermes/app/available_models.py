"""List the models that can be reached: on local servers, and from providers with a key."""

from collections.abc import Sequence

import anyio
from msgspec import Struct

from hermes.models.discovery import find_local_servers, list_models
from hermes.models.providers import PROVIDERS
from hermes.models.resolver import ModelTarget, resolve_models
from hermes.models.settings import EnvLookup, LocalServer, ModelOverrides, ModelSettings
from hermes.schema.errors import ConfigError, ModelError

LIST_TIMEOUT = 5.0


class ProviderModels(Struct, frozen=True, kw_only=True):
    """One provider and its models."""

    provider: str
    base_url: str
    models: tuple[str, ...] = ()
    local: bool = False
    error: str = ""  # why they could not be listed


async def find_available(settings: ModelSettings, env: EnvLookup) -> Sequence[ProviderModels]:
    """Ask all providers concurrently, for a few seconds at most."""
    found: list[ProviderModels] = []
    listed: dict[str, ProviderModels] = {}

    async def find_local() -> None:
        found.extend(
            ProviderModels(
                provider=server.provider,
                base_url=server.base_url,
                models=tuple(server.models),
                local=True,
            )
            for server in [*await find_local_servers(env), *_embedded_servers(settings)]
        )

    async def ask(target: ModelTarget) -> None:
        listed[target.provider] = await _list_provider(target)

    targets = _provider_targets(settings, env)
    async with anyio.create_task_group() as group:
        group.start_soon(find_local)
        for target in targets:
            group.start_soon(ask, target)
    known = {offer.base_url for offer in found}
    others = [listed[target.provider] for target in targets]
    return [*found, *(offer for offer in others if offer.base_url not in known)]


def _embedded_servers(settings: ModelSettings) -> Sequence[LocalServer]:
    """Installed embedded models."""
    from hermes.models.embedded.folder import folder_at  # noqa: PLC0415 - for lists only
    from hermes.models.embedded.target import local_server_in  # noqa: PLC0415 - as above

    return local_server_in(folder_at(settings.weights)) if settings.weights else ()


async def _list_provider(target: ModelTarget) -> ProviderModels:
    models: tuple[str, ...] = ()
    trouble = ""
    try:
        models = tuple(sorted(await list_models(target, LIST_TIMEOUT)))
    except ModelError as error:
        trouble = error.sentence
    return ProviderModels(
        provider=target.provider,
        base_url=target.base_url,
        models=models,
        local=target.local,
        error=trouble,
    )


def _provider_targets(settings: ModelSettings, env: EnvLookup) -> list[ModelTarget]:
    """Every provider that can be asked: those with a key or a custom URL."""
    custom_url = settings.base_url or env("OPENAI_BASE_URL")
    names = ["", *(one.name for one in settings.custom_providers)]
    # A key set for a custom URL is not sent to OpenAI.
    names += [
        one.name for one in PROVIDERS if not one.local and not (custom_url and one.name == "openai")
    ]
    targets: dict[str, ModelTarget] = {}
    for name in names:
        try:
            target = resolve_models(
                settings, env, ModelOverrides(provider=name, model="any")
            ).primary
        except ConfigError:
            continue
        if target.keys or target.local or target.base_url == settings.base_url:
            targets.setdefault(target.provider, target)
    return list(targets.values())
