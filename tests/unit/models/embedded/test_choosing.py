"""What a small model writes, read while it comes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from hermes.models.embedded.answer_parser import AnswerParser, ParsedCall

WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def heard(text: str, sizes: list[int]) -> tuple[list[str], AnswerParser]:
    """Cut into pieces of these sizes, over and over."""
    choosing, pieces, at, turn = AnswerParser(), [], 0, 0
    while at < len(text):
        size = sizes[turn % len(sizes)]
        pieces.append(choosing.feed(text[at : at + size]))
        at += size
        turn += 1
    return pieces, choosing


@given(WORDS, st.lists(st.integers(1, 7), min_size=1, max_size=5), st.booleans())
def test_a_reply_is_told_whole_however_it_is_cut(words: str, sizes: list[int], bare: bool) -> None:
    text = json.dumps({"reply": words}, ensure_ascii=not bare)
    pieces, choosing = heard(text, sizes)
    assert "".join(pieces) == words
    assert choosing.calls == []
    assert choosing.close() == ""


@given(
    st.dictionaries(WORDS, WORDS | st.integers() | st.lists(WORDS, max_size=3), max_size=3),
    st.lists(st.integers(1, 9), min_size=1, max_size=5),
)
def test_a_call_keeps_its_bytes(args: dict[str, object], sizes: list[int]) -> None:
    written = json.dumps(args)
    pieces, choosing = heard(f'{{"tool": "look",  "args":{written}}}', sizes)
    assert "".join(pieces) == ""
    assert choosing.calls == [ParsedCall("look", Raw(written.encode()))]
    assert choosing.close() == ""


def test_words_come_before_the_answer_is_whole() -> None:
    choosing = AnswerParser()
    assert choosing.feed('{"rep') == ""
    assert choosing.feed('ly": "Hel') == "Hel"
    assert choosing.feed("lo\\") == "lo"
    assert choosing.feed('n"}') == "\n"


def test_several_choices_one_after_the_other() -> None:
    text = '{"reply":"On it."}\n{"tool":"a","args":{}}\n {"tool":"b","id":"call_2","args":{"n":1}}'
    pieces, choosing = heard(text, [3])
    assert "".join(pieces) == "On it."
    assert [(one.tool, one.id) for one in choosing.calls] == [("a", ""), ("b", "call_2")]


def test_what_is_no_object_is_a_reply() -> None:
    pieces, choosing = heard("Just words, with a { in them.", [4])
    assert "".join(pieces) == "Just words, with a { in them."
    assert choosing.calls == []


@pytest.mark.parametrize("text", ['{"tool": "read_file", "args": {"pa', '{"odd": 1}'])
def test_what_was_cut_off_is_known(text: str) -> None:
    choosing = AnswerParser()
    assert choosing.feed(text) == ""
    assert choosing.close() == text
    assert choosing.calls == []


@pytest.mark.parametrize(
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
@pytest.mark.parametrize("size", [1, 2, 3, 50])
def test_escapes(escaped: str, meant: str, size: int) -> None:
    pieces, _ = heard(f'{{"reply": "{escaped}"}}', [size])
    assert "".join(pieces) == meant
