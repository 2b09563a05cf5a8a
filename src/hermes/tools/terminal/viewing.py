"""What of a command's output the model sees, and what people see while it runs."""

import codecs
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import anyio
from msgspec import Struct

from hermes.kit.clock import Clock
from hermes.kit.text import HEAD
from hermes.ports.sandbox import Finished
from hermes.tools.caps import USUAL
from hermes.tools.terminal.plain import plain
from hermes.tools.terminal.shell import Mark, mark_in, without_marks
from hermes.tools.terminal.spills import Spill, Spills

log = logging.getLogger(__name__)

PROGRESS_EVERY = 0.1
PROGRESS_LENGTH = 2_000
PROGRESS_KEPT = 32_000
TORN = 4_096
"""Characters beside a cut that may be half of a secret, when no line ends before."""


class View(Struct, frozen=True):
    """`mark` is what the shell said at its end, `full` the file with all of the output."""

    text: str
    mark: Mark | None
    cut: bool = False
    full: Path | None = None


class Viewing:
    """One command's output, without its mark and without secrets."""

    def __init__(
        self, redact: Callable[[str], str], spills: Spills, most: int = USUAL.output
    ) -> None:
        """`most` characters are seen by the model: more of the end than of the beginning."""
        self._redact = redact
        self._spills = spills
        self._most = most

    async def view(self, done: Finished, spill: Spill | None) -> View:
        """What the model sees, and the file that has all of it when this is less."""
        if done.seam is not None:
            first = _text(done.output[: done.seam])
            begin = _without_end(first)
            end = _without_beginning(_text(done.output[done.seam :]))
            kept = await self._kept(partial(spill.keep, self._clean)) if spill else None
            mark = mark_in(first, end)
            shown = _cut(self._clean(begin), self._clean(end), done.total, self._most)
            return View(shown, mark, True, kept)
        raw = _text(done.output)
        text, mark = self._clean(raw), mark_in(raw, raw)
        if len(text) <= self._most:
            return View(text, mark)
        kept = await self._kept(partial(spill.keep_text, text)) if spill else None
        front = int(self._most * HEAD)
        return View(_cut(text[:front], text[front:], len(text), self._most), mark, True, kept)

    def progress(self, tell: Callable[[str], Awaitable[None]], clock: Clock) -> "Progress":
        return Progress(tell, clock, self._clean)

    def _clean(self, text: str) -> str:
        return self._redact(plain(without_marks(text)))

    async def _kept(self, write: Callable[[], Path]) -> Path | None:
        """The file with everything, unless the disk would not take it."""
        try:
            path = await anyio.to_thread.run_sync(write)
            self._spills.prune()
        except OSError as error:
            log.warning("the full output is not kept: %s", error)
            return None
        return path


class Progress:
    """Passes whole lines on to people, not more often than they can read."""

    def __init__(
        self, tell: Callable[[str], Awaitable[None]], clock: Clock, clean: Callable[[str], str]
    ) -> None:
        self._tell = tell
        self._clock = clock
        self._clean = clean
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._waiting = ""
        self._torn = False
        self._told = float("-inf")

    async def hear(self, data: bytes) -> None:
        self._waiting += self._decoder.decode(data)
        if len(self._waiting) > PROGRESS_KEPT:
            self._waiting = self._waiting[-PROGRESS_KEPT:]
            self._torn = True
        now = self._clock.monotonic()
        lines, newline, rest = self._waiting.rpartition("\n")
        if not newline or now - self._told < PROGRESS_EVERY:
            return
        if self._torn:
            lines = lines.partition("\n")[2]
        self._waiting, self._torn = rest, False
        self._told = now
        text = self._clean(lines)[-PROGRESS_LENGTH:]
        if text.strip():
            await self._tell(text)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _without_end(text: str) -> str:
    """Without the line, or the part of it, in which the middle of the output went missing."""
    return text[: -min(len(text) - text.rfind("\n") - 1, TORN) or None]


def _without_beginning(text: str) -> str:
    line = text.find("\n") + 1
    return text[min(line or TORN, TORN) :]


def _cut(begin: str, end: str, total: int, most: int) -> str:
    """Whole lines from both ends, unless they are so long that little would be left."""
    begin = begin[: int(most * HEAD)]
    end = end[-(most - len(begin)) :]
    last, first = begin.rfind("\n") + 1, end.find("\n") + 1
    begin = begin[:last] if last and len(begin) - last <= TORN else begin
    end = end[first:] if first <= TORN else end
    left_out = max(total - len(begin) - len(end), 0)
    return f"{begin}[… about {left_out:,} characters left out …]\n{end}"
