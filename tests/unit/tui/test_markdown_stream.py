"""Markdown streaming: nothing is lost, code is never split, pieces are bounded."""

from hypothesis import given
from hypothesis import strategies as st

from hermes.tui.markdown_stream import (
    FORCED_SPLIT_SIZE,
    LIST_SPLIT_SIZE,
    SPLIT_SIZE,
    MarkdownStream,
)

LINES = st.lists(
    st.sampled_from(
        [
            "",
            "words",
            "- item",
            "* item",
            "12. item",
            "  more",
            "```",
            "```py",
            "~~~",
            "# head",
            "x" * 700,
        ]
    )
)


def pieces_of(text: str, size: int) -> list[str]:
    pieces, whole = MarkdownStream(), [""]
    for place in range(0, len(text), size):
        for piece in pieces.feed(text[place : place + size]):
            whole[-1] += piece.text
            if piece.last:
                whole.append("")
    return whole


@given(LINES, st.integers(1, 2000))
def test_every_character_appears_once(lines: list[str], size: int) -> None:
    text = "\n".join(lines)
    assert "".join(pieces_of(text, size)) == text


@given(LINES, st.integers(1, 50))
def test_split_does_not_depend_on_chunks(lines: list[str], size: int) -> None:
    text = "\n".join(lines)
    assert pieces_of(text, size) == pieces_of(text, len(text) or 1)


def test_long_text_is_split_at_paragraphs() -> None:
    paragraph = "word " * 100 + "\n\n"
    whole = pieces_of(paragraph * 20, 13)
    assert len(whole) > 4
    assert max(map(len, whole)) <= SPLIT_SIZE + len(paragraph)


def test_code_block_is_not_split() -> None:
    code = "```py\n" + "a = 1\n\nb = 2\n\n" * 400 + "```\n"
    (whole,) = pieces_of(code, 7)
    assert whole == code


def test_shorter_fence_does_not_close_a_longer_one() -> None:
    code = "````md\n" + "```\ntext\n\ntext\n```\n\n" * 300 + "````\n"
    assert pieces_of(code, 11) == [code]


@given(st.sampled_from(["- ", "* ", "+ ", "{}. ", "{}) "]), st.sampled_from(["\n", "\n\n"]))
def test_list_is_split_between_items(mark: str, gap: str) -> None:
    items = [mark.format(number) + "word " * 10 + "\n  more" + gap for number in range(100)]
    whole = pieces_of("".join(items), 17)
    assert len(whole) > 5
    assert max(map(len, whole)) <= LIST_SPLIT_SIZE + len(max(items, key=len))
    assert all(
        one.startswith(mark[:1] if "{" not in mark else tuple("0123456789")) for one in whole
    )


def test_lookalike_of_an_item_is_not_split() -> None:
    head = "- item\n" * 100
    for line in ("* other list\n", "  - inner item\n", "words that go on\n"):
        *_, last = pieces_of(head + line, 7)
        assert last.endswith(f"- item\n{line}")


def test_gap_only_after_an_empty_line() -> None:
    tight = [one for one in MarkdownStream().feed("- item\n" * 100) if one.last]
    loose = [one for one in MarkdownStream().feed("- item\n\n" * 100) if one.last]
    assert tight
    assert loose
    assert all(one.joined for one in tight)
    assert not any(one.joined for one in loose)


def test_table_is_split_only_when_very_long() -> None:
    row = "| " + "word " * 30 + "|\n\n"
    whole = pieces_of(row * 400, 17)
    assert len(whole) > 1
    assert all(len(one) >= FORCED_SPLIT_SIZE for one in whole[:-1])
