"""Escaping, fitting and padding of text for terminals."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from hermes.kit.terminal_text import display_width, escape_controls, fit, pad, single_line
from support.cases import cases

ANYTHING = st.text(st.characters(exclude_categories=()))


@given(ANYTHING)
def test_control_characters_are_escaped(text: str) -> None:
    shown = escape_controls(text)
    assert {c for c in shown if unicodedata.category(c) == "Cc"} <= {"\n", "\t"}
    assert not set(shown) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
    shown.encode()


@given(ANYTHING)
def test_single_line_has_no_line_breaks(text: str) -> None:
    assert len(single_line(text).splitlines()) <= 1


@given(ANYTHING.map(single_line), st.integers(0, 40))
def test_fitted_text_is_not_too_wide(text: str, width: int) -> None:
    cut = fit(text, width)
    assert display_width(cut) <= width
    assert cut == text or cut.endswith("…") or width == 0


@given(ANYTHING.map(single_line), st.integers(0, 40))
def test_padded_text_fills_its_column(text: str, width: int) -> None:
    assert display_width(pad(fit(text, width), width)) == width
    assert display_width(pad(fit(text, width), width, right=True)) == width


@cases(
    ("text", "width"),
    [("abc", 3), ("日本語", 6), ("e\u0301", 1), ("🙂", 2), ("ﾊﾝｶｸ", 4), ("\u200b", 0), ("שלום", 4)],
)
def test_display_width_matches_the_terminal(text: str, width: int) -> None:
    assert display_width(text) == width


def test_escape_sequence_is_shown_as_text() -> None:
    assert escape_controls("\x1b[31mred\x07\x9b1m\r\n\u202etxt") == "␛[31mred␇�1m\n�txt"


def test_wide_character_is_not_split() -> None:
    assert fit("日本語", 4) == "日…"
