"""Which tools were ever seen to act: a server that calls one a reader later is not believed."""

import logging
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from hermes.kit.files import read_ordinary, write_atomic

log = logging.getLogger(__name__)

MOST = 1_000
"""Names of one server that are remembered; if it has had more, all of its tools ask."""
_LARGEST = 4_000_000
Names = Mapping[str, frozenset[str]]


class Acting:
    """Names by server. Kept in a file, if there is one, over all starts.

    Where the file cannot be read, every tool asks. Reads and writes it, so it is not for the
    event loop.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._names: Names | None = {} if path is None else _stored(path)

    def note(self, server: str, names: Collection[str]) -> None:
        if self._names is None or not self._is_news(self._names, server, names):
            return
        if self._path is not None:
            # Another process may have written meanwhile.
            self._names = _stored(self._path) or self._names
        known = self._names.get(server, frozenset())
        self._names = {**self._names, server: frozenset(sorted(known.union(names))[: MOST + 1])}
        if self._path is not None:
            _store(self._path, self._names)

    def has(self, server: str, name: str) -> bool:
        if self._names is None:
            return True
        names = self._names.get(server, frozenset())
        return name in names or len(names) > MOST

    def _is_news(self, known: Names, server: str, names: Collection[str]) -> bool:
        ours = known.get(server, frozenset())
        return len(ours) <= MOST and not ours.issuperset(names)


def _stored(path: Path) -> Names | None:
    try:
        return msgspec.json.decode(read_ordinary(path, _LARGEST), type=dict[str, frozenset[str]])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError) as error:
        log.warning("%s cannot be read, so every tool of MCP servers asks: %s", path, error)
        return None


def _store(path: Path, names: Names) -> None:
    data = msgspec.json.encode({server: sorted(names[server]) for server in sorted(names)})
    try:
        write_atomic(path, data, mode=0o600)
    except OSError as error:
        log.warning("%s cannot be written: %s", path, error.strerror)
