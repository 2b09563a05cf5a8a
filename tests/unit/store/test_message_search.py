"""Search: no query breaks it, and every message is found by its words and parts."""

from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.ports.store import AppendMessage, OpenSession
from hermes.schema.messages import Text, User
from hermes.schema.scope import OWNER
from hermes.store.connection import Connection
from hermes.store.database_file import open_writer
from hermes.store.search import MARK_END, MARK_START, MessageSearch, SearchRequest, make_snippet
from hermes.store.search_index import (
    MAX_INDEXED_OUTPUT,
    index_batch,
    indexed_text,
    is_index_behind,
    newest_message,
)
from hermes.store.search_text import (
    MAX_TERMS,
    SearchTerm,
    TermKind,
    fold_offsets,
    fold_text,
    parse_query,
    tokenize,
)
from hermes.store.writes import apply_writes
from hermes.testing.clock import FakeClock
from hermes.testing.contracts.samples import result_message, session, user_message
from support.cases import cases
from support.examples import at_most

LETTERS = "abcdeéßŁÖñ東京タワ한국🎉_-./:()\"'*%^+&|~ \n\t019"
words = st.text(LETTERS, max_size=60)


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    opened = open_writer(tmp_path_factory.mktemp("search") / "hermes.db")
    apply_writes(opened, [OpenSession(session(FakeClock(), "s1"))], 0)
    yield opened
    opened.close()


def find(connection: Connection, query: str, limit: int = 400) -> list[str]:
    finder = MessageSearch(SearchRequest.parse(query, limit=limit, role=None, principal=OWNER))
    while index_batch(connection):
        pass
    return [hit.snippet for hit in finder.find(connection).hits]


def say(connection: Connection, text: str) -> None:
    apply_writes(connection, [AppendMessage("s1", "r", user_message(text), FakeClock().now())], 0)


@pytest.mark.slow
@at_most(300)
@given(query=st.one_of(st.text(max_size=80), words))
def test_no_query_raises(connection: Connection, query: str):
    find(connection, query, limit=5)


@pytest.mark.slow
@at_most(150)
@given(text=words, data=st.data())
def test_words_and_parts_of_words_find_their_message(
    connection: Connection, text: str, data: st.DataObject
):
    # Not a new id: examples share a random seed, and two may start in the same millisecond.
    mark = f"mark_{token_hex(16)}"
    say(connection, f"{text} {mark}")
    for token in tokenize(fold_text(text)):
        assert len(find(connection, f"{token} {mark}")) == 1, token
    pieces = [piece for piece in text.replace('"', " ").split() if len(piece) > 3]
    if pieces:
        piece = data.draw(st.sampled_from(pieces))
        start = data.draw(st.integers(0, len(piece) - 3))
        part = piece[start : start + 3]
        if not part.endswith("*"):
            assert len(find(connection, f"{part} {mark}")) == 1, part


@pytest.mark.slow
@at_most(300)
@given(text=st.one_of(words, st.text(max_size=300)), query=words)
def test_snippet_is_the_text_with_marks(text: str, query: str):
    shown = make_snippet(text, parse_query(query))
    plain = shown.replace(MARK_START, "").replace(MARK_END, "").replace("…", "")
    flat = "".join(text.replace(MARK_START, "").replace(MARK_END, "").replace("…", "").split())
    assert "".join(plain.split()) in flat
    assert shown.count(MARK_START) >= shown.count(MARK_END)


@given(text=st.text(max_size=50))
def test_folded_offsets_map_back_to_the_text(text: str):
    places = fold_offsets(text)
    assert places == sorted(places)
    assert places[-1] == len(text)


@cases(
    ("text", "folded"),
    [
        ("Crème BRÛLÉE", "creme brulee"),
        ("Straße", "strasse"),
        ("İstanbul", "istanbul"),
        ("\uff26\uff35\uff2c\uff2c", "full"),
        ("ガギグ", "ガギグ"),
        ("ｶﾞ", "ガ"),
        ("한국", "한국"),
        ("ﬁn", "fin"),
    ],
)
def test_text_is_folded(text: str, folded: str):
    assert fold_text(text) == folded


def test_query_is_parsed_into_terms():
    assert parse_query('Fox "Brown  Dog" conf* - ->') == [
        SearchTerm("fox", TermKind.WORD),
        SearchTerm("brown dog", TermKind.PHRASE),
        SearchTerm("conf", TermKind.PREFIX),
    ]
    assert parse_query("=>") == [SearchTerm("=>", TermKind.WORD)]
    assert parse_query("fox fox FOX") == [SearchTerm("fox", TermKind.WORD)]
    assert len(parse_query(" ".join(f"w{number}" for number in range(100)))) == MAX_TERMS


def test_relevance_and_recency_rank_hits(connection: Connection):
    say(connection, "walrus " + "filler " * 50)
    say(connection, "walrus walrus walrus")
    say(connection, "walrus " + "filler " * 50)
    assert find(connection, "walrus")[0].count(MARK_START) == 3


def test_only_the_beginning_of_tool_output_is_searchable():
    assert (
        len(indexed_text(result_message("c", "x" * (MAX_INDEXED_OUTPUT + 5)))) == MAX_INDEXED_OUTPUT
    )
    assert (
        len(indexed_text(User("u", (Text("x" * (MAX_INDEXED_OUTPUT + 5)),))))
        == MAX_INDEXED_OUTPUT + 5
    )


def test_indexing_runs_in_short_batches(tmp_path: Path):
    connection = open_writer(tmp_path / "hermes.db")
    clock = FakeClock()
    apply_writes(connection, [OpenSession(session(clock, "s1"))], 0)
    texts = ["lorem ipsum " * 5_000 for _ in range(10)]
    apply_writes(
        connection, [AppendMessage("s1", "r", user_message(text), clock.now()) for text in texts], 0
    )
    steps = 1
    while index_batch(connection):
        steps += 1
    assert steps == 4
    assert not is_index_behind(connection, newest_message(connection))
    connection.close()


@pytest.mark.slow
@pytest.mark.parametrize("marks", ["\u0301\u0316", "\u05b0\u0f73", "\uff9e\u0316"])
def test_many_combining_marks_are_folded_quickly(marks: str):
    pile = marks * 300_000
    folded = fold_text(f"apple{pile} pear{pile}")
    assert folded.startswith("apple")
    assert " pear" in folded
    assert len(folded) < 200


@given(words, st.text("\u0301\u0316\u05b0", max_size=120), words)
def test_every_folded_offset_has_an_origin(before: str, marks: str, after: str):
    text = before + marks + after
    places = fold_offsets(text)
    assert places[-1] == len(text)
    assert places == sorted(places)
    assert len(places) == len(fold_text(text)) + 1
