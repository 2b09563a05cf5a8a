"""Two columns that a small terminal shows whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.commands.registry import LINE_WIDTH, format_columns

WORDS = st.text("abc /-", min_size=1, max_size=200)


def test_what_does_not_fit_goes_on_below_its_own_column() -> None:
    text = format_columns([("file", ", ".join(["read_file"] * 12)), ("web", "search")])
    first, second, last = text.splitlines()
    assert first.startswith("  file  read_file, ")
    assert second.startswith("        read_file")
    assert last == "  web   search"
    assert max(map(len, text.splitlines())) <= LINE_WIDTH


def test_a_path_stays_whole() -> None:
    path = "/a-b" * 30
    assert format_columns([("home", path)]) == f"  home  {path}"


@pytest.mark.parametrize("right", ["", "x"])
def test_a_name_that_is_too_long_stands_alone(right: str) -> None:
    lines = format_columns([("n" * 50, right), ("m", "y")], 10).splitlines()
    assert lines[0] == "  " + "n" * 50
    assert lines[1].strip() == right
    assert lines[2] == "  m           y"


@given(st.lists(st.tuples(st.text("abc", min_size=1, max_size=20), WORDS), min_size=1))
def test_no_word_is_lost(rows: list[tuple[str, str]]) -> None:
    said = [word for pair in rows for text in pair for word in text.split()]
    assert format_columns(rows).split() == said
