"""Search messages by words, with snippets that mark what was found."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import Struct

from hermes.ports.maintenance import IndexState
from hermes.schema.errors import StoreError
from hermes.schema.messages import Message, User
from hermes.schema.scope import OWNER
from hermes.schema.sessions import SearchFilter, SearchHit, SearchResult, SessionSummary
from hermes.store.connection import Connection, load_statements, without_principal_filter
from hermes.store.rows import (
    SummaryRow,
    decode_message,
    fetch_all,
    fetch_one,
    from_micros,
    micros_or_none,
    row_as,
)
from hermes.store.search_index import (
    indexed_text,
    owner_tag,
    read_index_state,
    role_tag,
    shown_text,
)
from hermes.store.search_text import SearchTerm, TermKind, fold_offsets, fold_text, parse_query

if TYPE_CHECKING:
    from hermes.store.vectors import VectorHit

MARK_START, MARK_END = ">>>", "<<<"
_CONTEXT = 60
_SNIPPET_WIDTH = 200
_PRINCIPAL_SQL = load_statements("search")
_OWNER_SQL = without_principal_filter(_PRINCIPAL_SQL)
log = logging.getLogger(__name__)
MAX_RANKED = 400
"""How many of the newest matches are ranked."""
MAX_SCANNED = 2_000
"""How many messages are read when the index cannot decide."""
_RRF_CONSTANT = 60
"""The usual constant of reciprocal rank fusion; larger values flatten the top ranks."""
_RECENCY_WEIGHT = 0.5


def make_snippet(text: str, terms: Sequence[SearchTerm]) -> str:
    spans = _merged(_spans(text, terms))
    first = spans[0][0] if spans else 0
    start = max(0, first - _CONTEXT)
    end = min(len(text), start + _SNIPPET_WIDTH)
    shown: list[str] = []
    at = start
    for left, right in spans:
        if right > end:
            break
        shown += [text[at:left], MARK_START, text[left:right], MARK_END]
        at = right
    shown.append(text[at:end])
    line = " ".join("".join(shown).split())
    return ("…" if start else "") + line + ("…" if end < len(text) else "")


def _spans(text: str, terms: Sequence[SearchTerm]) -> list[tuple[int, int]]:
    """Find in the folded text, and return positions in the original."""
    folded = fold_text(text)
    found = [span for term in terms for span in term.spans(folded)]
    if not found or len(folded) == len(text):
        return found
    offsets = fold_offsets(text)
    last = len(offsets) - 1
    return [(offsets[min(left, last)], offsets[min(right, last)]) for left, right in found]


def _merged(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for left, right in sorted(spans):
        if merged and left < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], right))
        elif right > left:
            merged.append((left, right))
    return merged


class _FoundRow(Struct, array_like=True, frozen=True):
    id: int
    seq: int
    at: int
    role: str
    session: int
    body: bytes


class _SessionRow(Struct, array_like=True, frozen=True):
    n: int


class _ScoredRow(Struct, array_like=True, frozen=True):
    """SQLite's scores are better the lower they are."""

    id: int
    score: float


class SearchRequest(Struct, frozen=True, kw_only=True):
    query: str
    terms: Sequence[SearchTerm]
    limit: int
    role: str | None
    principal: str
    where: SearchFilter = SearchFilter()

    @classmethod
    def parse(
        cls,
        query: str,
        *,
        limit: int,
        role: str | None,
        principal: str,
        where: SearchFilter | None = None,
    ) -> "SearchRequest":
        return cls(
            query=query,
            terms=parse_query(query),
            limit=limit,
            role=role,
            principal=principal,
            where=where or SearchFilter(),
        )


class MessageSearch:
    """One search, to be run in a reader thread."""

    def __init__(self, request: SearchRequest) -> None:
        self._request = request
        self._sql: Mapping[str, str] = _OWNER_SQL if request.principal == OWNER else _PRINCIPAL_SQL
        self._where = {
            "source": request.where.source,
            "started_after": micros_or_none(request.where.started_after),
            "started_before": micros_or_none(request.where.started_before),
        }
        self._values = {**self._where, "role": request.role, "who": request.principal}

    @property
    def is_empty(self) -> bool:
        """Whether nothing can be found."""
        return not self._request.terms or self._request.limit < 1

    def find(self, connection: Connection) -> SearchResult:
        """Search what is indexed, and the newest messages that are not."""
        if self.is_empty:
            return SearchResult()
        state = read_index_state(connection)
        sessions: dict[int, SessionSummary] = {}
        hits = [
            self._hit(connection, found, text, sessions)
            for found, text in islice(self._all(connection, state), self._request.limit)
        ]
        return SearchResult(hits, max(state.missing - MAX_SCANNED, 0))

    def sessions(self, connection: Connection) -> Sequence[int] | None:
        """The numbers of the sessions to search; None for all of them."""
        if self._request.where == SearchFilter():
            return None
        cursor = connection.execute(self._sql["sessions"], self._where)
        return [row.n for row in fetch_all(cursor, _SessionRow)]

    def vector_hits(self, connection: Connection, found: "Sequence[VectorHit]") -> list[SearchHit]:
        """Load hits of the vector search, filtered by principal, each with its matching passage."""
        from hermes.store.vectors import passages  # noqa: PLC0415 - imports numpy

        hits: list[SearchHit] = []
        sessions: dict[int, SessionSummary] = {}
        for near in found:
            if len(hits) >= self._request.limit:
                break
            values = {**self._values, "id": near.message}
            row = fetch_one(connection.execute(self._sql["message"], values), _FoundRow)
            if row is None or (message := _message(row)) is None:
                continue
            shown = passages(shown_text(message))[near.part : near.part + 1]
            if shown:
                hits.append(self._hit(connection, row, shown[0], sessions))
        return hits

    def _all(self, connection: Connection, state: IndexState) -> Iterator[tuple[_FoundRow, str]]:
        """Yield messages with their text; unreadable ones are skipped."""
        seen: set[int] = set()
        if state.missing:
            after = max(state.indexed, state.newest - MAX_SCANNED)
            values = {**self._values, "after": after}
            rows = fetch_all(connection.execute(self._sql["unindexed"], values), _FoundRow)
            seen.update(row.id for row in rows)
            yield from self._containing_all_terms(rows)
        for found in self._by_words(connection):
            seen.add(found.id)
            if (text := _indexed_text(found)) is not None:
                yield found, text
        yield from self._containing_all_terms(islice(self._by_parts(connection, seen), MAX_SCANNED))

    def _containing_all_terms(self, rows: Iterable[_FoundRow]) -> Iterator[tuple[_FoundRow, str]]:
        for found in rows:
            text = _indexed_text(found)
            if text is None:
                continue
            folded = fold_text(text)
            if all(term.occurs_in(folded) for term in self._request.terms):
                yield found, text

    def _by_words(self, connection: Connection) -> Iterator[_FoundRow]:
        match = self._match()
        if not match:
            return
        values = {**self._where, "match": match, "limit": max(MAX_RANKED, self._request.limit)}
        rows = fetch_all(connection.execute(self._sql["words"], values), _ScoredRow)
        for number in _rank(rows):
            cursor = connection.execute(self._sql["message"], {**self._values, "id": number})
            yield from fetch_all(cursor, _FoundRow)

    def _by_parts(self, connection: Connection, seen: set[int]) -> Iterator[_FoundRow]:
        """Messages that may contain the terms; the caller checks whether they do."""
        terms = self._request.terms
        if all(term.kind is not TermKind.WORD for term in terms):
            return
        grams = sorted({gram for term in terms for gram in term.grams()})
        if grams:
            match = " AND ".join('"' + gram.replace('"', '""') + '"' for gram in grams)
            statement, values = "grams", {**self._values, "match": match}
        elif any(term.has_words for term in terms):
            return
        else:
            statement, values = "newest", {**self._values, "limit": MAX_SCANNED}
        for row in connection.execute(self._sql[statement], values):
            if row[0] not in seen:
                yield row_as(row, _FoundRow)

    def _match(self) -> str:
        """All terms, and the tags that separate roles and principals in the index."""
        terms = [term.as_match() for term in self._request.terms if term.has_words]
        if not terms:
            return ""
        match = f"text : ({' AND '.join(terms)})"
        if self._request.role is not None:
            match += f' AND tags : "{role_tag(self._request.role)}"'
        if self._request.principal != OWNER:
            match += f' AND tags : "{owner_tag(self._request.principal)}"'
        return match

    def _hit(
        self,
        connection: Connection,
        found: _FoundRow,
        text: str,
        sessions: dict[int, SessionSummary],
    ) -> SearchHit:
        if found.session not in sessions:
            cursor = connection.execute(self._sql["session"], {"n": found.session})
            row = fetch_one(cursor, SummaryRow)
            if row is None:
                raise StoreError(f"Message {found.id} has no session.")
            sessions[found.session] = row.summary()
        summary, message = sessions[found.session], _message(found)
        return SearchHit(
            session=summary.session,
            preview=summary.preview,
            seq=found.seq,
            at=from_micros(found.at),
            role=found.role,
            snippet=make_snippet(text, self._request.terms),
            trust=message.trust if isinstance(message, User) else None,
        )


def fuse_rankings(
    by_words: Sequence[SearchHit], by_meaning: Sequence[SearchHit], limit: int
) -> list[SearchHit]:
    """Reciprocal rank fusion: common hits come first. Snippets of word matches are preferred."""
    points: dict[tuple[str, int], float] = {}
    hits: dict[tuple[str, int], SearchHit] = {}
    for ranking in (by_words, by_meaning):
        for rank, hit in enumerate(ranking):
            key = (hit.session.id, hit.seq)
            points[key] = points.get(key, 0.0) + 1 / (_RRF_CONSTANT + rank)
            hits.setdefault(key, hit)
    return [hits[key] for key in sorted(points, key=lambda key: -points[key])[:limit]]


def _indexed_text(found: _FoundRow) -> str | None:
    message = _message(found)
    return message and indexed_text(message)


def _message(found: _FoundRow) -> Message | None:
    try:
        return decode_message(found.body, f"Message row {found.id}")
    except StoreError as error:
        log.warning("skipped in a search: %s", error)
        return None


def _rank(rows: Sequence[_ScoredRow]) -> list[int]:
    """Order ids, given newest first, by relevance and recency combined."""
    by_fit = sorted(range(len(rows)), key=lambda index: rows[index].score)
    points = [_RECENCY_WEIGHT / (_RRF_CONSTANT + index) for index in range(len(rows))]
    for rank, index in enumerate(by_fit):
        points[index] += 1 / (_RRF_CONSTANT + rank)
    order = sorted(range(len(rows)), key=lambda index: -points[index])
    return [rows[index].id for index in order]
