"""What was typed into a process and may still be waiting there for the end of its line."""

import re
import shlex

import anyio

INTERRUPT = "\x03"
"""Ends what runs, and throws the begun line away; it needs no more leave than an end does."""
MOST = 4_000
_ENDS = re.compile(r"[\n\r\x03]")


class Typed:
    """The unfinished line of one process. Only who holds `lock` may add to it."""

    def __init__(self) -> None:
        self.lock = anyio.Lock()
        self._line = ""

    def with_more(self, data: str) -> str:
        """The whole text that the process would read together with what it has."""
        return (self._line + data).removesuffix("\n")

    def add(self, data: str) -> None:
        text = self._line + data
        if data.endswith(INTERRUPT):
            self._line = ""
        elif _goes_on(text) and len(text) <= MOST:
            self._line = text
        else:
            self._line = _ENDS.split(text)[-1]


def _goes_on(text: str) -> bool:
    """Whether a shell would read the next line as a part of this text."""
    if text.rstrip("\n").endswith("\\") or "<<" in text:
        return True
    try:
        shlex.split(text)
    except ValueError:
        return True
    return False
