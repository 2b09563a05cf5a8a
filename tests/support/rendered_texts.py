"""Texts that are hard to render, and the question whether people see all of a text."""

import re

from hypothesis import strategies as st
from msgspec import structs

from hermes.ports.channel import ChannelCapabilities

PIECES = st.sampled_from(
    [
        "**bold**", "*it*", "~~gone~~", "`a < b`", "[link](https://x.org/?a=1&b=2)", "<b>", "</i>",
        "__under__", "***both***", "**bold *it* `code`**", "~it~", "a*b*c", "\\*plain\\*",
        "```py\nif a < b:\n    pass\n```", "````\n```\n````", "~~~\n```\n~~~", "```\nopen",
        "> quote\n> **more**", "> ```\n> code\n> ```", "> > deep\n> > quote", "- one\n- two",
        "1. a\n   - b", "- ```\n  code\n  ```", "| a | b |\n|---|---|\n| 1 | **2** |", "# Title",
        "## **Bold** title", "---", "👩‍👧", "🇩🇪", "שלום", "\u202eabc", "مرحبا **عالم**", "é" * 40,
        "x" * 300, "\n\n", "\n", " ", "\t", "_", "*", "`", "<", ">", "&", "&amp;", '"', "\\", "|",
        "~", "snake_case_name", "https://x.org/a_b_c?d=1&e=2", "![image](https://x.org/a.png)",
        "[**a**](https://x.org/(b))", "[a](mailto:a@b.org)", ":smile:", "\x0304red", "\x02\x0f\x16",
        "\0", "\x01VERSION\x01", "\x1b[31m", "\r", "\u2028", "\x0b", "\ufeff",
    ]
)  # fmt: skip
TEXTS = st.lists(PIECES | st.text(max_size=40), max_size=30).map("".join)
LONG_TEXTS = st.lists(PIECES | st.text(max_size=400), min_size=20, max_size=200).map("".join)
"""For runs that may take minutes."""
_STYLED = st.sampled_from(
    ["**bold**", "*it*", "~~gone~~", "`code`", "word", "(", ")", " ", " ", "\n\n", "你好", "!"]
)
STYLED_WORDS = st.lists(_STYLED, max_size=12).map("".join)
"""Styles within words, and next to other signs."""
_TEMPLATES = st.sampled_from(
    [
        "{}", "**{}**", "*{}*", "~~{}~~", "`{}`", "a**{}**b", "[{}](https://x.org/?a=1&b=2)",
        "![{}](https://x.org/a.png)", "<b>{}</b>", "# {}", "> {}\n> **{}**", "> > {}",
        "- {}\n- {}", "1. {}\n   - {}", "```py\n{}\n```", "````\n```\n{}\n```\n````",
        "~~~\n{}\n\n{}\n~~~", "> ```\n> {}\n> ```", "- ```\n  {}\n  ```", "    {}",
        "| {} | b |\n|---|---|\n| {} | **{}** |", "---", "👩‍👧 {}", "שלום {}", "{} " + "x" * 300,
        "{}  \n{}", "\\*{}\\*", "&amp; {}",
    ]
)  # fmt: skip


def numbered_words(templates: list[str]) -> str:
    """Fill the templates with the words w0w, w1w and so on."""
    pieces = "\n\n".join(templates).split("{}")
    filled = [f"{piece}w{number}w" for number, piece in enumerate(pieces[:-1])]
    return "".join([*filled, pieces[-1]])


DOCUMENTS = st.lists(_TEMPLATES, min_size=1, max_size=25).map(numbered_words)
"""Markdown in which every word has a number."""
PARAGRAPHS = "\n\n".join(
    f"Paragraph {number} **bold** 👩‍👧 שלום `x < {number}`" for number in range(2500)
)
"""More than 100,000 characters."""


def with_limits(
    caps: ChannelCapabilities, limits: tuple[int, ...] = (70, 200)
) -> st.SearchStrategy[ChannelCapabilities]:
    """The platform as it is, or with posts so short that most texts are cut."""
    return st.sampled_from([caps, *(structs.replace(caps, max_text=most) for most in limits)])


def word_numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"w(\d+)w", text)]


def paragraph_numbers(shown: str) -> list[int]:
    return [int(number) for number in re.findall(r"Paragraph (\d+)", shown)]


def keeps(shown: str, plain: str) -> bool:
    """Whether the text is whole, apart from the signs and addresses that a dialect adds."""
    return _is_within(only_letters(shown), only_letters(plain)) and _is_within(
        only_letters(without_links(plain)), only_letters(shown)
    )


def without_links(text: str) -> str:
    """Without the addresses that plain text has behind the labels of links."""
    return re.sub(r" \((?:https?|mailto):\S+\)", "", text)


def only_letters(text: str) -> str:
    """Letters and digits: dialects have their own signs for lists, quotes and styles."""
    return "".join(re.findall(r"[^\W_]+", text))


def _is_within(part: str, whole: str) -> bool:
    """Whether the characters of `part` occur in `whole` in the same order."""
    rest = iter(whole)
    return all(character in rest for character in part)


def signs(text: str) -> int:
    """How many signs of styles are in a text."""
    return sum(map(text.count, "*_~`"))
