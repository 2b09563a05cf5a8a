"""Finding messages: by words first, then by parts of words, newest among equals."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import Struct

from hermes.schema.errors import StoreError
from hermes.schema.messages import Message, text_of
from hermes.schema.scope import OWNER
from hermes.schema.sessions import Hit, Session
from hermes.store.connection import Connection
from hermes.store.folding import fold
from hermes.store.index import findable, is_behind, newest, owner_tag, role_tag
from hermes.store.query import Kind, Term, parse
from hermes.store.rows import SessionRow, all_of, decode, moment, one_of, row_as
from hermes.store.snippet import snippet
from hermes.store.statements import load, unwalled

if TYPE_CHECKING:
    from hermes.store.vectors import Near

_THEIRS = load("search")
_ALL = unwalled(_THEIRS)
log = logging.getLogger(__name__)

RANKED = 400
"""Of how many of the newest matches the best are chosen."""
LOOKED_AT = 2_000
"""How many messages are read when only reading them tells."""
_EVEN = 60
"""The usual constant of reciprocal rank fusion: how little the very first ranks stand out."""
_WEIGHT_OF_NEWNESS = 0.5


class _Found(Struct, array_like=True, frozen=True):
    id: int
    seq: int
    at: int
    role: str
    session: int
    body: bytes


class _Scored(Struct, array_like=True, frozen=True):
    """SQLite's score is the better the lower it is."""

    id: int
    score: float


class Wanted(Struct, frozen=True, kw_only=True):
    query: str
    terms: Sequence[Term]
    limit: int
    role: str | None
    principal: str

    @classmethod
    def parse(cls, query: str, *, limit: int, role: str | None, principal: str) -> "Wanted":
        return cls(query=query, terms=parse(query), limit=limit, role=role, principal=principal)


class Finder:
    """One search, made to be run on a thread that reads."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._sql: Mapping[str, str] = _ALL if wanted.principal == OWNER else _THEIRS
        self.goal: int | None = None
        """The newest message when the search began; what comes later may be found or not."""
        self._values = {"role": wanted.role, "who": wanted.principal}

    def find(self, connection: Connection) -> list[Hit] | None:
        """None while the indexes are behind the goal."""
        if not self._wanted.terms or self._wanted.limit < 1:
            return []
        if self.goal is None:
            self.goal = newest(connection)
        if is_behind(connection, self.goal):
            return None
        sessions: dict[int, Session] = {}
        return [
            self._hit(connection, found, text, sessions)
            for found, text in islice(self._all(connection), self._wanted.limit)
        ]

    def near(self, connection: Connection, found: "Sequence[Near]") -> list[Hit]:
        """What was found otherwise, behind the same wall, each with the passage that is meant."""
        from hermes.store.embedding import passages  # noqa: PLC0415 - it loads numpy

        hits: list[Hit] = []
        sessions: dict[int, Session] = {}
        for near in found:
            if len(hits) >= self._wanted.limit:
                break
            values = {**self._values, "id": near.message}
            row = one_of(connection.execute(self._sql["message"], values), _Found)
            if row is None or (text := _spoken(row)) is None:
                continue
            shown = passages(text)[near.part : near.part + 1]
            if shown:
                hits.append(self._hit(connection, row, shown[0], sessions))
        return hits

    def _all(self, connection: Connection) -> Iterator[tuple[_Found, str]]:
        """With the text of each; what nobody can read is not found."""
        seen: set[int] = set()
        for found in self._by_words(connection):
            seen.add(found.id)
            if (text := _text(found)) is not None:
                yield found, text
        for found in islice(self._by_parts(connection, seen), LOOKED_AT):
            text = _text(found)
            if text is not None and self._occurs(text):
                yield found, text

    def _by_words(self, connection: Connection) -> Iterator[_Found]:
        match = self._match()
        if not match:
            return
        values = {"match": match, "limit": max(RANKED, self._wanted.limit)}
        rows = all_of(connection.execute(self._sql["words"], values), _Scored)
        for number in _best(rows):
            cursor = connection.execute(self._sql["message"], {**self._values, "id": number})
            yield from all_of(cursor, _Found)

    def _by_parts(self, connection: Connection, seen: set[int]) -> Iterator[_Found]:
        """Whatever may contain the terms; whether it does is still to be looked at."""
        terms = self._wanted.terms
        if all(term.kind is not Kind.WORD for term in terms):
            return
        grams = sorted({gram for term in terms for gram in term.grams()})
        if grams:
            match = " AND ".join('"' + gram.replace('"', '""') + '"' for gram in grams)
            statement, values = "grams", {**self._values, "match": match}
        elif any(term.has_words for term in terms):
            return
        else:
            statement, values = "newest", {**self._values, "limit": LOOKED_AT}
        for row in connection.execute(self._sql[statement], values):
            if row[0] not in seen:
                yield row_as(row, _Found)

    def _match(self) -> str:
        """All terms, and the tags that keep roles and principals apart inside the index."""
        terms = [term.as_match() for term in self._wanted.terms if term.has_words]
        if not terms:
            return ""
        match = f"text : ({' AND '.join(terms)})"
        if self._wanted.role is not None:
            match += f' AND tags : "{role_tag(self._wanted.role)}"'
        if self._wanted.principal != OWNER:
            match += f' AND tags : "{owner_tag(self._wanted.principal)}"'
        return match

    def _occurs(self, text: str) -> bool:
        folded = fold(text)
        return all(term.occurs_in(folded) for term in self._wanted.terms)

    def _hit(
        self, connection: Connection, found: _Found, text: str, sessions: dict[int, Session]
    ) -> Hit:
        if found.session not in sessions:
            cursor = connection.execute(self._sql["session"], {"n": found.session})
            row = one_of(cursor, SessionRow)
            if row is None:
                raise StoreError(f"Message {found.id} has no session.")
            sessions[found.session] = row.session()
        return Hit(
            session=sessions[found.session],
            seq=found.seq,
            at=moment(found.at),
            role=found.role,
            snippet=snippet(text, self._wanted.terms),
        )


def fused(by_words: Sequence[Hit], by_meaning: Sequence[Hit], limit: int) -> list[Hit]:
    """Reciprocal rank fusion: what both found comes first. Words are shown where they matched."""
    points: dict[tuple[str, int], float] = {}
    hits: dict[tuple[str, int], Hit] = {}
    for ranking in (by_words, by_meaning):
        for rank, hit in enumerate(ranking):
            place = (hit.session.id, hit.seq)
            points[place] = points.get(place, 0.0) + 1 / (_EVEN + rank)
            hits.setdefault(place, hit)
    return [hits[place] for place in sorted(points, key=lambda place: -points[place])[:limit]]


def _text(found: _Found) -> str | None:
    message = _message(found)
    return message and findable(message)


def _spoken(found: _Found) -> str | None:
    message = _message(found)
    return message and text_of(message)


def _message(found: _Found) -> Message | None:
    try:
        return decode(found.body, f"Message row {found.id}")
    except StoreError as error:
        log.warning("left out of a search: %s", error)
        return None


def _best(rows: Sequence[_Scored]) -> list[int]:
    """Ids, newest first, put in the order of fit and newness together."""
    by_fit = sorted(range(len(rows)), key=lambda place: rows[place].score)
    points = [_WEIGHT_OF_NEWNESS / (_EVEN + place) for place in range(len(rows))]
    for rank, place in enumerate(by_fit):
        points[place] += 1 / (_EVEN + rank)
    order = sorted(range(len(rows)), key=lambda place: -points[place])
    return [rows[place].id for place in order]
