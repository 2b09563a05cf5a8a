"""A terminal emulator for tests: read the screen, type and click."""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import pexpect

from hermes.kit.terminal_text import display_width
from support.cli_process import HERMES_PROGRAM, TEST_TIMEOUT, HermesCli

_SEQUENCE = re.compile(
    r"\x1b\[(?P<private>[<=>?]?)(?P<numbers>[\d;:]*)[ -/]*(?P<end>[@-~])"
    r"|\x1b\](?P<words>[^\x07\x1b]*)(?:\x07|\x1b\\)"
    r"|\x1b[P_^X][^\x1b]*\x1b\\|\x1b[ -/]*[0-~]"
)
_UNFINISHED = re.compile(r"\x1b(?:\[[<=>?\d;: -/]*|[\]P_^X][^\x07\x1b]*\x1b?|[ -/]*)?$")
"""An incomplete escape sequence."""
_SYNCHRONIZED = 2026
"""The synchronized output mode: a frame is shown when complete."""
DEFAULT_BACKGROUND = ""
"""The background of a cell without a colour."""


class Cell(NamedTuple):
    text: str = " "
    ground: str = DEFAULT_BACKGROUND


class EmulatedScreen:
    """The part of a terminal that full-screen programs need.

    It supports synchronized output; `half_drawn` is true while a frame is incomplete.
    """

    def __init__(self, columns: int, rows: int, reply: Callable[[str], object]) -> None:
        self._columns, self._rows = columns, rows
        self._reply = reply
        self.is_partial = False
        self._cells: list[list[Cell]] = []
        self._rest = ""
        self._ground = DEFAULT_BACKGROUND
        self.escapes: list[str] = []
        """Commands to the terminal itself, such as setting the clipboard."""
        self.coloured = False
        self._clear()

    @property
    def lines(self) -> list[str]:
        return ["".join(cell.text for cell in row).rstrip() for row in self._cells]

    def background(self, row: int, column: int) -> str:
        return self._cells[row][column].ground

    def feed(self, data: str) -> None:
        data = self._rest + data
        if cut := _UNFINISHED.search(data):
            data, self._rest = data[: cut.start()], data[cut.start() :]
        else:
            self._rest = ""
        place = 0
        for found in _SEQUENCE.finditer(data):
            self._write(data[place : found.start()])
            self._obey(found)
            place = found.end()
        self._write(data[place:])

    def _clear(self) -> None:
        self._cells = [[Cell()] * self._columns for _ in range(self._rows)]
        self._row = self._column = 0

    def _obey(self, found: re.Match[str]) -> None:
        if found["words"]:
            self.escapes.append(found["words"])
        numbers = [int(one or 0) for one in re.split("[;:]", found["numbers"] or "")]
        match found["end"], found["private"]:
            case "H" | "f", "":
                self._row = max(numbers[0], 1) - 1
                self._column = max(numbers[1], 1) - 1 if len(numbers) > 1 else 0
            case "J", "":
                self._clear()
            case "h" | "l", "?" if 1049 in numbers:
                self._clear()
            case "h" | "l", "?" if _SYNCHRONIZED in numbers:
                self.is_partial = found["end"] == "h"
            case "p", "?" if _SYNCHRONIZED in numbers:
                self._reply(f"\x1b[?{_SYNCHRONIZED};2$y")
            case "m", "":
                self._paint(numbers)

    def _paint(self, numbers: Sequence[int]) -> None:
        rest = list(numbers)
        while rest:
            number = rest.pop(0)
            if number in {38, 48}:
                size = 4 if rest[:1] == [2] else 2
                colour, rest = rest[:size], rest[size:]
                self.coloured = True
                if number == 48:
                    self._ground = ";".join(str(one) for one in colour)
            elif number in {0, 49}:
                self._ground = DEFAULT_BACKGROUND
            elif 30 <= number <= 37 or 40 <= number <= 47 or 90 <= number <= 107:
                self.coloured = True

    def _go_down(self) -> None:
        if self._row == self._rows - 1:
            self._cells = [*self._cells[1:], [Cell()] * self._columns]
        else:
            self._row += 1

    def _write(self, text: str) -> None:
        for one in text:
            if one == "\r":
                self._column = 0
            elif one == "\n":
                self._go_down()
            elif one >= " " and self._row < self._rows and self._column < self._columns:
                width = max(display_width(one), 1)
                row = self._cells[self._row]
                row[self._column] = Cell(one, self._ground)
                if width > 1 and self._column + 1 < self._columns:
                    row[self._column + 1] = Cell("", self._ground)
                self._column += width


class TerminalProgram:
    """A program in an emulated terminal, with its input."""

    def __init__(self, child: "pexpect.spawn[str]", columns: int, rows: int) -> None:
        self.child = child
        self.screen = EmulatedScreen(columns, rows, child.send)

    @property
    def text(self) -> str:
        return "\n".join(self.screen.lines)

    def wait_until(self, true: Callable[[], object]) -> None:
        """Wait for the condition; checked only on complete frames."""
        end = time.monotonic() + TEST_TIMEOUT
        while self.screen.is_partial or not true():
            left = end - time.monotonic()
            try:
                assert left > 0, f"in vain; this stands there:\n{self.text}"
                self.screen.feed(self.child.read_nonblocking(65536, left))
            except (pexpect.TIMEOUT, pexpect.EOF) as error:
                raise AssertionError(
                    f"it does not go on; this stands there:\n{self.text}"
                ) from error

    def wait_for_text(self, words: str) -> None:
        self.wait_until(lambda: words in self.text)

    def position_of(self, words: str) -> tuple[int, int]:
        """Row and column of the last line with this text, from 0."""
        row = max(row for row, line in enumerate(self.screen.lines) if words in line)
        return row, self.screen.lines[row].index(words)

    def click(self, words: str, true: Callable[[], object]) -> None:
        """Click until the condition is true; retried if the text moved before the click."""
        clicked: tuple[int, int] | None = None
        assert not true(), f"without a click:\n{self.text}"

        def is_done() -> bool:
            nonlocal clicked
            if true():
                return True
            if words in self.text and (place := self.position_of(words)) != clicked:
                clicked = place
                at = f"0;{place[1] + 2};{place[0] + 1}"
                self.child.send(f"\x1b[<{at}M\x1b[<{at}m")
            return False

        self.wait_until(is_done)

    def click_and_wait(self, words: str, shows: str) -> None:
        """Click on the text until `shows` appears."""
        self.click(words, lambda: shows in self.text)

    def keys(self, keys: str) -> None:
        self.child.send(keys)

    def wait_exit(self) -> int | None:
        """The exit status, after draining the output."""
        self.child.expect(pexpect.EOF)
        self.screen.feed(self.child.before or "")
        self.child.close()
        return self.child.exitstatus


@contextmanager
def terminal_program(
    hermes: HermesCli, *words: str, size: tuple[int, int] = (80, 24), **env: str
) -> Iterator[TerminalProgram]:
    columns, rows = size
    child: pexpect.spawn[str] = pexpect.spawn(
        HERMES_PROGRAM,
        list(words),
        cwd=str(hermes.work),
        env=hermes.env | env,
        encoding="utf-8",
        codec_errors="replace",
        dimensions=(rows, columns),
        timeout=TEST_TIMEOUT,
    )
    child.delaybeforesend = None
    try:
        yield TerminalProgram(child, columns, rows)
    finally:
        child.close(force=True)
