"""The tools of a request in their written form, kept while they are the very same."""

from collections.abc import Callable, Sequence
from operator import is_
from typing import Any

import msgspec
from msgspec import Raw

from hermes.schema.tools import ToolSpec


class Offered:
    def __init__(self, write: Callable[[ToolSpec], dict[str, Any]]) -> None:
        self._write = write
        self._last: tuple[Sequence[ToolSpec], bytes] = ((), b"[]")

    def __call__(self, specs: Sequence[ToolSpec]) -> Raw:
        return Raw(self.written(specs))

    def written(self, specs: Sequence[ToolSpec]) -> bytes:
        """The very same bytes again for the very same tools."""
        last, written = self._last
        if len(last) != len(specs) or not all(map(is_, last, specs)):
            written = msgspec.json.encode([self._write(spec) for spec in specs])
            self._last = tuple(specs), written
        return written
