import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hermes.models.think_tags import TAG_NAMES, PieceKind, TextPiece, ThinkTagParser
from support.cases import cases


def read(pieces: list[str]) -> tuple[str, str, list[TextPiece]]:
    """Return the final text and reasoning, and the merged pieces in order."""
    tags = ThinkTagParser()
    found = [piece for text in pieces for piece in tags.feed(text)] + tags.close()
    spoken = thought = ""
    merged: list[TextPiece] = []
    for piece in found:
        match piece.kind:
            case PieceKind.TEXT:
                spoken += piece.text
            case PieceKind.REASONING:
                thought += piece.text
            case PieceKind.RECLASSIFIED:
                thought, spoken = thought + spoken, ""
        if merged and merged[-1].kind is piece.kind:
            merged.append(TextPiece(merged.pop().text + piece.text, piece.kind))
        else:
            merged.append(piece)
    return spoken, thought, merged


@cases(
    ("text", "spoken", "thought"),
    [
        ("plain", "plain", ""),
        ("", "", ""),
        ("  indented\n", "  indented\n", ""),
        ("<think>hm</think>\n\nyes", "yes", "hm"),
        ("\n<think>\nhm\n</think>\nyes", "yes", "\nhm\n"),
        ("<THINKING>hm</Thinking>yes", "yes", "hm"),
        ("<REASONING_SCRATCHPAD>hm</REASONING_SCRATCHPAD>yes", "yes", "hm"),
        ("<think>a</think><thought>b</thought>c", "c", "ab"),
        ("one\n<think>two</think>\nthree", "one\n\nthree", "two"),
        ("<think>never closed", "", "never closed"),
        ("<think>a </thinking> b</think>c", "c", "a </thinking> b"),
        ("<think>a < b </ c</think>d", "d", "a < b </ c"),
        ("say <think> loud", "say <think> loud", ""),
        ("`<think>` is a tag", "`<think>` is a tag", ""),
        ("```\n<think>\n```\nok", "```\n<think>\n```\nok", ""),
        (
            "~~~xml\n<think>x</think>\n~~~\n<think>y</think>z",
            "~~~xml\n<think>x</think>\n~~~\nz",
            "y",
        ),
        ("<thinker>x", "<thinker>x", ""),
        ("<thin", "<thin", ""),
        ("<", "<", ""),
        ("<div>\n", "<div>\n", ""),
        ("so it is 4.\n</think>\n\n4", "4", "so it is 4.\n"),
        ("<think>a</think>b\n</think>c", "b\nc", "a"),
        ("</think>x", "x", ""),
        ("<think></think>x", "x", ""),
        ("<think>a</think>   ", "", "a"),
    ],
)
def test_tags(text: str, spoken: str, thought: str):
    assert read([text])[:2] == (spoken, thought)
    assert read(list(text))[:2] == (spoken, thought)


TAGS = [f"<{name}>" for name in TAG_NAMES] + [f"</{name}>" for name in TAG_NAMES]
BITS = st.sampled_from([*TAGS, "<", "</", ">", "\n", " ", "```", "~~~", "`", "a", "thi", "B c"])


@given(st.lists(BITS).map("".join), st.data())
@example("<think>a</think>\n b", None)
def test_result_does_not_depend_on_the_chunking(text: str, data: st.DataObject | None):
    pieces = list(text) if data is None else cut(text, data)
    assert read(pieces) == read([text])


def cut(text: str, data: st.DataObject) -> list[str]:
    pieces = []
    while text:
        size = data.draw(st.integers(1, max(1, min(len(text), 7))))
        pieces.append(text[:size])
        text = text[size:]
    return pieces


@given(st.text().filter(lambda text: "<" not in text))
def test_text_without_tags_is_unchanged(text: str):
    assert read([text])[:2] == (text, "")


def test_leading_whitespace_is_limited():
    whole = ThinkTagParser()
    shown = whole.feed(" " * 10_000 + "x") + whole.close()
    torn = ThinkTagParser()
    pieces = [piece for _ in range(10_000) for piece in torn.feed(" ")]
    pieces += torn.feed("x") + torn.close()
    assert "".join(piece.text for piece in shown) == " " * 4096 + "x"
    assert "".join(piece.text for piece in pieces) == " " * 4096 + "x"


def test_inner_whitespace_is_kept():
    tags = ThinkTagParser()
    pieces = tags.feed("a\n" + " " * 10_000) + tags.feed("b") + tags.close()
    assert "".join(piece.text for piece in pieces) == "a\n" + " " * 10_000 + "b"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "spoken", "thought"),
    [
        ("a\n", "a\n", ""),
        ("```\n", "```\n", ""),
        ("<t\n", "<t\n", ""),
        ("<think>a</think>\n", "", "a"),
    ],
)
def test_many_short_lines_are_fast(line: str, spoken: str, thought: str):
    many = 200_000
    text, mused, _ = read([line * many])
    assert mused == thought * many
    assert text == spoken * many
