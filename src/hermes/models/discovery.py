"""Find local model servers, list the models of any server, and check a chosen one."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

import anyio
import msgspec
from msgspec import Struct, field

from hermes.kit.clock import SystemClock
from hermes.kit.text import similar_names
from hermes.models.endpoint import Endpoint, EndpointSettings, endpoint_settings
from hermes.models.provider_errors import RequestOrigin, url_hint
from hermes.models.providers import EMBEDDED, PROVIDERS, Provider
from hermes.models.resolver import (
    ModelTarget,
)
from hermes.models.settings import EnvLookup, LocalServer
from hermes.models.urls import (
    ANTHROPIC,
    CHAT,
    GEMINI,
    anthropic_headers,
    gemini_version,
    normalize_url,
)
from hermes.schema.errors import BadRequest, ConfigError, ModelError, UsageError

PROBE_TIMEOUT = 0.6
"""Seconds for all local servers together."""
LIST_TIMEOUT = 5.0
"""Seconds to wait for a provider's list when a name is checked."""
MAX_WINDOW = 1_000_000_000
"""Tokens. Larger values reported by a server are ignored."""
_MAX_SUGGESTIONS = 3


class _Meta(Struct):
    n_ctx: int | None = None
    n_ctx_train: int | None = None


class _ListedModel(Struct):
    """A model in a list, with the various names of its context window."""

    id: str = ""
    name: str = ""
    input_token_limit: int | None = field(default=None, name="inputTokenLimit")
    max_input_tokens: int | None = None
    max_model_len: int | None = None
    context_length: int | None = None
    context_window: int | None = None
    max_context_length: int | None = None
    loaded_context_length: int | None = None
    meta: _Meta | None = None

    @property
    def window(self) -> int | None:
        meta = self.meta or _Meta()
        window = (
            self.loaded_context_length
            or self.max_model_len
            or self.context_length
            or self.context_window
            or self.max_context_length
            or self.input_token_limit
            or self.max_input_tokens
            or meta.n_ctx
            or meta.n_ctx_train
        )
        return window if window and 0 < window <= MAX_WINDOW else None


class _ModelList(Struct):
    data: list[_ListedModel] | None = None
    models: list[_ListedModel] | None = None
    """Gemini's name for `data`."""


async def find_local_servers(
    env: EnvLookup,
    timeout: float = PROBE_TIMEOUT,  # noqa: ASYNC109 - applies to each probe
) -> Sequence[LocalServer]:
    """Return every known local server that responds, in the order of the provider table."""
    addresses: list[tuple[Provider, str]] = []
    for one in PROVIDERS:
        if one.local and one.name != EMBEDDED:
            urls = (*filter(None, map(env, one.url_env)), one.base_url)
            addresses += [(one, url) for url in dict.fromkeys(map(normalize_url, urls))]
    found: dict[int, LocalServer] = {}

    async def probe(index: int, provider: Provider, url: str) -> None:
        settings = EndpointSettings(base_url=url, connect=timeout, idle=timeout)
        origin = RequestOrigin(provider=provider.name, model="", base_url=url)
        models: Mapping[str, int | None] = {}
        with suppress(ModelError):
            models = await _list(settings, origin)
        if models:
            found[index] = LocalServer(provider=provider.name, base_url=url, models=models)

    with anyio.move_on_after(timeout):
        async with anyio.create_task_group() as group:
            for index, (provider, url) in enumerate(addresses):
                group.start_soon(probe, index, provider, url)
    return [found[index] for index in sorted(found)]


async def list_models(target: ModelTarget, timeout: float = 10.0) -> Mapping[str, int | None]:  # noqa: ASYNC109 - applies to each step
    """Return the models of a server with their context windows, where known."""
    if target.provider == EMBEDDED:
        from hermes.models.embedded.weights import folder_at  # noqa: PLC0415 - rarely needed

        return folder_at(target.base_url).installed_models()
    settings = endpoint_settings(target, min(target.connect, timeout), timeout, 3 * timeout)
    origin = RequestOrigin(
        provider=target.provider,
        model=target.model,
        base_url=target.base_url,
        key_env=target.key_env,
        key=target.keys[0] if target.keys else "",
        local=target.local,
    )
    return await _list(settings, origin, target.api_mode)


async def _list(
    settings: EndpointSettings, origin: RequestOrigin, mode: str = CHAT
) -> Mapping[str, int | None]:
    endpoint = Endpoint(settings)
    try:
        path = _path(mode, settings.base_url)
        body = await endpoint.get(path, _headers(mode, origin), origin, SystemClock())
        listed = msgspec.json.decode(body, type=_ModelList, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        what = f"{origin.address}/models did not return a list of models"
        raise BadRequest(what, hint=url_hint(origin)) from error
    finally:
        await endpoint.client.aclose()
    rows = (listed.models if listed.data is None else listed.data) or ()
    named = ((row.id or row.name.removeprefix("models/"), row.window) for row in rows)
    return {name: window for name, window in named if name}


def _path(mode: str, base_url: str) -> str:
    if mode == ANTHROPIC and not base_url.endswith("/v1"):
        return "/v1/models"
    if mode == GEMINI:
        return gemini_version(base_url) + "/models?pageSize=1000"
    return "/models"


def _headers(mode: str, origin: RequestOrigin) -> dict[str, str]:
    if mode == ANTHROPIC:
        return anthropic_headers(origin.key, origin.base_url)
    if not origin.key:
        return {}
    if mode == GEMINI:
        return {"x-goog-api-key": origin.key}
    return {"authorization": f"Bearer {origin.key}"}


async def verify_model(target: ModelTarget) -> str:
    """Return a warning if the name could not be checked, or an empty string.

    Raises `UsageError`, with similar names as suggestions, or `ConfigError` if there is no such
    model. If the models cannot be listed, the name is accepted.
    """
    name = target.model
    try:
        with anyio.fail_after(LIST_TIMEOUT):
            listed = await list_models(target, LIST_TIMEOUT)
    except TimeoutError:
        reason = f"{target.provider} did not respond within {LIST_TIMEOUT:.0f} seconds"
        return unverified_message(name, reason)
    except ModelError as error:
        return unverified_message(name, str(error))
    if target.provider == EMBEDDED and name not in listed:
        raise ConfigError(
            f"{name} is not installed on this machine.",
            hint=f"Download it: hermes setup --local --model {name}",
        )
    if not listed:
        return unverified_message(name, f"{target.provider} does not list its models")
    check_listed(target.provider, name, listed)
    return ""


def unverified_message(name: str, reason: str) -> str:
    return f"{name} could not be checked ({reason.rstrip('.')}); to check it later: hermes doctor"


def check_listed(provider: str, name: str, listed: Collection[str]) -> None:
    """Raise `UsageError` for a name that is missing from a non-empty list."""
    if not listed or is_listed(name, listed):
        return
    offered = nearest_models(name, listed) or "List its models with `hermes model`"
    raise UsageError(
        not_listed_message(provider, name),
        hint=f"{offered}; to use the name anyway, add --force",
    )


def not_listed_message(provider: str, name: str) -> str:
    return f"{provider} does not list the model {name!r}."


def nearest_models(name: str, listed: Collection[str]) -> str:
    """Return similar names as a sentence, or an empty string."""
    near = ", ".join(similar_names(name, listed, _MAX_SUGGESTIONS))
    return f"Similar models: {near}" if near else ""


def is_listed(name: str, listed: Collection[str]) -> bool:
    """Return whether a name is listed, ignoring Ollama's `:latest` and router variants."""
    return name in listed or f"{name}:latest" in listed or name.rpartition(":")[0] in listed
