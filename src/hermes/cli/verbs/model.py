"""`hermes model`: list available models and choose one."""

from argparse import Namespace
from collections.abc import Sequence
from contextlib import suppress

import anyio
from msgspec import Struct, structs

from hermes.app.model_settings import model_settings
from hermes.app.models import ModelSelector, ProviderModels, find_available
from hermes.app.storage import open_blobs
from hermes.cli.context import CliContext
from hermes.cli.dialog import TerminalDialog
from hermes.cli.output import Style
from hermes.cli.verbs.setup.local_model import DownloadableModel, downloadable_models
from hermes.config.home import ensure_home
from hermes.kit.clock import SystemClock
from hermes.kit.terminal_text import single_line
from hermes.kit.text import did_you_mean
from hermes.models.auth_file import AuthFile
from hermes.models.embedded.download import format_size
from hermes.models.embedded.weights import weights_catalog
from hermes.models.key_pool import KeyPool
from hermes.models.providers import CUSTOM, EMBEDDED, PROVIDERS, find_provider
from hermes.models.resolver import NoProviderConfigured
from hermes.models.settings import ModelSettings
from hermes.models.urls import redacted_url
from hermes.ports.model import Model
from hermes.schema.errors import HermesError, UsageError

MAX_MODELS = 12
_CHANGE_HINT = "\nChange it: hermes model NAME [--provider NAME]\n"
_NOTHING_REACHABLE = """\
No provider can be reached. Start a local server (Ollama, LM Studio, llama.cpp,
vLLM), set its address, or set a key:

  hermes config set model.base_url http://127.0.0.1:8000/v1
  hermes config set OPENROUTER_API_KEY        (asks for it)
"""


def run(args: Namespace, context: CliContext) -> int:
    return anyio.run(_show_or_choose, args, context)


async def _show_or_choose(args: Namespace, context: CliContext) -> int:
    home, env, clock = context.home(), context.profile_env(), SystemClock()
    configured = model_settings(context.load_config().config, home.root)
    settings = KeyPool(AuthFile(home.auth), clock).with_keys(configured)
    selector = ModelSelector(home, env, configured, open_blobs(home), clock)
    try:
        if args.name:
            ensure_home(home)
            chosen, doubt = await _choose(args, selector)
            removed = await selector.save_default(chosen)
            context.print(f"Using {single_line(selector.current())} from now on.")
            if removed:
                context.print(f"Removed settings of the previous provider: {', '.join(removed)}")
            if doubt:
                context.note(f"hermes: warning: {single_line(doubt)}")
            return 0
        with suppress(HermesError):
            await selector.find()
        offers = [
            structs.replace(offer, base_url=redacted_url(offer.base_url))
            for offer in _for_provider(
                args.provider, await find_available(settings, env.get), settings
            )
        ]
    finally:
        await selector.aclose()
    fetching = downloadable_models(home) if args.provider in (None, EMBEDDED) else []
    if args.json:
        document = {"in_use": selector.current(), "providers": offers, "fetchable": fetching}
        context.print_json(document)
        return 0
    dialog = TerminalDialog(context, interactive=context.stdout.isatty())
    if dialog.interactive and not args.all and any(offer.models for offer in offers):
        return await _pick(args, context, offers, selector.current(), dialog)
    _print(args, context, selector.current(), offers)
    _print_downloadable(context, [model for model in fetching if not model.here])
    return 0


async def _pick(
    args: Namespace,
    context: CliContext,
    offers: Sequence[ProviderModels],
    current: str,
    dialog: TerminalDialog,
) -> int:
    """Let the user choose from a list; Enter keeps the current model."""
    rows = [
        PickableModel(offer.provider, model, f"{offer.provider}/{model}" == current)
        for offer in offers
        for model in offer.models
    ]
    for offer in offers:
        if offer.error:
            dialog.print(f"{offer.provider}: {offer.error}")
    chosen = pick_model(dialog, rows, current)
    if chosen is None:
        context.print(f"Still using {single_line(current)}.")
        return 0
    args.name, args.provider = chosen.model, chosen.provider
    return await _show_or_choose(args, context)


class PickableModel(Struct, frozen=True):
    provider: str
    model: str
    in_use: bool = False


def pick_model(
    dialog: TerminalDialog, rows: Sequence[PickableModel], current: str
) -> PickableModel | None:
    """The chosen model; None to keep the current one. Words narrow a long list down."""
    shown = list(rows)
    while True:
        dialog.show_rows(
            f"In use: {current}. Models that can be reached:",
            [
                (f"{model.provider}/{model.model}", "in use" if model.in_use else "")
                for model in shown
            ],
        )
        answer = dialog.ask_line("Number, name, or words to search (Enter keeps it)", "keep")
        if answer == "keep":
            return None
        if answer.isdecimal() and 1 <= int(answer) <= len(shown):
            return shown[int(answer) - 1]
        exact = [row for row in rows if answer in {row.model, f"{row.provider}/{row.model}"}]
        wanted = answer.casefold().split()
        found = exact[:1] or [
            row
            for row in rows
            if all(word in f"{row.provider}/{row.model}".casefold() for word in wanted)
        ]
        if len(found) == 1:
            return found[0]
        if not found:
            dialog.print(f"No model matches {answer!r}.")
        shown = found or list(rows)


async def _choose(args: Namespace, selector: ModelSelector) -> tuple[Model, str]:
    """The chosen model and a warning; with no provider set up, only embedded models work."""
    provider = args.provider
    try:
        model = await selector.choose(args.name, provider)
    except NoProviderConfigured:
        if args.name not in {weights.name for weights in weights_catalog()}:
            raise
        provider = EMBEDDED
        model = await selector.choose(args.name, provider)
    return model, "" if args.force else await selector.check_name(args.name, provider)


def _print_downloadable(context: CliContext, rows: Sequence[DownloadableModel]) -> None:
    """List the embedded models that `hermes setup --local` can download."""
    if not rows:
        return
    command = context.with_profile("hermes setup --local")
    context.print(f"\nAvailable for download, without a key or server: {command}")
    for row in rows:
        context.print(f"    {row.name:<20} {format_size(row.size)}, {row.licence}")


def _for_provider(
    provider: str | None, offers: Sequence[ProviderModels], settings: ModelSettings
) -> Sequence[ProviderModels]:
    chosen = [offer for offer in offers if provider in (None, offer.provider)]
    if provider and not chosen:
        names = [one.name for one in (*PROVIDERS, CUSTOM, *settings.custom_providers)]
        if find_provider(provider) is None and provider not in names:
            hint = did_you_mean(provider, names) or f"Choose one of: {', '.join(names)}"
            raise UsageError(f"Unknown provider: {provider!r}.", hint=hint)
        raise UsageError(
            f"{provider} cannot be reached.", hint="List what can be reached: hermes model"
        )
    return chosen


def _print(
    args: Namespace, context: CliContext, current: str, offers: Sequence[ProviderModels]
) -> None:
    style = Style(context.stdout, context.env)
    context.print(f"In use: {style(single_line(current), 'bold')}\n")
    for offer in offers:
        location = "on this machine, " if offer.local else ""
        address = single_line(offer.base_url)
        context.print(f"{style(single_line(offer.provider), 'bold')} ({location}{address})")
        if offer.error:
            error = style.wrap_text(f"  {single_line(offer.error)}", "  ")
            context.print(style(error, "yellow"))
        shown = offer.models if args.all else offer.models[:MAX_MODELS]
        for model in shown:
            mark = style("*", "green") if f"{offer.provider}/{model}" == current else " "
            context.print(f"  {mark} {single_line(model)}")
        if len(shown) < len(offer.models):
            context.print(f"    … and {len(offer.models) - len(shown):,} more (--all)")
    context.stdout.write(context.with_profile(_CHANGE_HINT if offers else _NOTHING_REACHABLE))
