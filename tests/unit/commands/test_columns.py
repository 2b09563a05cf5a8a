"""Two columns that fit a small terminal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.commands.registry import LINE_WIDTH, format_columns

WORDS = st.text("abc /-", min_size=1, max_size=200)


def test_long_text_wraps_in_its_column() -> None:
    text = format_columns([("file", ", ".join(["read_file"] * 12)), ("web", "search")])
    first, second, last = text.splitlines()
    assert first.startswith("  file  read_file, ")
    assert second.startswith("        read_file")
    assert last == "  web   search"
    assert max(map(len, text.splitlines())) <= LINE_WIDTH


def test_path_is_not_broken() -> None:
    path = "/a-b" * 30
    assert format_columns([("home", path)]) == f"  home  {path}"


@pytest.mark.parametrize("right", ["", "x"])
def test_long_name_gets_its_own_line(right: str) -> None:
    lines = format_columns([("n" * 50, right), ("m", "y")], 10).splitlines()
    assert lines[0] == "  " + "n" * 50
    assert lines[1].strip() == right
    assert lines[2] == "  m           y"


@given(st.lists(st.tuples(st.text("abc", min_size=1, max_size=20), WORDS), min_size=1))
def test_all_words_are_kept(rows: list[tuple[str, str]]) -> None:
    words = [word for pair in rows for text in pair for word in text.split()]
    assert format_columns(rows).split() == words
