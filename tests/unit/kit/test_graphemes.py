"""Grapheme boundaries; the expected clusters follow UAX 29."""

from hypothesis import given
from hypothesis import strategies as st

from hermes.kit.graphemes import is_boundary, last_boundary
from support.cases import cases

CLUSTERS = [
    ("plain letters", ["a", "b"]),
    ("a combining accent", ["e\u0301", "x"]),
    ("several marks", ["a\u0300\u0323\u0308", "b"]),
    ("CRLF", ["a", "\r\n", "\n", "\r", "b"]),
    ("a mark after a line end stands alone", ["\n", "\u0308", "a"]),
    ("a mark on a space", ["a", " \u0308", "b"]),
    ("flags in pairs", ["\U0001f1e9\U0001f1ea", "\U0001f1eb\U0001f1f7", "\U0001f1e9"]),
    ("flags behind a letter", ["a", "\U0001f1e9\U0001f1ea", "\U0001f1eb\U0001f1f7"]),
    ("skin tone", ["\U0001f44d\U0001f3fd", "\U0001f44d"]),
    ("family", ["\U0001f469\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466", "!"]),
    ("family with skin tones", ["\U0001f469\U0001f3fb\u200d\U0001f91d\u200d\U0001f468\U0001f3fd"]),
    ("heart on fire", ["\u2764\ufe0f\u200d\U0001f525", "\u2764\ufe0f"]),
    ("pictures side by side", ["\U0001f600", "\U0001f600"]),
    ("a joiner between letters joins no letters", ["a\u200d", "b"]),
    ("keycap", ["1\ufe0f\u20e3", "2"]),
    ("flag of England", ["\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"]),
    ("Hangul from letters", ["\u1112\u1161\u11ab", "\u1100\u1173\u11af"]),
    ("Hangul syllable and final", ["\uac00\u11a8", "\uac01\u11a8", "\uac01", "\u1161"]),
    ("Devanagari vowel sign", ["\u0915\u0940", "\u0915"]),
    ("Devanagari conjunct", ["\u0915\u094d\u0937\u0940", "\u0915"]),
    ("Thai vowel", ["\u0e01\u0e33", "\u0e01"]),
    ("a number sign before its digits", ["\u06001", "2"]),
    ("zero width space", ["a", "\u200b", "b"]),
    ("right-to-left with points", ["\u05e9\u05c1\u05b8", "\u05dc"]),
]


@cases("clusters", [clusters for _, clusters in CLUSTERS])
def test_boundaries_are_exactly_between_clusters(clusters: list[str]) -> None:
    text = "".join(clusters)
    expected = {0}
    for cluster in clusters:
        expected.add(max(expected) + len(cluster))
    assert {at for at in range(len(text) + 1) if is_boundary(text, at)} == expected


@given(st.text(max_size=40), st.integers(0, 40))
def test_last_boundary_is_the_last_one(text: str, at: int) -> None:
    at = min(at, len(text))
    found = last_boundary(text, at, 0)
    assert found <= at
    assert is_boundary(text, found)
    assert not any(is_boundary(text, between) for between in range(found + 1, at + 1))


@given(st.text(alphabet=st.characters(max_codepoint=0x7F), max_size=20))
def test_ascii_has_boundaries_everywhere_except_in_crlf(text: str) -> None:
    for at in range(len(text) + 1):
        assert is_boundary(text, at) == (text[at - 1 : at + 1] != "\r\n" or at == 0)
