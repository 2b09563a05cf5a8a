"""The words of a web page, without what only a browser needs."""

import re
from html.parser import HTMLParser

_SILENT = frozenset(
    {"script", "style", "noscript", "template", "svg", "iframe", "object", "select"}
)
_BLOCKS = frozenset(
    {
        "address", "article", "aside", "blockquote", "br", "dd", "div", "dl", "dt", "fieldset",
        "figcaption", "figure", "footer", "form", "header", "hr", "main", "nav", "ol", "p", "pre",
        "section", "summary", "table", "title", "tr", "ul",
    }
)  # fmt: skip
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_CELLS = frozenset({"td", "th"})


def page_text(html: str) -> str:
    """Lines as a person would see them; headings and lists are marked as in Markdown."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    text = "".join(reader.said)
    lines = [line.rstrip() for line in text.split("\n")]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.said: list[str] = []
        self._silent: list[str] = []
        self._as_written = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _SILENT:
            self._silent.append(tag)
        elif tag in _HEADINGS:
            self.said.append(f"\n\n{_HEADINGS[tag]}")
        elif tag == "li":
            self.said.append("\n- ")
        elif tag in _BLOCKS:
            self.said.append("\n")
        elif tag in _CELLS:
            self.said.append("  ")
        self._as_written += tag == "pre"

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _SILENT:
            self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._silent:
            # Whatever was opened in between was never closed.
            del self._silent[self._silent.index(tag) :]
        elif tag in _HEADINGS or tag == "p":
            self.said.append("\n\n")
        elif tag in _BLOCKS or tag == "li":
            self.said.append("\n")
        if tag == "pre":
            self._as_written = max(0, self._as_written - 1)

    def handle_data(self, data: str) -> None:
        if self._silent:
            return
        if self._as_written:
            self.said.append(data)
            return
        words = re.sub(r"\s+", " ", data)
        at_start = not self.said or self.said[-1].endswith(("\n", " "))
        self.said.append(words.lstrip() if at_start else words)
