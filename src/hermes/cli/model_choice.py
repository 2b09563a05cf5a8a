"""What `hermes model` does: ask all that can be reached, show it, or change what is used."""

from argparse import Namespace
from collections.abc import Sequence
from contextlib import suppress

import msgspec
from msgspec import structs

from hermes.app.model_settings import model_settings
from hermes.app.models import ModelDesk, with_weights
from hermes.app.offers import Offer, reachable
from hermes.cli.context import CliContext
from hermes.cli.export.plain import flat
from hermes.cli.local_model import Fetchable, fetchable
from hermes.cli.next_step import as_typed
from hermes.cli.style import Style
from hermes.config.dotenv import env_of
from hermes.config.env import Env
from hermes.config.home import ensure_home
from hermes.config.load import load_config
from hermes.kit.clock import SystemClock
from hermes.models.address import shown_url
from hermes.models.embedded.catalogue import catalogue
from hermes.models.embedded.fetching import in_megabytes
from hermes.models.pool import KeyPool
from hermes.models.providers import EMBEDDED
from hermes.models.resolve import NothingConfigured
from hermes.ports.model import Model
from hermes.schema.errors import HermesError, UsageError
from hermes.store.blobs import FileBlobs

SHOWN = 12
_CHANGE = "\nChange it with: hermes model NAME [--provider NAME]\n"
_NOTHING = """\
Nothing can be reached yet. Either start a local server (Ollama, LM Studio,
llama.cpp, vLLM), or name an address, or set a key:

  hermes config set model.base_url http://127.0.0.1:8000/v1
  hermes config set OPENROUTER_API_KEY        (asks for it)
"""


async def show_or_choose(args: Namespace, context: CliContext) -> int:
    home = context.home()
    env = env_of(home.dotenv, context.env)
    clock = SystemClock()
    told = model_settings(load_config(home, env).config)
    settings = with_weights(KeyPool(home.auth, clock).under(told), home)
    desk = ModelDesk(home, env, told, FileBlobs(home.cache / "blobs"), clock)
    try:
        if args.name:
            ensure_home(home)
            chosen, doubt = await _chosen(args, desk)
            removed = await desk.keep(chosen)
            context.stdout.write(f"Using {flat(desk.current())} from now on.\n")
            if removed:
                names = ", ".join(removed)
                context.stdout.write(f"Removed from the settings of the former provider: {names}\n")
            if doubt:
                context.stderr.write(f"hermes: warning: {flat(doubt)}\n")
            return 0
        with suppress(HermesError):
            await desk.find()
        offers = [
            structs.replace(offer, base_url=shown_url(offer.base_url))
            for offer in _of(args.provider, await reachable(settings, env.get))
        ]
    finally:
        await desk.aclose()
    fetching = fetchable(home) if args.provider in (None, EMBEDDED) else []
    if args.json:
        document = {"in_use": desk.current(), "providers": offers, "fetchable": fetching}
        context.stdout.write(msgspec.json.encode(document).decode() + "\n")
        return 0
    _print(args, context, env, desk.current(), offers)
    _print_fetchable(context, [one for one in fetching if not one.here])
    return 0


async def _chosen(args: Namespace, desk: ModelDesk) -> tuple[Model, str]:
    """With what is to be said of it; where nothing is set up, it can only be one of our list."""
    provider = args.provider
    try:
        model = await desk.choose(args.name, provider)
    except NothingConfigured:
        if args.name not in {one.name for one in catalogue()}:
            raise
        provider = EMBEDDED
        model = await desk.choose(args.name, provider)
    return model, "" if args.force else await desk.doubt(args.name, provider)


def _print_fetchable(context: CliContext, rows: Sequence[Fetchable]) -> None:
    """What could run inside Hermes; it is not fetched from here."""
    if not rows:
        return
    out = context.stdout
    fetch = as_typed("hermes setup --local", context.profile)
    out.write(f"\nCan be fetched, and then needs no key and no server: {fetch}\n")
    for one in rows:
        out.write(f"    {one.name:<20} {in_megabytes(one.size)}, {one.licence}\n")


def _of(provider: str | None, offers: Sequence[Offer]) -> Sequence[Offer]:
    chosen = [offer for offer in offers if provider in (None, offer.provider)]
    if provider and not chosen:
        raise UsageError(
            f"{provider} cannot be reached from here.", hint="`hermes model` lists what can."
        )
    return chosen


def _print(
    args: Namespace, context: CliContext, env: Env, current: str, offers: Sequence[Offer]
) -> None:
    style = Style(context.stdout, env.get("NO_COLOR"), env.get("TERM"))
    out = context.stdout
    out.write(f"In use: {style(flat(current), 'bold')}\n\n")
    for offer in offers:
        place = "on this machine, " if offer.local else ""
        address = flat(offer.base_url)
        out.write(f"{style(flat(offer.provider), 'bold')} ({place}{address})\n")
        if offer.trouble:
            trouble = style.wrapped(f"  {flat(offer.trouble)}", "  ")
            out.write(f"{style(trouble, 'yellow')}\n")
        shown = offer.models if args.all else offer.models[:SHOWN]
        for model in shown:
            mark = style("*", "green") if f"{offer.provider}/{model}" == current else " "
            out.write(f"  {mark} {flat(model)}\n")
        if len(shown) < len(offer.models):
            out.write(f"    … and {len(offer.models) - len(shown):,} more (--all)\n")
    out.write(as_typed(_CHANGE if offers else _NOTHING, context.profile))
