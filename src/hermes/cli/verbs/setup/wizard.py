"""What `hermes setup` does: choose a provider, a key and a model, try them, then write them.

Only what goes over the network runs in an event loop: a question that waits in one could not be
left with Ctrl+C.
"""

from argparse import Namespace
from collections.abc import Mapping, Sequence

import anyio
from msgspec import Struct, structs

from hermes.app.model_settings import model_settings
from hermes.cli.context import CliContext
from hermes.cli.dialog import TerminalDialog, check_key
from hermes.cli.verbs.setup.choice import ModelChoice, save_choice
from hermes.cli.verbs.setup.local_model import DownloadDeclined, local_model_note, offer_local_model
from hermes.config.dotenv import profile_env
from hermes.config.env import Env
from hermes.config.home import Home, ensure_home
from hermes.config.loader import load_config
from hermes.kit.clock import SystemClock
from hermes.kit.terminal_text import single_line
from hermes.kit.text import did_you_mean, plural
from hermes.models.discovery import find_local_servers, list_models
from hermes.models.embedded.target import local_server_under
from hermes.models.key_pool import KeyPool
from hermes.models.key_sources import configured_keys
from hermes.models.model_check import (
    LIST_TIMEOUT,
    check_listed,
    is_listed,
    nearest_models,
    not_listed_message,
    unverified_message,
)
from hermes.models.providers import CUSTOM, EMBEDDED, PROVIDERS, Provider, find_provider
from hermes.models.resolver import first_chat_model, resolve_models
from hermes.models.selection import is_configured
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

_MAX_ATTEMPTS = 3
_EXAMPLE_URL = "http://127.0.0.1:8000/v1"
_USAGE_HINT = "hermes setup --provider NAME --key-stdin, or --base-url URL for a server of your own"


class _SetupContext(Struct, frozen=True):
    """What a run of it works with; `settings` are those before it."""

    args: Namespace
    home: Home
    env: Env
    settings: ModelSettings
    person: TerminalDialog


class _Declined(Exception):
    """Somebody does not want to keep what could not be tried."""

    def __init__(self, trouble: ModelError) -> None:
        super().__init__(str(trouble))
        self.trouble = trouble


def run_setup(args: Namespace, context: CliContext) -> int:
    home = context.home()
    ensure_home(home)
    env = profile_env(home.dotenv, context.env)
    settings = model_settings(load_config(home, env).config)
    pooled = KeyPool(home.auth, SystemClock()).under(settings)
    desk = _SetupContext(args, home, env, pooled, TerminalDialog(context, asks=not args.yes))
    _print_current(desk, context)
    chosen = _choose(desk, context)
    while chosen is None:
        chosen = _choose(desk, context)
    save_choice(home, env, chosen)
    _print_result(context, home, chosen)
    return 0


def _print_current(desk: _SetupContext, context: CliContext) -> None:
    """Whoever runs it again begins where they are."""
    settings = desk.settings
    if desk.person.asks and settings.default:
        name = "/".join(filter(None, (settings.provider, settings.default)))
        context.stdout.write(f"Now it is {single_line(name)}; Ctrl+C leaves it at that.\n")


def _choose(desk: _SetupContext, context: CliContext) -> ModelChoice | None:
    """None when the person saw that it does not work, and wants to choose again."""
    place = _choose_provider(desk)
    if place.provider.name == EMBEDDED:
        return _choose_local(desk, context, place)
    try:
        chosen, models = _try_key(desk, place)
    except _Declined as error:
        if desk.args.provider or desk.args.base_url:
            raise error.trouble from error
        return None
    name = _choose_model(desk, chosen, models or {})
    if models is not None and not models and not desk.args.force:
        why = f"{chosen.provider.name} does not say which models it has"
        desk.person.says(f"warning: {unverified_message(name, why)}")
    return structs.replace(chosen, model=name)


def _choose_local(
    desk: _SetupContext, context: CliContext, place: ModelChoice
) -> ModelChoice | None:
    """None when the person does not want to have it fetched, and did not ask for it by name."""
    wanted: str = desk.args.model or ""
    try:
        name = offer_local_model(context, desk.home, desk.env, desk.person, wanted)
    except DownloadDeclined:
        if desk.args.local or desk.args.provider:
            raise
        return None
    return structs.replace(place, model=name)


def _print_result(context: CliContext, home: Home, chosen: ModelChoice) -> None:
    out = context.stdout
    out.write(
        f"Using {single_line(chosen.provider.name)}/{single_line(chosen.model)} from now on.\n"
    )
    if chosen.key:
        out.write(f"The key is in {home.dotenv}, which only you may read.\n")
    out.write(f"Talk to it: hermes{f' -p {context.profile}' if context.profile else ''}\n")


def _choose_provider(desk: _SetupContext) -> ModelChoice:
    """The provider, and the address where it is another than its own."""
    args = desk.args
    if args.local:
        return ModelChoice(provider=_find_provider(desk, EMBEDDED))
    if args.provider:
        return ModelChoice(
            provider=_find_provider(desk, args.provider), base_url=_check_url(args.base_url)
        )
    if args.base_url:
        url = _check_url(args.base_url)
        known = (one for one in PROVIDERS if host_of(one.base_url) == host_of(url))
        return ModelChoice(provider=next(known, CUSTOM), base_url=url)
    if desk.person.asks:
        return _ask_provider(desk)
    if not args.yes:
        raise UsageError(
            "There is nobody to ask which model to use.",
            hint="Take what is found (--yes), a small model that runs here (--local), or: "
            f"{_USAGE_HINT}",
        )
    return _detect_provider(desk)


def _detect_provider(desk: _SetupContext) -> ModelChoice:
    """What is in use already, a server of this machine, or a provider that has a key."""
    settings = desk.settings
    if settings.provider and (used := find_provider(settings.provider)):
        return ModelChoice(provider=used, base_url=settings.base_url)
    for server in anyio.run(find_local_servers, desk.env.get):
        return ModelChoice(provider=find_provider(server.provider) or CUSTOM)
    for provider in PROVIDERS:
        if _has_key(desk, ModelChoice(provider=provider)):
            return ModelChoice(provider=provider)
    if local_server_under(desk.home.root):
        return ModelChoice(provider=_find_provider(desk, EMBEDDED))
    raise ConfigError(
        "There is no key and no model server on this machine.",
        hint=f"Fetch a small model that runs here (hermes setup --local), or: {_USAGE_HINT}",
    )


def _ask_provider(desk: _SetupContext) -> ModelChoice:
    found = {one.provider: len(one.models) for one in anyio.run(find_local_servers, desk.env.get)}
    ready: list[tuple[str, str]] = []
    others: list[tuple[str, str]] = []
    for one in PROVIDERS:
        if one.local and one.name not in {*found, EMBEDDED}:
            continue
        notes = f"on this machine, {plural(found[one.name], 'model')}" if one.name in found else ""
        if one.name == EMBEDDED:
            notes = local_model_note(desk.home)
        elif not one.local and _has_key(desk, ModelChoice(provider=one)):
            notes = "has a key"
        row = (one.name, f"{one.title}{f' ({notes})' if notes else ''}")
        (ready if notes else others).append(row)
    rows = [*ready, *others]
    rows.append((CUSTOM.name, "Another address (any OpenAI-compatible server)"))
    usual = desk.settings.provider or rows[0][0]
    name = desk.person.choice(
        "Which provider?", rows, usual, lambda name: _provider_error(desk, name)
    )
    provider = _find_provider(desk, name)
    if provider is not CUSTOM:
        return ModelChoice(provider=provider)
    old = desk.settings.base_url or _EXAMPLE_URL
    return ModelChoice(provider=provider, base_url=_ask_url(desk.person, old))


def _ask_url(person: TerminalDialog, usual: str) -> str:
    while True:
        given = person.line("Its address", usual)
        try:
            return _check_url(given)
        except UsageError as error:
            person.says(f"{error} For example: {_EXAMPLE_URL}")


def _provider_error(desk: _SetupContext, name: str) -> str:
    try:
        _find_provider(desk, name)
    except UsageError as error:
        return error.sentence
    return ""


def _find_provider(desk: _SetupContext, name: str) -> Provider:
    for custom in desk.settings.custom_providers:
        if custom.name.lower() == name.lower().removeprefix("custom:"):
            return structs.replace(
                CUSTOM, name=custom.name, title=custom.name, base_url=custom.base_url, key_env=()
            )
    provider = find_provider(name)
    if provider is None:
        names = [one.name for one in (*PROVIDERS, CUSTOM)]
        near = did_you_mean(name, names)
        raise UsageError(
            f"There is no provider {name!r}.", hint=near or f"Choose one of: {', '.join(names)}"
        )
    return provider


def _check_url(given: str | None) -> str:
    if not given:
        return ""
    scheme, named, _ = given.partition("://")
    if scheme not in {"http", "https"} if named else not {".", ":"} & {*given}:
        raise UsageError(
            f"{given!r} is no address.", hint=f"For example: --base-url {_EXAMPLE_URL}"
        )
    return normalize_url(given)


def _has_key(desk: _SetupContext, place: ModelChoice) -> bool:
    if _configured_key(desk, place):
        return True
    elsewhere = structs.replace(desk.settings, api_key="")
    told = configured_keys(elsewhere, desk.env.get, place.provider.name)
    return bool(told or desk.settings.pools.get(place.provider.name))


def _try_key(
    desk: _SetupContext, place: ModelChoice
) -> tuple[ModelChoice, Mapping[str, int | None] | None]:
    """With a key that is accepted, and the models for it; None where nothing could be tried."""
    chosen = structs.replace(place, key=_new_key(desk, place))
    for attempt in range(1, _MAX_ATTEMPTS + 1):
        try:
            return chosen, anyio.run(_offered_models, desk, chosen)
        except Unauthorized as error:
            if not desk.person.asks or attempt == _MAX_ATTEMPTS:
                raise Unauthorized(
                    f"{str(error).rstrip('.')}. Nothing was changed.",
                    hint="Copy the key again, then: hermes setup",
                ) from error
            desk.person.says(str(error))
            chosen = structs.replace(chosen, key=desk.person.key(chosen.provider.title))
        except ModelError as error:
            _confirm_untested(desk, error)
            return chosen, None
    raise AssertionError("unreachable")


def _confirm_untested(desk: _SetupContext, error: ModelError) -> None:
    """A provider that cannot be reached just now may still be the right one."""
    said = f"{str(error)[:1].upper()}{str(error)[1:]}".rstrip(".")
    if desk.args.yes or (desk.person.asks and desk.person.agrees(f"{said}. Keep it all the same?")):
        desk.person.says(f"It could not be tried: {said}. Once it should work: hermes doctor")
        return
    advice = f"{error.hint.rstrip('.')}. " if error.hint else ""
    hint = f"{advice}Nothing was changed; --yes keeps it all the same."
    trouble = type(error)(str(error), hint=hint)
    raise (_Declined(trouble) if desk.person.asks else trouble) from error


def _new_key(desk: _SetupContext, place: ModelChoice) -> str:
    """A new key; empty when none is needed, or when there is one already."""
    args, provider = desk.args, place.provider
    if args.key_stdin:
        return desk.person.key_from_stdin()
    if args.key_env:
        key = desk.env.get(args.key_env, "").strip()
        if not key:
            raise UsageError(
                f"The variable {args.key_env} is not set.", hint=f"export {args.key_env}=YOUR_KEY"
            )
        return check_key(key)
    needless = provider.local or provider.name == CUSTOM.name or not provider.key_env
    if needless or _has_key(desk, place):
        return ""
    if desk.person.asks:
        return desk.person.key(provider.title)
    raise UsageError(
        f"There is no key for {provider.title}.",
        hint=f"Pipe it in: hermes setup --provider {provider.name} --key-stdin < FILE, or name "
        "the variable that holds it: --key-env NAME",
    )


async def _offered_models(desk: _SetupContext, chosen: ModelChoice) -> Mapping[str, int | None]:
    """What the provider offers; nothing when it has no list. Raises `ModelError`."""
    provider = chosen.provider
    blank = structs.replace(
        desk.settings, default="", provider="", base_url="", api_key="", api_mode=""
    )
    flags = ModelOverrides(
        provider=provider.name,
        model=desk.args.model or "any",
        base_url=chosen.base_url,
        api_key=chosen.key or _configured_key(desk, chosen),
    )
    target = resolve_models(blank, desk.env.get, flags).primary
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


def _configured_key(desk: _SetupContext, chosen: ModelChoice) -> str:
    """The key that the settings name beside the same provider and the same address."""
    settings = desk.settings
    same = is_configured(settings, chosen.provider.name) and settings.base_url == chosen.base_url
    return settings.api_key if same else ""


def _choose_model(
    desk: _SetupContext, chosen: ModelChoice, models: Mapping[str, int | None]
) -> str:
    args, provider, settings = desk.args, chosen.provider, desk.settings
    if args.model:
        if not args.force:
            check_listed(provider.name, args.model, models)
        return args.model
    same = settings.default if settings.provider == provider.name else ""
    wishes = [same, provider.default_model]
    usual = next((one for one in wishes if one and (not models or one in models)), "")
    usual = usual or first_chat_model(models)
    if desk.person.asks:
        rows = [(name, "") for name in models]
        known = () if args.force else tuple(models)
        return desk.person.choice(
            "Which model?", rows, usual, _UnlistedCheck(provider, known).about
        )
    if not usual:
        raise UsageError(
            f"{provider.title} does not say which models it has.", hint="Name one: --model NAME"
        )
    return usual


class _UnlistedCheck:
    """A name that is not listed is taken when it is said once more."""

    def __init__(self, provider: Provider, models: Sequence[str]) -> None:
        self._provider = provider
        self._models = models
        self._said = ""

    def about(self, name: str) -> str:
        again, self._said = name == self._said, name
        if again or not self._models or is_listed(name, self._models):
            return ""
        near = nearest_models(name, self._models)
        parts = [not_listed_message(self._provider.name, name), f"{near}." if near else ""]
        return " ".join([*filter(None, parts), "The same name once more takes it as it is."])
