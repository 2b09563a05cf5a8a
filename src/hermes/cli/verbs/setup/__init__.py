"""`hermes setup`: choose a provider, a key and a model, test them, then save them.

Only network requests run in an event loop: a question inside one could not be interrupted with
Ctrl+C.
"""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from functools import partial

import anyio
from msgspec import Struct, structs

from hermes.app.model_settings import PROVIDER_SETTINGS, model_settings
from hermes.cli.context import CliContext
from hermes.cli.dialog import BACK, TerminalDialog, check_key
from hermes.cli.verbs.setup.local_model import DownloadDeclined, local_model_note, offer_local_model
from hermes.cli.verbs.setup.other_home import offer_other_home
from hermes.config.editor import change_settings, set_variable
from hermes.config.env import Env
from hermes.config.home import Home, ensure_home
from hermes.config.schema import Config
from hermes.kit.clock import SystemClock
from hermes.kit.hosts import parse_host
from hermes.kit.terminal_text import single_line
from hermes.kit.text import did_you_mean, plural
from hermes.models.auth_file import AuthFile
from hermes.models.discovery import (
    LIST_TIMEOUT,
    check_listed,
    find_local_servers,
    is_listed,
    list_models,
    nearest_models,
    not_listed_message,
    unverified_message,
)
from hermes.models.embedded.weights import local_server_under
from hermes.models.key_pool import KeyPool
from hermes.models.providers import CUSTOM, EMBEDDED, PROVIDERS, Provider, find_provider
from hermes.models.resolver import first_chat_model, resolve_models
from hermes.models.selection import configured_keys, is_configured
from hermes.models.settings import ModelOverrides, ModelSettings
from hermes.models.urls import host_of, normalize_url
from hermes.schema.errors import (
    BadRequest,
    ConfigError,
    ModelError,
    Unauthorized,
    Unreachable,
    UsageError,
)

CUSTOM_KEY = "CUSTOM_API_KEY"
"""The variable with the key of a custom server; the settings refer to it."""
_MAX_ATTEMPTS = 3
_NAMED_PROVIDERS = 4
"""Number of unconfigured providers that are listed; the others are found by search."""
_EXAMPLE_URL = "http://127.0.0.1:8000/v1"
_USAGE_HINT = "hermes setup --provider NAME --key-stdin, or --base-url URL for your own server"


class ModelChoice(Struct, frozen=True, kw_only=True):
    """`key` is a new key; empty if one exists or none is needed."""

    provider: Provider
    base_url: str = ""
    key: str = ""
    model: str = ""


class _SetupContext(Struct, frozen=True):
    """The inputs of a setup run; `settings` are the current ones."""

    args: Namespace
    home: Home
    env: Env
    settings: ModelSettings
    dialog: TerminalDialog


class _Declined(Exception):
    """The user does not want to keep a provider that could not be reached."""

    def __init__(self, error: ModelError) -> None:
        super().__init__(str(error))
        self.error = error


def run(args: Namespace, context: CliContext) -> int:
    set_up(args, context)
    context.print(f"Start chatting: hermes{f' -p {context.profile}' if context.profile else ''}")
    return 0


def set_up(args: Namespace, context: CliContext) -> None:
    """Choose a model, or copy the settings of another home, and save that."""
    home, dialog = context.home(), TerminalDialog(context, interactive=not args.yes)
    copied = offer_other_home(context, home, dialog)
    ensure_home(home)
    env = context.profile_env()
    configured = model_settings(context.load_config().config)
    settings = KeyPool(AuthFile(home.auth), SystemClock()).with_keys(configured)
    setup = _SetupContext(args, home, env, settings, dialog)
    if copied and settings.default:
        context.print("To choose another model: hermes setup")
        return
    if dialog.interactive and settings.default:
        name = "/".join(filter(None, (settings.provider, settings.default)))
        context.print(f"Current model: {single_line(name)}. Press Ctrl+C to keep it.")
    try:
        while (chosen := _choose(setup, context)) is None:
            continue
    except KeyboardInterrupt:
        if dialog.interactive:
            later = context.with_profile("No model was chosen. When you are ready: hermes setup")
            context.note(f"\n{'The model settings are unchanged.' if settings.default else later}")
        raise
    _save_choice(home, env, chosen)
    used = f"{single_line(chosen.provider.name)}/{single_line(chosen.model)}"
    context.print(f"Using {used} from now on.")
    if chosen.key:
        context.print(f"The key is stored in {home.dotenv}, readable only by you.")


def _choose(setup: _SetupContext, context: CliContext) -> ModelChoice | None:
    """The choice; None if it failed and the user wants to choose again."""
    choice = _choose_provider(setup)
    if choice.provider.name == EMBEDDED:
        return _choose_local(setup, context, choice)
    while True:
        try:
            chosen, models = _try_key(setup, choice)
            break
        except _Declined as error:
            if setup.args.provider or setup.args.base_url:
                raise error.error from error
            is_custom = choice.provider is CUSTOM
            if not is_custom or not (url := _ask_url(setup.dialog, choice.base_url)):
                return None
            choice = structs.replace(choice, base_url=url)
    name = _choose_model(setup, chosen, models or {})
    if models is not None and not models and not setup.args.force:
        why = f"{chosen.provider.name} does not list its models"
        setup.dialog.print(f"warning: {unverified_message(name, why)}")
    return structs.replace(chosen, model=name)


def _choose_local(
    setup: _SetupContext, context: CliContext, choice: ModelChoice
) -> ModelChoice | None:
    """Download the embedded model; None if declined without having been requested by flag."""
    wanted: str = setup.args.model or ""
    try:
        name = offer_local_model(context, setup.home, setup.env, setup.dialog, wanted)
    except DownloadDeclined:
        if setup.args.local or setup.args.provider:
            raise
        return None
    return structs.replace(choice, model=name)


def _choose_provider(setup: _SetupContext) -> ModelChoice:
    """The provider, and the address if it is not the provider's default."""
    args = setup.args
    if args.local:
        return ModelChoice(provider=_find_provider(setup, EMBEDDED))
    if args.provider:
        provider = _find_provider(setup, args.provider)
        return ModelChoice(provider=provider, base_url=_check_url(args.base_url))
    if args.base_url:
        url = _check_url(args.base_url)
        known = (known for known in PROVIDERS if host_of(known.base_url) == host_of(url))
        return ModelChoice(provider=next(known, CUSTOM), base_url=url)
    if setup.dialog.interactive:
        return _ask_provider(setup)
    if not args.yes:
        raise UsageError(
            "Cannot ask for a model: stdin is not a terminal.",
            hint="Add --yes to use a detected model or --local for a small one, or run: "
            f"{_USAGE_HINT}",
        )
    return _detect_provider(setup)


def _detect_provider(setup: _SetupContext) -> ModelChoice:
    """The current provider, a server on this machine, or a provider with a key."""
    settings = setup.settings
    if settings.provider and (used := find_provider(settings.provider)):
        return ModelChoice(provider=used, base_url=settings.base_url)
    for server in anyio.run(find_local_servers, setup.env.get):
        return ModelChoice(provider=find_provider(server.provider) or CUSTOM)
    for provider in PROVIDERS:
        if _has_key(setup, ModelChoice(provider=provider)):
            return ModelChoice(provider=provider)
    if local_server_under(setup.home.root):
        return ModelChoice(provider=_find_provider(setup, EMBEDDED))
    raise ConfigError(
        "No key and no local model server found.",
        hint=f"Download a small local model (hermes setup --local), or: {_USAGE_HINT}",
    )


def _ask_provider(setup: _SetupContext) -> ModelChoice:
    servers = anyio.run(find_local_servers, setup.env.get)
    found = {server.provider: len(server.models) for server in servers}
    ready: list[tuple[str, str]] = []
    others: list[tuple[str, str]] = []
    for known in PROVIDERS:
        if known.local and known.name not in {*found, EMBEDDED}:
            continue
        note = ""
        if known.name in found:
            note = f"on this machine, {plural(found[known.name], 'model')}"
        if known.name == EMBEDDED:
            note = local_model_note(setup.home)
        elif not known.local and _has_key(setup, ModelChoice(provider=known)):
            note = "has a key"
        row = (known.name, f"{known.title}{f' ({note})' if note else ''}")
        (ready if note else others).append(row)
    custom = (CUSTOM.name, "Another server (OpenAI-compatible)")
    default = setup.settings.provider or ready[0][0]
    provider = _search_provider(setup, [*ready, custom], others, default)
    if provider is not CUSTOM:
        return ModelChoice(provider=provider)
    url = _ask_url(setup.dialog, setup.settings.base_url or _EXAMPLE_URL)
    return ModelChoice(provider=provider, base_url=url) if url else _ask_provider(setup)


def _search_provider(
    setup: _SetupContext,
    found: Sequence[tuple[str, str]],
    others: Sequence[tuple[str, str]],
    default: str,
) -> Provider:
    """Offer the providers that were found; search the others by part of their name."""
    rows = found
    titles = ", ".join(title for _, title in others[:_NAMED_PROVIDERS])
    setup.dialog.print(
        f"There are {plural(len(others), 'more provider')} ({titles}, …): type a part of the name, "
        "or ? to list them. Press Ctrl+C to stop."
    )
    while True:
        name = setup.dialog.choose(
            "Which provider?", rows, default, partial(_provider_error, setup, others)
        )
        matching = _matching_providers(others, name)
        if len(matching) <= 1:
            return _find_provider(setup, matching[0][0] if matching else name)
        rows, default = matching, matching[0][0]


def _matching_providers(rows: Sequence[tuple[str, str]], typed: str) -> Sequence[tuple[str, str]]:
    """The rows for a part of a name, `?` for all; none for a provider's exact name."""
    if typed == "?":
        return rows
    if find_provider(typed) is not None:
        return ()
    return [row for row in rows if typed.lower() in f"{row[0]} {row[1]}".lower()]


def _ask_url(dialog: TerminalDialog, default: str) -> str:
    """Ask for a server's address; empty to go back to the providers."""
    while True:
        address = dialog.ask_line(f"Server address ({BACK} goes back)", default)
        if address == BACK:
            return ""
        try:
            return _check_url(address)
        except UsageError as error:
            dialog.print(f"{error} For example: {_EXAMPLE_URL}")


def _provider_error(setup: _SetupContext, others: Sequence[tuple[str, str]], name: str) -> str:
    if _matching_providers(others, name):
        return ""
    try:
        _find_provider(setup, name)
    except UsageError as error:
        return error.sentence
    return ""


def _find_provider(setup: _SetupContext, name: str) -> Provider:
    for custom in setup.settings.custom_providers:
        if custom.name.lower() == name.lower().removeprefix("custom:"):
            return structs.replace(
                CUSTOM, name=custom.name, title=custom.name, base_url=custom.base_url, key_env=()
            )
    if (provider := find_provider(name)) is not None:
        return provider
    names = [one.name for one in (*PROVIDERS, CUSTOM)]
    hint = did_you_mean(name, names) or f"Choose one of: {', '.join(names)}"
    raise UsageError(f"Unknown provider: {name!r}.", hint=hint)


def _check_url(address: str | None) -> str:
    if not address:
        return ""
    scheme, named, _ = address.partition("://")
    is_url = scheme in {"http", "https"} if named else bool({".", ":"} & {*address})
    if not is_url or parse_host(host_of(normalize_url(address))) is None:
        raise UsageError(
            f"{address!r} is not a valid address.", hint=f"For example: --base-url {_EXAMPLE_URL}"
        )
    return normalize_url(address)


def _has_key(setup: _SetupContext, choice: ModelChoice) -> bool:
    if _configured_key(setup, choice):
        return True
    without_key = structs.replace(setup.settings, api_key="")
    keys = configured_keys(without_key, setup.env.get, choice.provider.name)
    return bool(keys or setup.settings.pools.get(choice.provider.name))


def _try_key(
    setup: _SetupContext, choice: ModelChoice
) -> tuple[ModelChoice, Mapping[str, int | None] | None]:
    """The choice with a working key, and its models; None if the provider is unreachable."""
    chosen = structs.replace(choice, key=_new_key(setup, choice))
    for attempt in range(1, _MAX_ATTEMPTS + 1):
        try:
            return chosen, anyio.run(_offered_models, setup, chosen)
        except Unauthorized as error:
            if not setup.dialog.interactive or attempt == _MAX_ATTEMPTS:
                raise Unauthorized(
                    f"{str(error).rstrip('.')}. Nothing was changed.",
                    hint="Copy the key again, then: hermes setup",
                ) from error
            setup.dialog.print(str(error))
            chosen = structs.replace(chosen, key=setup.dialog.ask_key(chosen.provider.title))
        except ModelError as error:
            _confirm_untested(setup, error)
            return chosen, None
    raise AssertionError("unreachable")


def _confirm_untested(setup: _SetupContext, error: ModelError) -> None:
    """Ask whether to keep a provider that cannot be reached now."""
    message = f"{str(error)[:1].upper()}{str(error)[1:]}".rstrip(".")
    if setup.args.yes or (
        setup.dialog.interactive and setup.dialog.confirm(f"{message}. Use it anyway?")
    ):
        setup.dialog.print(f"Not tested: {message}. Check it later: hermes doctor")
        return
    advice = f"{error.hint.rstrip('.')}. " if error.hint else ""
    hint = f"{advice}Nothing was changed; use --yes to save it anyway."
    failure = type(error)(str(error), hint=hint)
    raise (_Declined(failure) if setup.dialog.interactive else failure) from error


def _new_key(setup: _SetupContext, choice: ModelChoice) -> str:
    """A new key; empty if none is needed or one exists."""
    args, provider = setup.args, choice.provider
    if args.key_stdin:
        return setup.dialog.key_from_stdin()
    if args.key_env:
        key = setup.env.get(args.key_env, "").strip()
        if not key:
            raise UsageError(
                f"The variable {args.key_env} is not set.",
                hint=f"Set it: export {args.key_env}=YOUR_KEY",
            )
        return check_key(key)
    no_key_needed = provider.local or provider.name == CUSTOM.name or not provider.key_env
    if no_key_needed or _has_key(setup, choice):
        return ""
    if setup.dialog.interactive:
        return setup.dialog.ask_key(provider.title)
    raise UsageError(
        f"No key for {provider.title}.",
        hint=f"Pipe it in: hermes setup --provider {provider.name} --key-stdin < FILE, or name "
        "the environment variable that holds it: --key-env NAME",
    )


async def _offered_models(setup: _SetupContext, chosen: ModelChoice) -> Mapping[str, int | None]:
    """The provider's models; empty if it has no list. Raises `ModelError`."""
    provider = chosen.provider
    blank = structs.replace(
        setup.settings, default="", provider="", base_url="", api_key="", api_mode=""
    )
    flags = ModelOverrides(
        provider=provider.name,
        model=setup.args.model or "any",
        base_url=chosen.base_url,
        api_key=chosen.key or _configured_key(setup, chosen),
    )
    target = resolve_models(blank, setup.env.get, flags).primary
    try:
        with anyio.fail_after(LIST_TIMEOUT):
            return await list_models(target, LIST_TIMEOUT)
    except TimeoutError as error:
        raise Unreachable(
            f"{provider.title} did not answer within {LIST_TIMEOUT:.0f} seconds.",
            hint="Check the network and the address, then: hermes setup",
        ) from error
    except BadRequest:
        return {}


def _configured_key(setup: _SetupContext, chosen: ModelChoice) -> str:
    """The key in the settings, if it belongs to the same provider and address."""
    settings = setup.settings
    same = is_configured(settings, chosen.provider.name) and settings.base_url == chosen.base_url
    return settings.api_key if same else ""


def _choose_model(
    setup: _SetupContext, chosen: ModelChoice, models: Mapping[str, int | None]
) -> str:
    args, provider, settings = setup.args, chosen.provider, setup.settings
    if args.model:
        if not args.force:
            check_listed(provider.name, args.model, models)
        return args.model
    same = settings.default if settings.provider == provider.name else ""
    candidates = [same, provider.default_model]
    default = next((name for name in candidates if name and (not models or name in models)), "")
    default = default or first_chat_model(models)
    if setup.dialog.interactive:
        rows = [(name, "") for name in models]
        known = () if args.force else tuple(models)
        check = _UnlistedCheck(provider, known)
        return setup.dialog.choose("Which model?", rows, default, check)
    if not default:
        raise UsageError(
            f"{provider.title} does not list its models.", hint="Choose one: --model NAME"
        )
    return default


class _UnlistedCheck:
    """Rejects an unlisted model name once and accepts it when repeated."""

    def __init__(self, provider: Provider, models: Sequence[str]) -> None:
        self._provider = provider
        self._models = models
        self._last_name = ""

    def __call__(self, name: str) -> str:
        repeated, self._last_name = name == self._last_name, name
        if repeated or not self._models or is_listed(name, self._models):
            return ""
        near = nearest_models(name, self._models)
        parts = [not_listed_message(self._provider.name, name), f"{near}." if near else ""]
        return " ".join([*filter(None, parts), "Enter the same name again to use it anyway."])


def _save_choice(home: Home, env: Env, chosen: ModelChoice) -> None:
    """Write provider, address, key and model in one change to the settings.

    A new key is stored in its variable first; the settings refer to it only together with its
    address.
    """
    variable = _key_variable(chosen.provider)
    if chosen.key:
        if variable == CUSTOM_KEY:
            change_settings(home, env, _without_custom_key)
        set_variable(home, variable, chosen.key)
        env = env.overlaid({variable: chosen.key})
    change_settings(home, env, partial(_changes, chosen))


def _without_custom_key(config: Config) -> Mapping[str, str | None]:
    """Drop the reference: the variable is about to hold another server's key."""
    return {"model.api_key": None} if config.main_model.api_key else {}


def _changes(chosen: ModelChoice, config: Config) -> Mapping[str, str | None]:
    before = config.main_model
    changed = not is_configured(model_settings(config), chosen.provider.name)
    changes: dict[str, str | None] = dict.fromkeys(PROVIDER_SETTINGS) if changed else {}
    if before.base_url != chosen.base_url or chosen.key:
        changes["model.api_key"] = None
    changes["model.base_url"] = chosen.base_url or None
    if chosen.key and _key_variable(chosen.provider) == CUSTOM_KEY:
        changes["model.api_key"] = f"${{{CUSTOM_KEY}}}"
    return changes | {"model.default": chosen.model, "model.provider": chosen.provider.name}


def _key_variable(provider: Provider) -> str:
    """The variable for the key; custom addresses share CUSTOM_API_KEY."""
    if provider.name == CUSTOM.name or not provider.key_env:
        return CUSTOM_KEY
    return provider.key_env[0]
