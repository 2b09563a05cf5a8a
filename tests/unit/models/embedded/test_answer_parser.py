"""Incremental parsing of a small model's answer."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from hermes.models.embedded.answer_parser import AnswerParser, ParsedCall
from support.cases import cases

WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def parse_in_pieces(text: str, sizes: list[int]) -> tuple[list[str], AnswerParser]:
    """Feed the text in pieces of these sizes, repeated."""
    choosing, pieces, at, turn = AnswerParser(), [], 0, 0
    while at < len(text):
        size = sizes[turn % len(sizes)]
        pieces.append(choosing.feed(text[at : at + size]))
        at += size
        turn += 1
    return pieces, choosing


@given(WORDS, st.lists(st.integers(1, 7), min_size=1, max_size=5), st.booleans())
def test_reply_does_not_depend_on_the_chunking(words: str, sizes: list[int], bare: bool) -> None:
    text = json.dumps({"reply": words}, ensure_ascii=not bare)
    pieces, choosing = parse_in_pieces(text, sizes)
    assert "".join(pieces) == words
    assert choosing.calls == []
    assert choosing.close() == ""


@given(
    st.dictionaries(WORDS, WORDS | st.integers() | st.lists(WORDS, max_size=3), max_size=3),
    st.lists(st.integers(1, 9), min_size=1, max_size=5),
)
def test_call_arguments_keep_their_bytes(args: dict[str, object], sizes: list[int]) -> None:
    written = json.dumps(args)
    pieces, choosing = parse_in_pieces(f'{{"tool": "look",  "args":{written}}}', sizes)
    assert "".join(pieces) == ""
    assert choosing.calls == [ParsedCall("look", Raw(written.encode()))]
    assert choosing.close() == ""


def test_reply_text_is_streamed() -> None:
    choosing = AnswerParser()
    assert choosing.feed('{"rep') == ""
    assert choosing.feed('ly": "Hel') == "Hel"
    assert choosing.feed("lo\\") == "lo"
    assert choosing.feed('n"}') == "\n"


def test_several_objects_are_parsed() -> None:
    text = '{"reply":"On it."}\n{"tool":"a","args":{}}\n {"tool":"b","id":"call_2","args":{"n":1}}'
    pieces, choosing = parse_in_pieces(text, [3])
    assert "".join(pieces) == "On it."
    assert [(one.tool, one.id) for one in choosing.calls] == [("a", ""), ("b", "call_2")]


def test_plain_text_is_a_reply() -> None:
    pieces, choosing = parse_in_pieces("Just words, with a { in them.", [4])
    assert "".join(pieces) == "Just words, with a { in them."
    assert choosing.calls == []


@pytest.mark.parametrize("text", ['{"tool": "read_file", "args": {"pa', '{"odd": 1}'])
def test_incomplete_call_is_returned_on_close(text: str) -> None:
    choosing = AnswerParser()
    assert choosing.feed(text) == ""
    assert choosing.close() == text
    assert choosing.calls == []


@cases(
    ("escaped", "meant"),
    [
        (r"\ud83d\ude00", "😀"),
        (r"\ud83d!", "\N{REPLACEMENT CHARACTER}!"),
        (r"\ud83d\n", "\N{REPLACEMENT CHARACTER}\n"),
        (r"\ude00", "\N{REPLACEMENT CHARACTER}"),
        (r"\ud83d\u0041", "\N{REPLACEMENT CHARACTER}A"),
        (r"\/", "/"),
    ],
)
@cases("size", [1, 2, 3, 50])
def test_escapes_are_decoded(escaped: str, meant: str, size: int) -> None:
    pieces, _ = parse_in_pieces(f'{{"reply": "{escaped}"}}', [size])
    assert "".join(pieces) == meant
