"""Resolve settings, flags and environment to a model at an address, with its keys.

The provider comes from the flag, the configuration, HERMES_INFERENCE_PROVIDER, the first provider
with a key, or a server running on this machine, in this order. The model comes from the flag,
the configuration, HERMES_INFERENCE_MODEL, or the provider's default. Provider, address and key
always come from the same source (see `selection`).
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from hermes.kit.text import did_you_mean
from hermes.models.catalog import context_window, with_model_features
from hermes.models.providers import (
    CUSTOM,
    EMBEDDED,
    PROVIDERS,
    Provider,
    ServedModel,
    find_provider,
    model_profile_for,
)
from hermes.models.selection import (
    ModelSelection,
    check_keys,
    env_keys,
    find_custom_provider,
    pool_name,
    provider_at,
    select_fallback,
    select_model,
    split_keys,
)
from hermes.models.settings import (
    CustomProvider,
    EnvLookup,
    KeyStrategy,
    LocalServer,
    ModelOverrides,
    ModelSettings,
)
from hermes.models.urls import (
    CHAT,
    GEMINI,
    api_mode_for,
    host_of,
    is_local,
    native_gemini_url,
    normalize_url,
)
from hermes.schema.errors import ConfigError


class ModelTarget(ServedModel, frozen=True, kw_only=True):
    """A model at an address, ready to be built. `source` says where it was chosen."""

    base_url: str
    keys: tuple[str, ...] = ()
    strategy: KeyStrategy = KeyStrategy.FILL_FIRST
    api_mode: str = CHAT
    headers: Mapping[str, str] = {}
    idle: float = 120.0
    connect: float = 10.0
    min_interval: float = 0.0
    verify: bool = True
    ca_file: str = ""
    source: str = ""


class ResolvedModels(Struct, frozen=True, kw_only=True):
    primary: ModelTarget
    fallbacks: tuple[ModelTarget, ...] = ()
    tries: int = 3


class NoProviderConfigured(ConfigError):
    """No provider is configured, and none was found."""


class NoModelChosen(ConfigError):
    """The provider is known, but not the model."""

    def __init__(self, target: ModelTarget) -> None:
        super().__init__(
            f"no model is chosen for {target.provider}",
            hint="Choose one: hermes model, or: hermes config set model.default <name>",
        )
        self.target = target


def resolve_models(
    settings: ModelSettings,
    env: EnvLookup,
    flags: ModelOverrides = ModelOverrides(),  # noqa: B008 - a frozen value
    found: Sequence[LocalServer] = (),
) -> ResolvedModels:
    """Raise `NoProviderConfigured`, `NoModelChosen`, or a `ConfigError` for a bad setting.

    `found` are servers on this machine, used only when nothing else is configured.
    """
    resolver = _Resolver(settings, env, found)
    chosen, named = select_model(settings, env, flags), flags.model
    if chosen.source != "flag" and "/" in named and resolver.is_other(chosen.provider, named):
        chosen = ModelSelection(model=named, source="flag")
    primary = resolver.target(chosen)
    fallbacks = tuple(resolver.target(select_fallback(one)) for one in settings.fallback_providers)
    for target in (primary, *fallbacks):
        if not target.model:
            raise NoModelChosen(target)
    return ResolvedModels(primary=primary, fallbacks=fallbacks, tries=flags.tries or settings.tries)


class _Resolver(Struct, frozen=True):
    settings: ModelSettings
    env: EnvLookup
    found: Sequence[LocalServer]

    def is_other(self, configured: str, model: str) -> bool:
        """Return whether `-m vendor/model` means the vendor instead of the configured provider.

        Routers and local servers have model names with slashes.
        """
        provider = find_provider(configured)
        head = model.partition("/")[0]
        if provider is None or provider.router or provider.local or provider is CUSTOM:
            return False
        return find_provider(head) is not provider and self._usable(head)

    def target(self, selection: ModelSelection) -> ModelTarget:
        if not (selection.provider or selection.base_url):
            selection = self._split_model(selection)
        name = selection.provider
        if self.settings.custom_providers or name.startswith("custom:"):
            custom = self._custom(name)
            if custom is not None:
                return self._custom_target(custom, selection)
        provider = self._provider(selection)
        if provider is None:
            return self._local_target(selection)
        if provider.name in self.settings.disabled:
            raise ConfigError(
                f"the provider {provider.name} is disabled",
                hint=f"Enable it: hermes config set providers.{provider.name}.enabled true",
            )
        return self._named_target(provider, selection)

    def _split_model(self, selection: ModelSelection) -> ModelSelection:
        """Split `provider/model` and `provider:model` if the prefix is a provider."""
        for mark in ":/":
            head, found, model = selection.model.partition(mark)
            if head == "custom" and found:
                name, _, model = model.partition(mark)
                return structs.replace(selection, provider=f"custom:{name}", model=model)
            if found and self._usable(head):
                return structs.replace(selection, provider=head, model=model)
        return selection

    def _usable(self, name: str) -> bool:
        """Return whether a prefix is a provider that can be used."""
        if self._custom(name) is not None:
            return True
        provider = find_provider(name)
        if provider is None or provider is CUSTOM or provider.name in self.settings.disabled:
            return False
        return provider.local or bool(self._keys(provider, ModelSelection())[0])

    def _custom(self, name: str) -> CustomProvider | None:
        if (custom := find_custom_provider(self.settings, name)) or not name.startswith("custom:"):
            return custom
        known = ", ".join(one.name for one in self.settings.custom_providers) or "none"
        raise ConfigError(
            f"no custom provider is named {name.removeprefix('custom:')!r} (known: {known})",
            hint="Add it under custom_providers in config.yaml: hermes config edit",
        )

    def _provider(self, selection: ModelSelection) -> Provider | None:
        """Return the named or first usable provider; None if only a local server is left."""
        if selection.provider:
            provider = find_provider(selection.provider)
            if provider is None:
                names = [one.name for one in PROVIDERS]
                own = (one.name for one in self.settings.custom_providers)
                near = did_you_mean(selection.provider, [*own, *names])
                raise ConfigError(
                    f"Unknown provider: {selection.provider!r}.",
                    hint=near or f"Choose one of {', '.join(names)}, custom: hermes model",
                )
            return provider
        if selection.base_url or self.env("OPENAI_BASE_URL"):
            return provider_at(selection.base_url or self.env("OPENAI_BASE_URL") or "")
        enabled = (one for one in PROVIDERS if one.name not in self.settings.disabled)
        remote = (one for one in enabled if not one.local)
        return next((one for one in remote if self._keys(one, selection)[0]), None)

    def _named_target(self, provider: Provider, selection: ModelSelection) -> ModelTarget:
        if provider.name == EMBEDDED:
            from hermes.models.embedded.weights import embedded_target  # noqa: PLC0415 - rarely needed

            return embedded_target(self.settings, selection.model, selection.source)
        settings = self.settings
        own_url = next(filter(None, map(self.env, provider.url_env)), provider.base_url)
        url = normalize_url(selection.base_url or own_url)
        if not host_of(url):
            raise ConfigError(
                "the provider 'custom' needs an address",
                hint="Set it: hermes config set model.base_url http://127.0.0.1:8000/v1",
            )
        is_own = host_of(url) == host_of(normalize_url(own_url))
        keys, key_env = self._keys(provider, selection, url, is_own=is_own)
        local = provider.local or is_local(url)
        if not keys and not local and provider is not CUSTOM:
            raise ConfigError(
                f"No key is set for {provider.title}.",
                hint=f"Set it with `hermes config set {key_env} <key>`, "
                "or choose another provider: hermes model",
            )
        extra: Mapping[str, Any] = {}
        if settings.service_tier and provider.name == "openai":
            extra = {"service_tier": settings.service_tier}
        elif settings.ollama_num_ctx and provider.name == "ollama":
            extra = {"options": {"num_ctx": settings.ollama_num_ctx}}
        chosen = structs.replace(selection, model=selection.model or provider.default_model)
        target = self._target_at(
            url,
            provider.name,
            provider,
            chosen,
            (keys, key_env),
            idle=provider.idle,
            local=local,
        )
        return structs.replace(target, extra=extra, headers=provider.headers)

    def _custom_target(self, custom: CustomProvider, selection: ModelSelection) -> ModelTarget:
        if custom.name in self.settings.disabled:
            raise ConfigError(f"the provider {custom.name} is disabled")
        url = normalize_url(selection.base_url or custom.base_url)
        keys = self._custom_keys(custom, selection, url)
        chosen = structs.replace(
            selection,
            model=selection.model or custom.model or next(iter(custom.models), ""),
            api_mode=custom.api_mode,
            stores_responses=custom.keeps_responses or selection.stores_responses,
        )
        target = self._target_at(
            url, custom.name, provider_at(url), chosen, keys, idle=None, local=is_local(url)
        )
        return structs.replace(
            target,
            window=custom.models.get(target.model) or custom.context_length or target.window,
            extra=custom.extra_body,
            min_interval=custom.rate_limit_delay,
            verify=custom.ssl_verify,
            ca_file=custom.ssl_ca_cert,
        )

    def _target_at(
        self,
        url: str,
        name: str,
        provider: Provider,
        selection: ModelSelection,
        keys: tuple[tuple[str, ...], str],
        *,
        idle: float | None,
        local: bool,
    ) -> ModelTarget:
        """Return what all targets have in common; `provider` is whose API the server speaks."""
        check_keys(url, *keys)
        settings, model = self.settings, selection.model
        mode = selection.api_mode or api_mode_for(provider, url)
        profile = with_model_features(model_profile_for(provider, model), mode, model)
        return ModelTarget(
            provider=name,
            base_url=native_gemini_url(url) if mode == GEMINI else url,
            model=model,
            keys=keys[0],
            key_env=keys[1],
            strategy=settings.strategies.get(name, KeyStrategy.FILL_FIRST),
            window=settings.context_length or context_window(model, local=local),
            max_output=settings.max_tokens,
            profile=structs.replace(
                profile,
                stores_responses=selection.stores_responses,
                images=profile.images if settings.images is None else settings.images,
            ),
            api_mode=mode,
            idle=settings.local_idle if local else settings.remote_idle or idle or 120.0,
            connect=settings.connect_timeout,
            local=local,
            source=selection.source or "auto",
            cache_ttl=settings.cache_ttl,
        )

    def _custom_keys(
        self, custom: CustomProvider, selection: ModelSelection, url: str
    ) -> tuple[tuple[str, ...], str]:
        pool = self.settings.pools.get(custom.name, ())
        api_key, key_env = custom.api_key, custom.key_env
        if selection.api_key or selection.key_env:
            api_key, key_env = selection.api_key, selection.key_env
            if host_of(url) != host_of(normalize_url(custom.base_url)):
                pool = ()
        stored = self.env(key_env) if key_env else ""
        return (*split_keys(api_key or stored or ""), *pool), key_env

    def _local_target(self, selection: ModelSelection) -> ModelTarget:
        """Return the local server that has the model, or the first one if no model is named."""
        offered = [name for one in self.found for name in one.models]
        if self.found and selection.model and selection.model not in offered:
            raise ConfigError(
                f"No key is set, and no local server has the model {selection.model!r}.",
                hint=f"Choose one of {', '.join(offered)}: hermes config set model.default <name>",
            )
        for server in self.found:
            model = selection.model or first_chat_model(server.models)
            if not model or model not in server.models:
                continue
            chosen = structs.replace(selection, model=model, base_url=server.base_url)
            target = self._named_target(find_provider(server.provider) or CUSTOM, chosen)
            window = self.settings.context_length or server.models.get(model) or target.window
            return structs.replace(target, window=window, local=True, source="found running")
        raise NoProviderConfigured(
            "No model provider is set up: no key is set, and no local server is running.",
            hint="Choose a provider, or download a small local model: hermes setup",
        )

    def _keys(
        self,
        provider: Provider,
        selection: ModelSelection,
        url: str = "",
        *,
        is_own: bool = False,
    ) -> tuple[tuple[str, ...], str]:
        """Return the keys, and the variable they came from or should be set in.

        If a key is set for another address, only that key is used there: the pool belongs to
        the provider's own address.
        """
        pools = self.settings.pools
        pool = pools.get(pool_name(provider.name, url), ()) if pools else ()
        # The pool of a custom address belongs to its host.
        if (selection.api_key or selection.key_env) and not is_own and provider is not CUSTOM:
            pool = ()
        if selection.api_key:
            return (*split_keys(selection.api_key), *pool), selection.key_env
        # The key set with OPENAI_BASE_URL is sent to that host only.
        default_names = provider.key_env if is_own or provider is not CUSTOM else ()
        names = (selection.key_env,) if selection.key_env else default_names
        for name in names:
            if keys := tuple(key for key, _ in env_keys(self.env, name)):
                return (*keys, *pool), name
        return pool, names[0] if names else ""


def first_chat_model(models: Mapping[str, int | None]) -> str:
    """Return the first chat model; the list also contains embedding models."""
    return next((name for name in models if not re.search(r"embed|rerank|whisper|tts", name)), "")


async def resolve_with_discovery(
    settings: ModelSettings,
    env: EnvLookup,
    flags: ModelOverrides,
    find_servers: Callable[[], Awaitable[Sequence[LocalServer]]],
    list_target: Callable[[ModelTarget], Awaitable[Mapping[str, int | None]]],
) -> ResolvedModels:
    """Resolve models, using discovery where the settings are incomplete.

    `find_servers` finds local servers; `list_target` lists the models of one target. Both are
    called only when needed.
    """
    try:
        return resolve_models(settings, env, flags)
    except NoProviderConfigured:
        found = await find_servers()
        if not found:
            raise
        return resolve_models(settings, env, flags, found)
    except NoModelChosen as unnamed:
        models = await list_target(unnamed.target)
        model = first_chat_model(models)
        if not model:
            raise
    resolved = resolve_models(settings, env, structs.replace(flags, model=model))
    window = settings.context_length or models.get(model)
    if not window:
        return resolved
    return structs.replace(resolved, primary=structs.replace(resolved.primary, window=window))
