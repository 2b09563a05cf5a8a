"""Plant secret tokens with an owner and report where they leak.

An owner is `profile` or `profile/person`. Scanned data has a reader of the same form. A reader may
see its own tokens and those of its profile; a profile may also see the tokens of its people. A
hidden token must not appear in any scanned data.
"""

import random
import re
from base64 import b64encode
from collections.abc import Collection, Iterator
from pathlib import Path

from msgspec import Struct

from hermes.store.connection import READ_ONLY, connect

_PREFIX = "cnry"
_TOKEN = re.compile(rb"cnry[0-9a-f]{24}")


class Canary(Struct, frozen=True):
    token: str
    owner: str
    kind: str
    hidden: bool = False


class Sighting(Struct, frozen=True):
    canary: Canary
    reader: str
    where: str

    def __str__(self) -> str:
        canary = self.canary
        return f"{canary.kind} of {canary.owner} seen by {self.reader} in {self.where}"


class Canaries:
    """Plants tokens and scans for them.

    `sightings` lists each leaked token once per reader and location.
    """

    def __init__(self, seed: int = 0) -> None:
        self._chance = random.Random(seed)  # noqa: S311 - must be repeatable, not secret
        self._planted: dict[bytes, Canary] = {}
        self._signs = [_PREFIX.encode().hex().encode(), *_in_base64(_PREFIX.encode())]
        self._seen: dict[tuple[str, str, str], Sighting] = {}
        self.scans = 0

    @property
    def sightings(self) -> list[Sighting]:
        return list(self._seen.values())

    def plant(self, owner: str, kind: str, *, hidden: bool = False) -> str:
        token = f"{_PREFIX}{self._chance.randbytes(12).hex()}"
        self._planted[token.encode()] = Canary(token, owner, kind, hidden)
        return token

    def scan(self, reader: str, where: str, data: bytes | str, *, entrusted: bool = False) -> None:
        """Record every token in the data that this reader must not see.

        With `entrusted`, the data may contain the reader's own hidden tokens.
        """
        data = data.encode(errors="surrogatepass") if isinstance(data, str) else data
        self.scans += 1
        for canary in self._found(data):
            if (canary.hidden and not entrusted) or not _may_see(reader, canary.owner):
                key = (canary.token, reader, where)
                self._seen.setdefault(key, Sighting(canary, reader, where))

    def scan_files(self, reader: str, folder: Path, exclude: Collection[str] = ()) -> None:
        """Scan all files below a folder, except databases and the names in `but`."""
        for path in sorted(folder.rglob("*")):
            relative = path.relative_to(folder)
            if (
                not set(exclude).isdisjoint(relative.parts)
                or ".db" in path.name
                or not path.is_file()
            ):
                continue
            self.scan(reader, str(relative), path.read_bytes())

    def scan_database(self, reader: str, path: Path) -> None:
        """Scan all values of all tables."""
        connection = connect(path, READ_ONLY)
        try:
            names = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
            for (table,) in names.fetchall():
                for row in connection.execute(f'SELECT * FROM "{table}"'):  # noqa: S608 - name from the schema
                    for value in row:
                        if isinstance(value, str | bytes):
                            self.scan(reader, f"{path.name}: {table}", value)
        finally:
            connection.close()

    def _found(self, data: bytes) -> Iterator[Canary]:
        for token in set(_TOKEN.findall(data)):
            if token in self._planted:
                yield self._planted[token]
        if any(sign in data for sign in self._signs):
            for token, canary in self._planted.items():
                forms = [token.hex().encode(), *_in_base64(token)]
                if any(form in data for form in forms):
                    yield canary


def _may_see(reader: str, owner: str) -> bool:
    return reader == owner or reader.startswith(f"{owner}/") or owner.startswith(f"{reader}/")


def _in_base64(data: bytes) -> list[bytes]:
    """Return the base64 substrings of the data for each of the three possible alignments."""
    found: list[bytes] = []
    for before in range(3):
        encoded = b64encode(bytes(before) + data)
        first, last = (before * 8 + 5) // 6, (before + len(data)) * 8 // 6
        found.append(encoded[first:last])
    return found
