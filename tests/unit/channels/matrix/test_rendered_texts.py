"""Any text becomes HTML that Matrix's rules allow; an independent reader shows it whole."""

import re
from html.parser import HTMLParser
from urllib.parse import urlsplit

from hypothesis import given
from hypothesis import strategies as st

from hermes.channels.matrix import MANIFEST
from hermes.channels.matrix.outbound import text_content
from hermes.gateway.rendering.posts import compose_posts
from hermes.schema.messages import Text

ALLOWED = {
    "a": {"href"}, "blockquote": set(), "br": set(), "code": {"class"}, "del": set(),
    "em": set(), "h1": set(), "h2": set(), "h3": set(), "h4": set(), "h5": set(), "h6": set(),
    "hr": set(), "li": set(), "ol": {"start"}, "p": set(), "pre": set(), "strong": set(),
    "ul": set(),
}  # fmt: skip
"""Of the tags and attributes that the specification suggests to allow in `formatted_body`."""
SCHEMES = {"https", "http", "ftp", "mailto", "magnet"}
EMPTY = {"br", "hr"}
PIECES = st.sampled_from(
    [
        "**bold**", "*it*", "~~gone~~", "`a < b`", "[link](https://x.org/?a=1&b=2)", "<b>",
        "<script>alert(1)</script>", "[x](javascript:alert(1))", "<img src=x onerror=y>",
        "```py\nif a < b:\n    pass\n```", "````\n```\n````", "> quote\n> more", "- one\n- two",
        "1. a\n   - b", "| a | b |\n|---|---|\n| 1 | 2 |", "# Title", "---", "👩‍👧", "שלום",
        "é" * 40, "x" * 300, "\n\n", "\n", " ", "_", "*", "`", "<", "&amp;", '"', "\\",
        "@ann:example.org", "![image](https://x.org/a.png)", "[a](data:text/html,x)",
    ]
)  # fmt: skip
TEXTS = st.lists(PIECES | st.text(max_size=40), max_size=40).map("".join)


class Reader(HTMLParser):
    """Reads HTML strictly: tags must be allowed and closed in order."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.text = ""
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ALLOWED, tag
        for name, value in attrs:
            assert name in ALLOWED[tag], (tag, name)
            assert name != "href" or urlsplit(value or "").scheme in SCHEMES, value
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)


@given(TEXTS)
def test_html_is_allowed_and_keeps_the_text(text: str) -> None:
    for post in compose_posts([Text(text)], MANIFEST.caps, reserved=12):
        assert 0 < len(post.text.encode()) <= MANIFEST.caps.max_text
        content = text_content(post, ())
        html = str(content.get("formatted_body", ""))
        if not html:
            continue
        reader = Reader()
        reader.feed(html)
        reader.close()
        assert not reader.open
        assert _is_within(_letters(reader.text), _letters(post.plain))
        without_links = re.sub(r" \(\S+\)", "", post.plain)
        assert _is_within(_letters(without_links), _letters(reader.text))


def _letters(text: str) -> str:
    """Dialects have their own signs for lists and quotes, and write addresses of links or not."""
    return "".join(re.findall(r"[^\W_\d]+", text))


def _is_within(part: str, whole: str) -> bool:
    """Whether the characters of `part` occur in `whole` in the same order."""
    rest = iter(whole)
    return all(character in rest for character in part)
