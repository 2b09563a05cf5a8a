"""Text with styles: Signal takes plain text and the ranges of its styles."""

from html.parser import HTMLParser

STYLES = {
    "b": "BOLD", "strong": "BOLD", "i": "ITALIC", "em": "ITALIC", "s": "STRIKETHROUGH",
    "del": "STRIKETHROUGH", "strike": "STRIKETHROUGH", "code": "MONOSPACE", "pre": "MONOSPACE",
    "tg-spoiler": "SPOILER",
}  # fmt: skip


class _StyleReader(HTMLParser):
    """Reads the HTML subset that the gateway renders; positions are in UTF-16 units."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.text = ""
        self.styles: list[str] = []
        self._open: list[tuple[str, int, str]] = []
        self._quoted = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "blockquote":
            self._quoted = True
            self.text += "> "
        self._open.append((tag, len(self.text), dict(attrs).get("href") or ""))

    def handle_endtag(self, tag: str) -> None:
        for number in range(len(self._open) - 1, -1, -1):
            if self._open[number][0] == tag:
                _, start, url = self._open.pop(number)
                self._close(tag, start, url)
                return

    def handle_data(self, data: str) -> None:
        # Quote marks are inserted before the text after them, so that positions stay correct.
        self.text += data.replace("\n", "\n> ") if self._quoted else data

    def _close(self, tag: str, start: int, url: str) -> None:
        if tag == "blockquote":
            self._quoted = False
        elif url and url != self.text[start:]:
            self.text += f" ({url})"
        length = _units(self.text[start:])
        # A code block often has two tags around the same text.
        style = f"{_units(self.text[:start])}:{length}:{STYLES.get(tag, '')}"
        if tag in STYLES and length and style not in self.styles:
            self.styles.append(style)


def styled_text(html: str) -> tuple[str, list[str]]:
    """The plain text, and its styles as start:length:STYLE."""
    reader = _StyleReader()
    reader.feed(html)
    reader.close()
    return reader.text, reader.styles


def _units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2
