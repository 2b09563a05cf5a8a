"""Log what a server writes to stderr, redacted."""

from codecs import getincrementaldecoder
from collections.abc import Awaitable, Callable, Iterator

from hermes.kit.terminal_text import escape_controls
from hermes.kit.text import one_line

MAX_SHOWN = 300
MAX_LINE = 8_000
"""Characters; longer lines are split."""
SECRET_OVERLAP = 8_000
"""Characters of an unfinished line that are held back, so that no secret is split."""


class StderrLog:
    def __init__(
        self, redact: Callable[[str], str], keep: Callable[[str], Awaitable[None]]
    ) -> None:
        self.last_line = ""
        """The last line, for users."""
        self.disconnect_reason = ""
        """Why we disconnected, if we did."""
        self._redact = redact
        self._keep = keep
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self._partial = ""

    async def feed(self, data: bytes) -> None:
        lines, end, rest = (self._partial + self._decoder.decode(data)).rpartition("\n")
        self._partial = rest
        if len(rest) > MAX_LINE + SECRET_OVERLAP:
            # Redact before cutting.
            rest = self._redact(rest)
            lines, self._partial = f"{lines}{end}{rest[:-SECRET_OVERLAP]}", rest[-SECRET_OVERLAP:]
        await self._write(lines)

    async def end(self) -> None:
        """Flush the unfinished line."""
        rest, self._partial = self._partial + self._decoder.decode(b"", final=True), ""
        await self._write(rest)

    async def _write(self, text: str) -> None:
        lines = [line for line in self._redact(text).splitlines() if line.strip()]
        if lines:
            self.last_line = one_line(escape_controls(lines[-1]), MAX_SHOWN)
            await self._keep("\n".join(piece for line in lines for piece in _split_line(line)))


def _split_line(line: str) -> Iterator[str]:
    for start in range(0, len(line), MAX_LINE):
        yield line[start : start + MAX_LINE]
