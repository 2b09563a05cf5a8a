"""Cutting text to size."""

from hypothesis import given
from hypothesis import strategies as st

from hermes.kit.text import did_you_mean, head_and_tail, one_line, plural
from support.cases import cases


@cases(
    ("text", "width", "line"),
    [
        ("", 5, ""),
        ("  a \n\t b  ", 5, "a b"),
        ("abcde", 5, "abcde"),
        ("abcdef", 5, "abcd…"),
        ("abc", 1, "…"),
        ("abc", 0, ""),
        ("abc", -1, ""),
    ],
)
def test_one_line(text: str, width: int, line: str) -> None:
    assert one_line(text, width) == line


@given(st.text(), st.integers(0, 40))
def test_one_line_is_never_wider_nor_broken(text: str, width: int) -> None:
    line = one_line(text, width)
    assert len(line) <= width
    assert len(line.splitlines()) <= 1


@given(st.text(max_size=300), st.integers(0, 200), st.floats(0, 1))
def test_both_ends_stay_and_the_gap_is_counted(text: str, limit: int, head: float) -> None:
    cut = head_and_tail(text, limit, head=head)
    if len(text) <= limit:
        assert cut == text
        return
    front, _, rest = cut.partition("\n[… ")
    left_out, _, back = rest.partition(" characters left out …]\n")
    if "\n[… " not in text:
        assert text.startswith(front)
        assert text.endswith(back)
        assert len(front) + int(left_out.replace(",", "")) + len(back) == len(text)
        assert len(front) + len(back) == limit


def test_plural() -> None:
    assert [plural(n, "call") for n in (0, 1, 2, 1234)] == [
        "0 calls",
        "1 call",
        "2 calls",
        "1,234 calls",
    ]


def test_similar_name_is_suggested():
    assert did_you_mean("mock-larg", ["mock", "mock-large"]) == "Did you mean mock-large?"
    assert did_you_mean("zebra", ["mock", "mock-large"]) == ""
