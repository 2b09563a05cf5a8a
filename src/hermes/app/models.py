"""Choose a session's model from flags, the session or the settings; list what can be reached."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import anyio
from anyio.to_thread import run_sync
from msgspec import Struct, structs

from hermes.app.model_settings import PROVIDER_SETTINGS, model_settings
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.config.schema import Config
from hermes.config.sections.models import AuxiliarySlot
from hermes.kit.clock import Clock
from hermes.models.auth_file import AuthFile
from hermes.models.discovery import find_local_servers, list_models
from hermes.models.key_pool import KeyPool
from hermes.models.providers import PROVIDERS, ModelProfile
from hermes.models.resilient_model import ResilientModel, build_model, no_provider
from hermes.models.resolver import (
    ModelTarget,
    NoModelChosen,
    ResolvedModels,
    resolve_models,
    resolve_with_discovery,
)
from hermes.models.selection import configured_provider, is_configured
from hermes.models.settings import (
    CustomProvider,
    EnvLookup,
    LocalServer,
    ModelOverrides,
    ModelSettings,
)
from hermes.models.urls import redacted_url
from hermes.ports.model import Model
from hermes.ports.plugins import BuildModel
from hermes.ports.store import Blobs
from hermes.schema.errors import ConfigError, ModelError
from hermes.schema.sessions import Session

log = logging.getLogger(__name__)

_Tool = TypeVar("_Tool")

NO_MODEL = "no model yet"
LIST_TIMEOUT = 5.0


class ModelSelector:
    """Builds each model once. `given` are the flags of the process.

    A given URL or key applies to the whole process; a given model name to new sessions, and each
    session can choose another.
    """

    def __init__(
        self,
        home: Home,
        env: Env,
        settings: ModelSettings,
        blobs: Blobs,
        clock: Clock,
        flags: ModelOverrides = ModelOverrides(),  # noqa: B008 - a frozen value
        *,
        providers: Callable[[str], BuildModel | None] = no_provider,
    ) -> None:
        """`providers` finds plugins' providers; without it, they can be chosen but not used."""
        self._home = home
        self._env = env
        self._settings = settings
        self._registered = providers
        self._blobs = blobs
        self._clock = clock
        self._start_flags = flags
        self._built: dict[ModelOverrides, ResilientModel] = {}
        self._fallback_notes: dict[tuple[str, str], str] = {}
        self._pool = KeyPool(AuthFile(home.auth), clock)

    async def find(self) -> Model:
        """The model of a new session. Raises `ConfigError` if there is none."""
        return await self.model_for_flags(self._start_flags)

    async def model_for(self, session: Session, default: ModelOverrides | None = None) -> Model:
        """The model of a session; `default` is used if neither session nor flags name one.

        Raises `ConfigError` with the next command to type if there is none.
        """
        flags = self._start_flags
        if not session.model or flags.base_url or flags.api_key:
            unset = flags == ModelOverrides()
            return await self.model_for_flags(default if unset and default is not None else flags)
        pinned = session.provider, session.model
        self._fallback_notes.pop(pinned, None)
        try:
            return await self.model_for_flags(
                ModelOverrides(model=session.model, provider=session.provider)
            )
        except ConfigError as error:
            if model := await self._at_default_provider(session):
                return model
            log.warning("session %s cannot use its model: %s", session.id, error)
            fallback = await self.model_for_flags(self._start_flags)
            self._fallback_notes[pinned] = (
                f"{session.provider}/{session.model} is unavailable ({str(error).rstrip('.')}); "
                f"using {fallback.provider}/{fallback.name}. Choose another with /model NAME."
            )
            return fallback

    async def _at_default_provider(self, session: Session) -> Model | None:
        """Try the configured URL, which has no provider name of its own."""
        try:
            default = await self.model_for_flags(
                structs.replace(self._start_flags, model=session.model)
            )
        except ConfigError:
            # The default provider may not know the session's model.
            return None
        return default if default.provider == session.provider else None

    def fallback_note(self, session: Session) -> str:
        """A sentence saying why a fallback model answers; usually empty."""
        return self._fallback_notes.get((session.provider, session.model), "")

    def tools_for(self, session: Session, tools: Mapping[str, _Tool]) -> Mapping[str, _Tool]:
        """The tools that the session's model gets: a small one gets few."""
        few = self._allowed_tools(self._flags(session))
        return {name: tools[name] for name in few if name in tools} if few else tools

    def _allowed_tools(self, flags: ModelOverrides) -> Sequence[str]:
        if built := self._built.get(flags):
            return built.profile.tools
        try:
            return self._resolve_offline(flags).profile.tools
        except ConfigError:
            return ()

    def _resolve_offline(self, flags: ModelOverrides) -> ModelTarget:
        """Without requests. Raises `ConfigError`."""
        settings = self._pool.with_keys(self._settings)
        return resolve_models(settings, self._env.get, flags).primary

    def _flags(self, session: Session | None) -> ModelOverrides:
        """The given flags, unless the session has a usable model of its own."""
        flags = self._start_flags
        if session is None or not session.model or flags.base_url or flags.api_key:
            return flags
        if self.fallback_note(session):
            return flags
        return ModelOverrides(model=session.model, provider=session.provider)

    async def choose(self, name: str, provider: str | None) -> Model:
        """The model of that name. Raises `ConfigError` if there is none."""
        return await self.model_for_flags(ModelOverrides(model=name, provider=provider or ""))

    async def check_name(self, name: str, provider: str | None) -> str:
        """Why the name could not be checked; usually empty. Raises if it is certainly wrong."""
        from hermes.models.discovery import verify_model  # noqa: PLC0415 - rarely used

        return await verify_model(
            (await self.resolve(ModelOverrides(model=name, provider=provider or ""))).primary
        )

    def add_provider(self, provider: CustomProvider) -> None:
        """Add a provider to choose from, for this process."""
        known = (*self._settings.custom_providers, provider)
        self._settings = structs.replace(self._settings, custom_providers=known)

    async def save_default(self, model: Model) -> Sequence[str]:
        """Save the model as the default.

        If the provider changes, settings of the former one are removed in the same write; returns
        their names.
        """
        from hermes.config.editor import change_settings  # noqa: PLC0415 - rarely used

        def changes(config: Config) -> Mapping[str, str | None]:
            before = model_settings(config)
            chosen = {"model.default": model.name, "model.provider": model.provider}
            if is_configured(before, model.provider):
                return chosen
            unowned = () if configured_provider(before) else ("model.api_key",)
            return chosen | dict.fromkeys(unowned or PROVIDER_SETTINGS)

        removed = await run_sync(change_settings, self._home, self._env, changes)
        if not (self._start_flags.base_url or self._start_flags.api_key):
            self._start_flags = structs.replace(
                self._start_flags, model=model.name, provider=model.provider
            )
        return removed

    def current(self, session: Session | None = None) -> str:
        """The current model, or the one that would be used; makes no requests."""
        flags = self._flags(session)
        if session is not None and flags is not self._start_flags:
            return f"{session.provider}/{session.model}"
        if built := self._built.get(flags):
            return f"{built.provider}/{built.name}"
        try:
            target = self._resolve_offline(flags)
        except NoModelChosen as unnamed:
            target = unnamed.target
            return f"the first model of {target.provider} at {redacted_url(target.base_url)}"
        except ConfigError:
            return NO_MODEL
        return f"{target.provider}/{target.model}"

    async def describe_default(self) -> str:
        """Like `current`; if nothing is configured, searches this machine as a turn would."""
        if (current := self.current()) != NO_MODEL:
            return current
        try:
            target = (await self.resolve(self._start_flags)).primary
        except ConfigError:
            return NO_MODEL
        return f"{target.provider}/{target.model}, found on this machine"

    async def aclose(self) -> None:
        with anyio.CancelScope(shield=True):
            for model in self._built.values():
                await model.aclose()

    async def model_for_flags(self, flags: ModelOverrides) -> ResilientModel:
        """The model for these flags. Raises `ConfigError` if there is none."""
        if self._clock.now().timestamp() >= self._pool.renew_at:
            await self._replace_built()
        if flags not in self._built:
            resolved = await self.resolve(flags)
            self._built[flags] = build_model(
                resolved, self._blobs, self._clock, self._pool.cooldowns, self._registered
            )
        return self._built[flags]

    async def _replace_built(self) -> None:
        """Rebuild the models; running turns keep theirs, with the old tokens."""
        replaced, self._built = self._built, {}
        for model in replaced.values():
            await model.close_when_idle()

    async def resolve(self, flags: ModelOverrides) -> ResolvedModels:
        env = self._env.get
        settings = await self._pool.with_renewed_keys(self._settings)
        return await resolve_with_discovery(settings, env, flags, self._find_local, list_models)

    async def available(self) -> "Sequence[ProviderModels]":
        """The models that the providers offer; asks them."""
        return await find_available(
            await self._pool.with_renewed_keys(self._settings), self._env.get
        )

    async def _find_local(self) -> Sequence[LocalServer]:
        """Find local servers, then the embedded model if it is installed."""
        from hermes.models.embedded.weights import local_server_under  # noqa: PLC0415 - last resort

        return [*await find_local_servers(self._env.get), *local_server_under(self._home.root)]

    def is_small(self, session: Session) -> bool:
        """Whether the session's model gets only a few tools."""
        named = session.model, session.provider
        built = self._built.values()
        return any((model.name, model.provider) == named and model.profile.tools for model in built)

    def window_of(self, name: str, provider: str) -> int:
        """The context window of a model used here; 0 if unknown."""
        named = ((model.name, model.provider, model.window) for model in self._built.values())
        return next((window for *model, window in named if model == [name, provider]), 0)

    def profile_of(self, model: object) -> ModelProfile:
        """The profile of one of our models; a default for others."""
        return model.profile if isinstance(model, ResilientModel) else ModelProfile()


def auxiliary_flags(config: Config, slot: AuxiliarySlot) -> ModelOverrides | None:
    """None if the slot names no model."""
    if not slot.model:
        return None
    return ModelOverrides(
        model=slot.model,
        provider="" if slot.provider == "auto" else slot.provider,
        base_url=slot.base_url,
        api_key=slot.api_key,
        tries=auxiliary_tries(config),
    )


def summary_flags(config: Config) -> ModelOverrides | None:
    """Flags for summaries, whose model has an older setting, too."""
    old, slot = config.compression, config.auxiliary.compression
    if slot.model or not old.summary_model:
        return auxiliary_flags(config, slot)
    provider = "" if old.summary_provider == "auto" else old.summary_provider
    return ModelOverrides(
        model=old.summary_model,
        provider=provider,
        base_url=old.summary_base_url,
        tries=auxiliary_tries(config),
    )


def auxiliary_tries(config: Config) -> int:
    return 1 + config.auxiliary.transient_retries


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
    from hermes.models.embedded.weights import folder_at, local_server_in  # noqa: PLC0415 - loaded on first use

    return local_server_in(folder_at(settings.weights)) if settings.weights else ()


async def _list_provider(target: ModelTarget) -> ProviderModels:
    provider = ProviderModels(
        provider=target.provider, base_url=target.base_url, local=target.local
    )
    try:
        models = tuple(sorted(await list_models(target, LIST_TIMEOUT)))
        return structs.replace(provider, models=models)
    except ModelError as error:
        return structs.replace(provider, error=error.sentence)


def _provider_targets(settings: ModelSettings, env: EnvLookup) -> list[ModelTarget]:
    """Every provider that can be asked: those with a key or a custom URL."""
    custom_url = settings.base_url or env("OPENAI_BASE_URL")
    names = ["", *(provider.name for provider in settings.custom_providers)]
    # A key set for a custom URL is not sent to OpenAI.
    names += [
        provider.name
        for provider in PROVIDERS
        if not provider.local and not (custom_url and provider.name == "openai")
    ]
    targets: dict[str, ModelTarget] = {}
    for name in names:
        flags = ModelOverrides(provider=name, model="any")
        try:
            target = resolve_models(settings, env, flags).primary
        except ConfigError:
            continue
        if target.keys or target.local or target.base_url == settings.base_url:
            targets.setdefault(target.provider, target)
    return list(targets.values())
