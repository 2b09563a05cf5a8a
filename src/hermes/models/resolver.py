"""From settings, flags and environment to one model at one address, with its keys.

For the provider the order is: flag, configuration, HERMES_INFERENCE_PROVIDER, then whatever
there is a key for, then a server running on this machine. For the model: flag,
configuration, HERMES_INFERENCE_MODEL, the provider's own default. Provider, address and key come
from the same place (`selection`).
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from hermes.kit.text import did_you_mean
from hermes.models.api_modes import CHAT, api_mode_for, base_url_for
from hermes.models.catalog import context_window
from hermes.models.key_ring import KeyStrategy
from hermes.models.key_sources import check_keys, env_keys, split_keys
from hermes.models.model_features import with_model_features
from hermes.models.model_profile import ModelProfile
from hermes.models.providers import (
    CUSTOM,
    EMBEDDED,
    PROVIDERS,
    Provider,
    find_provider,
    model_profile_for,
)
from hermes.models.selection import (
    ModelSelection,
    find_custom_provider,
    pool_name,
    provider_at,
    select_fallback,
    select_model,
)
from hermes.models.settings import (
    CustomProvider,
    EnvLookup,
    LocalServer,
    ModelOverrides,
    ModelSettings,
)
from hermes.models.urls import host_of, is_local, normalize_url
from hermes.schema.errors import ConfigError


class ModelTarget(Struct, frozen=True, kw_only=True):
    """One model at one address, ready to be built. `source` says who chose it."""

    provider: str
    base_url: str
    model: str
    keys: tuple[str, ...] = ()
    key_env: str = ""
    strategy: KeyStrategy = KeyStrategy.FILL_FIRST
    window: int
    max_output: int | None = None
    profile: ModelProfile = ModelProfile()
    api_mode: str = CHAT
    extra: Mapping[str, Any] = {}
    headers: Mapping[str, str] = {}
    idle: float = 120.0
    connect: float = 10.0
    gap: float = 0.0
    proxy: str = ""
    verify: bool = True
    ca_file: str = ""
    local: bool = False
    source: str = ""
    cache_ttl: str = "5m"


class ResolvedModels(Struct, frozen=True, kw_only=True):
    primary: ModelTarget
    fallbacks: tuple[ModelTarget, ...] = ()
    tries: int = 3


class NoProviderConfigured(ConfigError):
    """No provider is chosen and none offers itself."""


class NoModelChosen(ConfigError):
    """The provider is known, but which of its models is not."""

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
    """Raises `ConfigError`: `NothingConfigured`, `ModelUnnamed`, or what is wrong with a setting.

    `found` are servers of this machine, the last resort when nothing else is said.
    """
    resolver = _Resolver(settings, env, found)
    primary = resolver.target(resolver.wish(flags))
    fallbacks = tuple(resolver.target(select_fallback(one)) for one in settings.fallback_providers)
    for target in (primary, *fallbacks):
        if not target.model:
            raise NoModelChosen(target)
    return ResolvedModels(primary=primary, fallbacks=fallbacks, tries=flags.tries or settings.tries)


class _Resolver:
    def __init__(
        self, settings: ModelSettings, env: EnvLookup, found: Sequence[LocalServer]
    ) -> None:
        self._settings = settings
        self._env = env
        self._found = found

    def wish(self, flags: ModelOverrides) -> ModelSelection:
        """Raises `ConfigError` for a key that belongs to nobody."""
        chosen = select_model(self._settings, self._env, flags)
        if chosen.source != "flag" and self._names_other_provider(chosen.provider, flags.model):
            return ModelSelection(model=flags.model, source="flag")
        return chosen

    def _names_other_provider(self, configured: str, model: str) -> bool:
        """Whether `-m vendor/model` asks to leave the configured provider for the vendor.

        Routers and local servers have names with slashes of their own.
        """
        provider = find_provider(configured)
        head, slash, _ = model.partition("/")
        if provider is None or provider.router or provider.local or provider is CUSTOM:
            return False
        return bool(slash) and find_provider(head) is not provider and self._usable(head)

    def target(self, wish: ModelSelection) -> ModelTarget:
        wish = self._split_model(wish)
        custom = self._custom(wish.provider)
        if custom is not None:
            return self._custom_target(custom, wish)
        provider = self._provider(wish)
        if provider is None:
            return self._local_target(wish)
        if provider.name in self._settings.disabled:
            raise ConfigError(
                f"the provider {provider.name} is switched off",
                hint=f"Switch it on: hermes config set providers.{provider.name}.enabled true",
            )
        return self._named_target(provider, wish)

    def _split_model(self, wish: ModelSelection) -> ModelSelection:
        """`provider/model` and `provider:model` name both, where the prefix is a provider's."""
        if wish.provider or wish.base_url:
            return wish
        for mark in ":/":
            head, found, model = wish.model.partition(mark)
            if head == "custom" and found:
                name, _, model = model.partition(mark)
                return structs.replace(wish, provider=f"custom:{name}", model=model)
            if found and self._usable(head):
                return structs.replace(wish, provider=head, model=model)
        return wish

    def _usable(self, name: str) -> bool:
        """A vendor's prefix counts as a provider only when we could ask it."""
        if self._custom(name) is not None:
            return True
        provider = find_provider(name)
        if provider is None or provider is CUSTOM or provider.name in self._settings.disabled:
            return False
        return provider.local or bool(self._keys(provider, ModelSelection())[0])

    def _custom(self, name: str) -> CustomProvider | None:
        if (custom := find_custom_provider(self._settings, name)) or not name.startswith("custom:"):
            return custom
        known = ", ".join(one.name for one in self._settings.custom_providers) or "none"
        raise ConfigError(
            f"there is no custom provider named {name.removeprefix('custom:')!r} (known: {known})",
            hint="Add it under custom_providers in config.yaml: hermes config edit",
        )

    def _provider(self, wish: ModelSelection) -> Provider | None:
        """The provider that is meant, or offers itself; None when only a local server is left."""
        if wish.provider:
            provider = find_provider(wish.provider)
            if provider is None:
                names = ", ".join(one.name for one in PROVIDERS)
                own = (one.name for one in self._settings.custom_providers)
                near = did_you_mean(wish.provider, [*own, *(one.name for one in PROVIDERS)])
                raise ConfigError(
                    f"unknown provider {wish.provider!r}",
                    hint=f"{near or f'Choose one of {names}, custom: hermes model'}",
                )
            return provider
        if wish.base_url or self._env("OPENAI_BASE_URL"):
            return provider_at(wish.base_url or self._env("OPENAI_BASE_URL") or "")
        for provider in PROVIDERS:
            if provider.name in self._settings.disabled or provider.local:
                continue
            if self._keys(provider, wish)[0]:
                return provider
        return None

    def _named_target(self, provider: Provider, wish: ModelSelection) -> ModelTarget:
        if provider.name == EMBEDDED:
            from hermes.models.embedded.target import embedded_target  # noqa: PLC0415 - few have it

            return embedded_target(self._settings, wish.model, wish.source)
        url = wish.base_url or self._url(provider)
        if not url:
            raise ConfigError(
                "the provider 'custom' needs an address",
                hint="hermes config set model.base_url http://127.0.0.1:8000/v1",
            )
        url = normalize_url(url)
        mode = wish.api_mode or api_mode_for(provider, url)
        url = base_url_for(mode, url)
        keys, key_env = self._keys(provider, wish, url)
        check_keys(url, keys, key_env)
        local = provider.local or is_local(url)
        if not keys and not local and provider is not CUSTOM:
            raise ConfigError(
                f"there is no key for {provider.title}",
                hint=f"Set it with `hermes config set {key_env} <key>`, "
                "or choose another provider: hermes model",
            )
        model = wish.model or provider.default_model
        return ModelTarget(
            provider=provider.name,
            base_url=url,
            model=model,
            keys=keys,
            key_env=key_env,
            strategy=self._settings.strategies.get(provider.name, KeyStrategy.FILL_FIRST),
            window=self._settings.context_length or context_window(model, local=local),
            max_output=self._settings.max_tokens,
            profile=self._profile(provider, model, mode, keeps=wish.keeps),
            api_mode=mode,
            extra=self._extra(provider),
            headers=provider.headers,
            idle=self._idle(provider, local=local),
            connect=self._settings.connect_timeout,
            proxy="" if local else self._settings.proxy,
            local=local,
            source=wish.source or "auto",
            cache_ttl=self._settings.cache_ttl,
        )

    def _custom_target(self, custom: CustomProvider, wish: ModelSelection) -> ModelTarget:
        if custom.name in self._settings.disabled:
            raise ConfigError(f"the provider {custom.name} is switched off")
        url = normalize_url(wish.base_url or custom.base_url)
        keys, key_env = self._custom_keys(custom, wish, url)
        check_keys(url, keys, key_env)
        local = is_local(url)
        host = provider_at(url)
        mode = custom.api_mode or api_mode_for(host, url)
        url = base_url_for(mode, url)
        model = wish.model or custom.model or next(iter(custom.models), "")
        window = custom.models.get(model) or custom.context_length or self._settings.context_length
        return ModelTarget(
            provider=custom.name,
            base_url=url,
            model=model,
            keys=keys,
            key_env=key_env,
            strategy=self._settings.strategies.get(custom.name, KeyStrategy.FILL_FIRST),
            window=window or context_window(model, local=local),
            max_output=self._settings.max_tokens,
            profile=self._profile(host, model, mode, keeps=custom.keeps_responses or wish.keeps),
            api_mode=mode,
            extra=custom.extra_body,
            idle=self._idle(CUSTOM, local=local),
            connect=self._settings.connect_timeout,
            gap=custom.rate_limit_delay,
            proxy="" if local else self._settings.proxy,
            verify=custom.ssl_verify,
            ca_file=custom.ssl_ca_cert,
            local=local,
            source=wish.source or "auto",
            cache_ttl=self._settings.cache_ttl,
        )

    def _custom_keys(
        self, custom: CustomProvider, wish: ModelSelection, url: str
    ) -> tuple[tuple[str, ...], str]:
        """As `_keys`."""
        given = wish.api_key or (self._env(wish.key_env) if wish.key_env else "") or ""
        pool = self._settings.pools.get(custom.name, ())
        if wish.api_key or wish.key_env:
            own = host_of(url) == host_of(normalize_url(custom.base_url))
            return (*split_keys(given), *(pool if own else ())), wish.key_env
        stored = self._env(custom.key_env) if custom.key_env else ""
        return (*split_keys(custom.api_key or stored or ""), *pool), custom.key_env

    def _local_target(self, wish: ModelSelection) -> ModelTarget:
        """A server of this machine: the one that has the model, or the first when none is named."""
        if wish.model and self._found and not any(wish.model in one.models for one in self._found):
            offered = ", ".join(name for one in self._found for name in one.models)
            raise ConfigError(
                f"no key is set, and no local server has the model {wish.model!r}",
                hint=f"Choose one of {offered}: hermes config set model.default <name>",
            )
        for server in self._found:
            model = wish.model or first_chat_model(server.models)
            if not model or model not in server.models:
                continue
            provider = find_provider(server.provider) or CUSTOM
            told = server.models.get(model)
            target = self._named_target(
                provider, structs.replace(wish, model=model, base_url=server.base_url)
            )
            chosen = self._settings.context_length or told or target.window
            return structs.replace(target, window=chosen, local=True, source="found running")
        raise NoProviderConfigured(
            "no model provider is set up: there is no key and no local server",
            hint="Choose one, or fetch a small model that runs here: hermes setup",
        )

    def _keys(
        self, provider: Provider, wish: ModelSelection, url: str = ""
    ) -> tuple[tuple[str, ...], str]:
        """The keys, and the variable they came from or should be put into.

        A key that was set for another address is used alone there: those of the pool belong to
        the provider's own.
        """
        pool = self._settings.pools.get(pool_name(provider.name, url), ())
        if wish.api_key or wish.key_env:
            pool = pool if self._is_own(provider, url) else ()
        if wish.api_key:
            return (*split_keys(wish.api_key), *pool), wish.key_env
        names = (wish.key_env,) if wish.key_env else self._key_names(provider, url)
        for name in names:
            if keys := tuple(key for key, _ in env_keys(self._env, name)):
                return (*keys, *pool), name
        return pool, names[0] if names else ""

    def _is_own(self, provider: Provider, url: str) -> bool:
        """Whether it is the provider's own address; a custom one is bound to its pool by name."""
        return provider is CUSTOM or host_of(url) == host_of(normalize_url(self._url(provider)))

    def _key_names(self, provider: Provider, url: str) -> tuple[str, ...]:
        """The key beside OPENAI_BASE_URL goes to that host, and to no other custom one."""
        if provider is CUSTOM and host_of(normalize_url(self._url(CUSTOM))) != host_of(url):
            return ()
        return provider.key_env

    def _url(self, provider: Provider) -> str:
        for name in provider.url_env:
            if value := self._env(name):
                return value
        return provider.base_url

    def _idle(self, provider: Provider, *, local: bool) -> float:
        if local:
            return self._settings.local_idle
        return self._settings.remote_idle or provider.idle or 120.0

    def _extra(self, provider: Provider) -> Mapping[str, Any]:
        if self._settings.service_tier and provider.name == "openai":
            return {"service_tier": self._settings.service_tier}
        size = self._settings.ollama_num_ctx
        return {"options": {"num_ctx": size}} if size and provider.name == "ollama" else {}

    def _profile(self, provider: Provider, model: str, mode: str, *, keeps: bool) -> ModelProfile:
        usual, shown = (
            with_model_features(model_profile_for(provider, model), mode, model),
            self._settings.images,
        )
        return structs.replace(usual, keeps=keeps, images=usual.images if shown is None else shown)


def first_chat_model(models: Mapping[str, int | None]) -> str:
    """The first that can talk; embedding models are in the same list."""
    return next((name for name in models if not re.search(r"embed|rerank|whisper|tts", name)), "")
