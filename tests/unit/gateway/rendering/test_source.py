"""Long answers split into posts: nothing lost, no grapheme split, every post within its limit."""

from itertools import accumulate, pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hermes.gateway.rendering.source import (
    MIN_UNITS,
    Chunk,
    ChunkLimits,
    split_text,
)
from support.cases import cases
from support.examples import at_most

FAMILY = "\U0001f469\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466"
WHOLE = (
    *("e\u0301", "\U0001f1e9\U0001f1ea", "\U0001f44d\U0001f3fd", FAMILY, "1\ufe0f\u20e3"),
    *("\u2764\ufe0f\u200d\U0001f525", "\u1112\u1161\u11ab", "\u0915\u094d\u0937\u0940", "\r\n"),
    *("\u3002\u0308", "a\u0300\u0301\u0302", "\uff0c\u0308", " \u0308"),
)

words = st.sampled_from(
    ["word", "Ende.", "Really?", "\u05e9\u05dc\u05d5\u05dd", "\u4f60\u597d\u3002", FAMILY, "x" * 70]
)
prose = st.lists(words, min_size=1, max_size=30).map(" ".join)
code = st.lists(st.sampled_from(["x = 1", "    y = 2", "", "```", "~~~", "z" * 90, "\t# \u00fc"]))


def utf16_units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def utf8_bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


@st.composite
def blocks(draw: st.DrawFn) -> str:
    mark = draw(st.sampled_from(["````", "`````", "~~~~"]))
    info = draw(st.sampled_from(["", "python", " js title"]))
    closed = draw(st.sampled_from([True, True, True, False]))
    lines = [mark + info, *draw(code), *([mark] if closed else [])]
    return "\n".join(lines)


answers = st.lists(st.one_of(prose, prose, blocks(), st.sampled_from(["", "- a", "  "]))).map(
    "\n".join
)
lengths = st.sampled_from([len, utf16_units, utf8_bytes])
limits = st.builds(ChunkLimits, st.integers(120, 400), lengths)
tight = st.builds(ChunkLimits, st.integers(MIN_UNITS, 90), lengths)


def check(text: str, limit: ChunkLimits) -> list[Chunk]:
    chunks = split_text(text, limit)
    assert all(limit.length(chunk.text) <= limit.units for chunk in chunks)
    assert all(chunk.body.strip() for chunk in chunks)
    assert "".join(one.before + one.body + one.after for one in chunks) == (
        text if text.strip() else ""
    )
    assert not "".join(chunk.before + chunk.after for chunk in chunks).strip()
    return chunks


@given(answers, st.one_of(limits, tight))
def test_no_text_is_lost_and_every_post_fits(text: str, limit: ChunkLimits) -> None:
    check(text, limit)


@given(st.text(max_size=400), tight)
def test_arbitrary_text(text: str, limit: ChunkLimits) -> None:
    check(text, limit)


@given(st.text(alphabet="`~ \n\ta\u0308\u3000", max_size=600), tight)
@at_most(300)
def test_arbitrary_fences_spaces_and_marks(text: str, limit: ChunkLimits) -> None:
    check(text, limit)


def open_fence(text: str) -> str | None:
    """Return the fence that is still open at the end of this post."""
    mark = None
    for line in text.split("\n"):
        bare = line.strip()
        run = bare[: len(bare) - len(bare.lstrip(bare[:1]))] if bare[:1] in {"`", "~"} else ""
        if mark is None:
            mark = (
                run if len(run) >= 3 and not (run[0] == "`" and "`" in bare[len(run) :]) else None
            )
        elif bare == run and run[:1] == mark[:1] and len(run) >= len(mark):
            mark = None
    return mark


@given(answers, limits)
@example("````python\n" + "x = 1\n" * 200 + "````", ChunkLimits(200))
@example("````\n" + "```\n" * 200, ChunkLimits(200, len))
@example("```` a title\n" + "y" * 101 + "\n" + "z" * 90 + "\n````\n````\nx\n````", ChunkLimits(113))
def test_split_code_block_is_closed_and_reopened(text: str, limit: ChunkLimits) -> None:
    chunks = check(text, limit)
    assert all(open_fence(chunk.text) is None for chunk in chunks[:-1])
    openers = {line.rstrip() for line in text.split("\n")}
    for left, right in pairwise(chunks):
        assert bool(right.head) == bool(left.tail.split("(")[0].strip())
        assert right.head.removesuffix("\n") in openers | {""}


@given(st.lists(st.sampled_from([*WHOLE, "a", " ", "b"]), max_size=120), tight)
def test_graphemes_are_not_split(pieces: list[str], limit: ChunkLimits) -> None:
    text = "".join(pieces)
    chunks = check(text, limit)
    cuts = set(accumulate(len(part) for chunk in chunks for part in (chunk.before, chunk.body)))
    ends = list(accumulate(len(piece) for piece in pieces))
    inside = {at for piece, end in zip(pieces, ends, strict=True) for at in _inner(piece, end)}
    assert not cuts & inside


def _inner(piece: str, end: int) -> range:
    # White space at a cut may be dropped, so a line break may be separated from its line.
    return range(0) if piece.isspace() else range(end - len(piece) + 1, end)


@given(st.lists(st.text("abcdefgh", min_size=1, max_size=15), min_size=1), tight)
def test_words_are_not_split_when_they_fit(source: list[str], limit: ChunkLimits) -> None:
    chunks = check(" ".join(source), limit)
    assert [word for chunk in chunks for word in chunk.body.split()] == source


def texts(text: str, units: int) -> list[str]:
    return [chunk.text for chunk in split_text(text, ChunkLimits(units))]


def test_short_answer_is_unchanged() -> None:
    assert texts("Hello.\n\n```\nx", 100) == ["Hello.\n\n```\nx"]


@pytest.mark.parametrize("text", ["", " ", "\n\n\t\n", "\u3000" * 500])
def test_blank_answer_gives_no_post(text: str) -> None:
    assert split_text(text, ChunkLimits(MIN_UNITS)) == []


def test_split_prefers_paragraphs_then_lines_sentences_words() -> None:
    line = "one two three. four five"
    assert texts(f"{line}\n{line}\n\n{line}\n{line}", 90) == [f"{line}\n{line}", f"{line}\n{line}"]
    assert texts(f"{line}\n{line}\n{line}", 60) == [f"{line}\n{line}", line]
    assert texts(f"{line} {line}", 45) == ["one two three. four five one two three.", "four five"]
    assert texts("some words in a single line that goes onward", 40) == [
        *("some words in a single line that goes", "onward")
    ]


def test_early_paragraph_break_does_not_make_a_small_post() -> None:
    assert texts("Hi.\n\n" + "word " * 20, 60)[0] == "Hi.\n\n" + "word " * 10 + "word"


def test_list_number_stays_with_its_text() -> None:
    parts = ["Nothing of note here at all.", "Step 1. go on with it"]
    assert texts(" ".join(parts), 45) == parts


@pytest.mark.parametrize("many", [3, 8])
def test_code_block_that_fits_is_not_split(many: int) -> None:
    block = "```python\n" + "x = 1\n" * 10 + "```"
    prose = "Some words." * many
    assert texts(f"{prose}\n{block}", 100) == [prose, block]
    assert texts(f"Hi.\n{block}\n{prose}", 80)[0].startswith("Hi.\n```python\nx = 1\n")


@cases("units", range(60, 130))
def test_no_post_has_an_empty_code_block(units: int) -> None:
    text = "word " * 10 + "\n```py\n" + "x = 1\n" * 30 + "```\n" + "word " * 10
    assert not any("```py\n```" in post for post in texts(text, units))


def test_opening_fence_line_is_not_split() -> None:
    posts = texts("```js. title\n" + "x" * 300 + "\n```", 100)
    assert all(post.startswith("```js. title\nx") for post in posts)


def test_deeply_indented_block_is_ordinary_text() -> None:
    text = "word " * 6 + "\n   ```\n" + "   x = 1\n" * 4 + "   ```"
    assert not any(chunk.head or chunk.tail for chunk in check(text, ChunkLimits(MIN_UNITS)))


def test_excessive_indentation_is_removed() -> None:
    assert texts("x" * 30 + "\n" + " " * 300 + "y", 60) == ["x" * 30, "y"]


def test_combining_mark_stays_on_its_space() -> None:
    assert texts("x" * 35 + " \u0308" + "y" * 20, MIN_UNITS) == ["x" * 35, " \u0308" + "y" * 20]


def test_split_block_keeps_its_language() -> None:
    block = "```python\n" + "x = 1\n" * 12 + "```"
    assert texts(block, 64) == [
        "```python\n" + "x = 1\n" * 8 + "```",
        "```python\n" + "x = 1\n" * 4 + "```",
    ]


def test_nested_block_is_closed_by_its_own_fence() -> None:
    inner = "```js\nlet a\n```\n"
    first, *rest = texts("````markdown\n" + inner * 12 + "````\nEnd.", 100)
    assert first.startswith("````markdown\n```js\n")
    assert all(post.startswith("````markdown\n") for post in rest)
    assert all("\n````" in post for post in [first, *rest])


def test_block_in_a_list_keeps_its_indentation() -> None:
    text = "1. Do this:\n   ```sh\n" + "   make test\n" * 20 + "   ```"
    first, second, *_ = texts(text, 120)
    assert first.endswith("\n   make test\n   ```")
    assert second.startswith("   ```sh\n   make test")


def test_indentation_is_kept_after_a_split() -> None:
    first, second = texts("```\n" + "    deep = 1\n" * 8 + "```", 100)
    assert first.endswith("    deep = 1\n```")
    assert second.startswith("```\n    deep = 1")


def test_links_are_not_split() -> None:
    link = "[a label of some words](https://example.org/a/path)"
    posts = texts("\u4f60\u597d\u3001" * 9 + link + "x" * 70, 60)
    assert any(link in post for post in posts)
    address = "https://example.org/\u3001" + "a" * 20
    assert any(address in post for post in texts("word " * 9 + address, 60))


def test_fence_too_long_to_repeat_is_ordinary_text() -> None:
    text = "```" + "info" * 30 + "\n" + "x = 1\n" * 30 + "```"
    assert all(chunk.head == chunk.tail == "" for chunk in check(text, ChunkLimits(100)))


def test_oversized_grapheme_is_split() -> None:
    assert len(check("a" + "\u0301" * 500, ChunkLimits(100))) == 6


def test_too_small_limit_is_rejected() -> None:
    with pytest.raises(ValueError, match="at least 40 units"):
        split_text("x", ChunkLimits(MIN_UNITS - 1))


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "word and word. " * 6_700,
        "x" * 100_000,
        "x" + "\n" * 100_000 + "x",
        "\U0001f1e9\U0001f1ea" * 50_000,
        "a" + "\u0301" * 100_000,
        "```py\n" + "x = 1\n" * 16_700 + "```",
        "```\n```\n" * 12_500,
        "`" * 100_000,
    ],
    ids=["prose", "letters", "lines", "flags", "marks", "code", "fences", "ticks"],
)
def test_splitting_takes_linear_time(text: str) -> None:
    counted = 0

    def length(part: str) -> int:
        nonlocal counted
        counted += len(part)
        return len(part.encode())

    check(text, ChunkLimits(4096, length))
    assert counted < 40 * len(text)
