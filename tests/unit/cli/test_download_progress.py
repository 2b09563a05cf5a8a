"""The progress bar of a model download."""

import fcntl
import os
import struct
import termios
from io import StringIO

import pytest

from hermes.cli.output import Style
from hermes.cli.verbs.setup.local_model import ProgressBar
from hermes.models.embedded.download import PACKAGES, DownloadProgress

HALF = DownloadProgress("fetching", 50, 100, PACKAGES)


def drawn(columns: int) -> str:
    master, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with os.fdopen(terminal, "w") as out, os.fdopen(master, "rb", buffering=0) as screen:
        ProgressBar(out, Style(out, {"TERM": "xterm"}))(HALF)
        return screen.read(1000).decode().rpartition("\x1b[K")[2]


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
def test_bar_fits_on_one_line(columns: int) -> None:
    """A wrapped line cannot be redrawn."""
    line = drawn(columns)
    assert len(line) < columns
    assert line.startswith("[#####")
    assert " 50% Downloading" in line


def test_wide_terminal_shows_the_source() -> None:
    assert drawn(80).endswith(".]  50% Downloading the weights from the package registry")


def test_output_without_terminal_is_occasional_lines() -> None:
    out = StringIO()
    show = ProgressBar(out, Style(out, {}))
    for done in (1, 5, 11, 19, 20):
        show(DownloadProgress("fetching", done, 100, PACKAGES))
    label = "Downloading the weights from the package registry: "
    assert out.getvalue() == f"{label}0%\n{label}10%\n{label}20%\n"
