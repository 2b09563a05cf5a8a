"""Keep one page of a search while its results stream by, and count the rest."""

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from msgspec import UNSET, Struct, UnsetType

from hermes.tools.search.ripgrep import Context, Match, Record, Records

COUNTED = 20_000
"""Results after which counting stops."""
MAX_FILES = 50_000
MAX_LINE = 500
BEFORE_MATCH = 150
MAX_CHARS = 60_000
"""Characters of one page."""

Allowed: TypeAlias = Callable[[str], bool]


class Hit(Struct, frozen=True):
    """One line; `match` is false for a line that only stands near one."""

    path: str
    line: int
    content: str
    match: bool | UnsetType = UNSET


class Paging(Struct, frozen=True):
    offset: int
    limit: int

    def holds(self, index: int) -> bool:
        return self.offset <= index < self.offset + self.limit

    def enough(self, total: int) -> bool:
        return total >= self.offset + self.limit + COUNTED


class _Lines:
    """What content searches share: records in, one allowed match after the other out."""

    def __init__(self, paging: Paging, allowed: Allowed) -> None:
        self.total: int = 0
        self._paging = paging
        self._records = Records()
        self._allowed = allowed
        self._verdicts: dict[str, bool] = {}

    @property
    def complaints(self) -> str:
        return self._records.complaints

    def take(self, data: bytes) -> None:
        for record in self._records.take(data):
            self._see(record)

    def _see(self, record: Record) -> None:
        raise NotImplementedError

    def _may_show(self, path: str) -> bool:
        if path not in self._verdicts:
            self._verdicts[path] = self._allowed(path)
        return self._verdicts[path]


class Hits(_Lines):
    """The matching lines of one page, with the lines around them."""

    def __init__(self, paging: Paging, allowed: Allowed, context: int) -> None:
        super().__init__(paging, allowed)
        self.hits: list[Hit] = []
        self.shown = 0
        self._context = context
        self._before: deque[Hit] = deque(maxlen=context)
        self._last: Hit | None = None
        self._room = MAX_CHARS

    @property
    def full(self) -> bool:
        return self._paging.enough(self.total)

    def _see(self, record: Record) -> None:
        if not isinstance(record, Match | Context):
            return
        path = _name(str(record.data.path))
        if not self._may_show(path):
            return
        start = record.data.submatches[0].start if record.data.submatches else 0
        text = _cut(str(record.data.lines).rstrip("\r\n"), start)
        hit = Hit(path, record.data.line_number or 0, text)
        if isinstance(record, Context):
            self._near(Hit(hit.path, hit.line, hit.content, match=False))
        else:
            self._match(hit)

    def _match(self, hit: Hit) -> None:
        wanted = self._paging.holds(self.total) and self._room > 0
        self.total += 1
        if wanted:
            self.hits += [near for near in self._before if near.path == hit.path]
            self.hits.append(hit)
            self.shown += 1
            self._room -= len(hit.content) + len(hit.path) + 30
        self._before.clear()
        self._last = hit if wanted else None

    def _near(self, hit: Hit) -> None:
        last = self._last
        if last and last.path == hit.path and hit.line - last.line <= self._context:
            self.hits.append(hit)
            self._room -= len(hit.content)
        else:
            self._before.append(hit)


class Counts(_Lines):
    """How many lines match in each file."""

    def __init__(self, paging: Paging, allowed: Allowed) -> None:
        super().__init__(paging, allowed)
        self.matched = 0
        self._counts: dict[str, int] = {}

    @property
    def full(self) -> bool:
        return self.total >= MAX_FILES

    @property
    def shown(self) -> int:
        return len(self.page())

    def page(self) -> dict[str, int]:
        chosen = list(self._counts.items())[self._paging.offset :][: self._paging.limit]
        return dict(chosen)

    def _see(self, record: Record) -> None:
        if isinstance(record, Match) and self._may_show(path := _name(str(record.data.path))):
            self._counts[path] = self._counts.get(path, 0) + 1
            self.matched += 1
            self.total = len(self._counts)


class Names:
    """File names split by NUL."""

    complaints = ""

    def __init__(self, paging: Paging, wanted: Allowed) -> None:
        self.names: list[str] = []
        self.total: int = 0
        self._paging = paging
        self._wanted = wanted
        self._rest = b""

    @property
    def shown(self) -> int:
        return len(self.names)

    @property
    def full(self) -> bool:
        return self._paging.enough(self.total)

    def take(self, data: bytes) -> None:
        *names, self._rest = (self._rest + data).split(b"\0")
        for raw in names:
            name = _name(raw.decode("utf-8", "replace"))
            if self._wanted(name):
                if self._paging.holds(self.total):
                    self.names.append(name)
                self.total += 1


Collector: TypeAlias = Hits | Counts | Names


def _name(path: str) -> str:
    return path.removeprefix("./")


def _cut(text: str, start: int) -> str:
    """A long line is shown around its match."""
    if len(text) <= MAX_LINE:
        return text
    begin = max(min(start - BEFORE_MATCH, len(text) - MAX_LINE), 0)
    end = begin + MAX_LINE
    return ("…" if begin else "") + text[begin:end] + ("…" if end < len(text) else "")
