"""What a server writes to stderr: all of it is kept, and no secret of ours in it."""

from codecs import getincrementaldecoder
from collections.abc import Awaitable, Callable, Iterator

from hermes.kit.plain import harmless
from hermes.kit.text import one_line

SHOWN = 300
LONGEST_LINE = 8_000
"""Characters; what is longer is kept as several lines."""
SECRET = 8_000
"""Characters of a line that has not ended which wait for the next, lest a secret is cut in two."""


class Complaints:
    def __init__(
        self, redact: Callable[[str], str], keep: Callable[[str], Awaitable[None]]
    ) -> None:
        self.last = ""
        """The last line, for people."""
        self.fault = ""
        """Why we have let it go, if we have."""
        self._redact = redact
        self._keep = keep
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self._begun = ""

    async def hear(self, data: bytes) -> None:
        lines, end, rest = (self._begun + self._decoder.decode(data)).rpartition("\n")
        self._begun = rest
        if len(rest) > LONGEST_LINE + SECRET:
            # What is whole is masked before anything is cut.
            rest = self._redact(rest)
            lines, self._begun = f"{lines}{end}{rest[:-SECRET]}", rest[-SECRET:]
        await self._write(lines)

    async def end(self) -> None:
        """It says no more."""
        begun, self._begun = self._begun + self._decoder.decode(b"", final=True), ""
        await self._write(begun)

    async def _write(self, text: str) -> None:
        lines = [line for line in self._redact(text).splitlines() if line.strip()]
        if lines:
            self.last = one_line(harmless(lines[-1]), SHOWN)
            await self._keep("\n".join(piece for line in lines for piece in _pieces(line)))


def _pieces(line: str) -> Iterator[str]:
    for start in range(0, len(line), LONGEST_LINE):
        yield line[start : start + LONGEST_LINE]
