"""Read HTML strictly: tags must be allowed and closed in order."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from html.parser import HTMLParser
from urllib.parse import urlsplit

TAGS: Mapping[str, AbstractSet[str]] = {
    "a": {"href"}, "blockquote": set(), "br": set(), "code": {"class"}, "del": set(),
    "em": set(), "h1": set(), "h2": set(), "h3": set(), "h4": set(), "h5": set(), "h6": set(),
    "hr": set(), "li": set(), "ol": {"start"}, "p": set(), "pre": set(), "strong": set(),
    "ul": set(),
}  # fmt: skip
"""The tags of formatted text, with their attributes; none can run or load anything."""
SCHEMES = {"https", "http", "ftp", "mailto", "magnet"}
EMPTY = {"br", "hr", "meta"}


class _Reader(HTMLParser):
    def __init__(self, allowed: Mapping[str, AbstractSet[str]]) -> None:
        super().__init__(convert_charrefs=True)
        self.text = ""
        self.open: list[str] = []
        self._allowed = allowed
        self._number = 1

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in self._allowed, tag
        for name, value in attrs:
            assert name in self._allowed[tag], (tag, name)
            assert name != "href" or urlsplit(value or "").scheme in SCHEMES, value
        if tag == "ol":
            self._number = int(dict(attrs).get("start") or 1)
        if tag == "li" and self.open[-1] == "ol":
            self.text += f"{self._number}. "
            self._number += 1
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)


def read_html(html: str, allowed: Mapping[str, AbstractSet[str]] = TAGS) -> str:
    """Return the text that is shown, with the numbers of lists.

    Raises `AssertionError` for what is not allowed.
    """
    reader = _Reader(allowed)
    reader.feed(html)
    reader.close()
    assert not reader.open
    return reader.text
