"""Extract the visible text of a web page.

The page may be malicious, so it is read once, front to back: each step begins where the previous
one ended, and an unclosed element extends to the end of the page.
"""

import re
from collections import Counter
from html import unescape
from string import ascii_letters

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

_MARKUP = re.compile(r"<(?=[a-zA-Z/!?])")
_NAME = re.compile(r"[^\s/>]{1,40}")
_ATTRIBUTE_OR_END = re.compile(r"[=>]")
_VALUE = re.compile(r"""\s*(?:"[^"]*"|'[^']*')?""")
_ENDS = {
    tag: re.compile(rf"</{tag}(?=[\s/>])", re.IGNORECASE)
    for tag in ("script", "style", "iframe", "title", "textarea")
}
"""Elements whose content is not markup."""
_HUGE_NUMBER = re.compile(r"&#[0-9]{8,};?")
_LETTERS = frozenset(ascii_letters)


def html_text(html: str) -> str:
    """The visible text; headings and lists are marked as in Markdown."""
    words = _TextBuilder()
    _read(html, words)
    lines = [line.rstrip() for line in "".join(words.pieces).split("\n")]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def _read(html: str, words: "_TextBuilder") -> None:
    position = 0
    while found := _MARKUP.search(html, position):
        start = found.start()
        words.add_text(html[position:start])
        if html[start + 1] in _LETTERS:
            position = _opened(html, start, words)
        elif html[start + 1] == "/" and html[start + 2 : start + 3] in _LETTERS:
            position = _tag_end(html, start)
            words.end(_name(html, start + 2))
        else:
            position = _remark_end(html, start)
    words.add_text(html[position:])


def _opened(html: str, start: int, words: "_TextBuilder") -> int:
    """Return the position after the tag, and after its content if that is not markup."""
    tag, end = _name(html, start + 1), _tag_end(html, start)
    if html[end - 2 : end] == "/>":
        words.add_break(tag)
        return end
    words.begin(tag)
    if tag not in _ENDS:
        return end
    closing = _ENDS[tag].search(html, end)
    content_end = closing.start() if closing else len(html)
    if tag not in _SILENT:
        words.add_text(html[end:content_end])
    return content_end


def _name(html: str, start: int) -> str:
    found = _NAME.match(html, start)
    return found[0].lower() if found else ""


def _tag_end(html: str, start: int) -> int:
    """Return the position after the tag's `>`; a `>` inside a quoted value does not end it.

    A value whose quote is never closed counts as unquoted. The search for that quote is repeated
    at most once for each kind: there is no other one after it.
    """
    position = start
    while found := _ATTRIBUTE_OR_END.search(html, position):
        position = found.end()
        if found[0] == ">":
            return position
        value = _VALUE.match(html, position)
        position = value.end() if value else position
    return len(html)


def _remark_end(html: str, start: int) -> int:
    """The end of a comment, a declaration or a malformed tag."""
    if not html.startswith("<!--", start):
        end = html.find(">", start)
        return end + 1 if end >= 0 else len(html)
    if html.startswith((">", "->"), start + 4):
        return html.index(">", start) + 1
    end = html.find("-->", start + 4)
    return end + 3 if end >= 0 else len(html)


class _TextBuilder:
    """Collects the text; content of hidden elements is skipped."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self._silent: list[str] = []
        self._times: Counter[str] = Counter()
        self._as_written = 0

    def begin(self, tag: str) -> None:
        if tag in _SILENT:
            self._silent.append(tag)
            self._times[tag] += 1
        else:
            self.add_break(tag)
        self._as_written += tag == "pre"

    def add_break(self, tag: str) -> None:
        """Add what separates the element from the text before it."""
        if tag in _HEADINGS:
            self.pieces.append(f"\n\n{_HEADINGS[tag]}")
        elif tag == "li":
            self.pieces.append("\n- ")
        elif tag in _BLOCKS:
            self.pieces.append("\n")
        elif tag in _CELLS:
            self.pieces.append("  ")

    def end(self, tag: str) -> None:
        if self._times[tag]:
            self._unsilence(tag)
        elif tag in _HEADINGS or tag == "p":
            self.pieces.append("\n\n")
        elif tag in _BLOCKS or tag == "li":
            self.pieces.append("\n")
        if tag == "pre":
            self._as_written = max(0, self._as_written - 1)

    def _unsilence(self, tag: str) -> None:
        """Close the tag and unclosed tags inside it."""
        closed = ""
        while closed != tag:
            closed = self._silent.pop()
            self._times[closed] -= 1

    def add_text(self, data: str) -> None:
        if self._silent or not data:
            return
        words = unescape(_HUGE_NUMBER.sub("\ufffd", data))
        if not self._as_written:
            words = re.sub(r"\s+", " ", words)
            if not self.pieces or self.pieces[-1].endswith(("\n", " ")):
                words = words.lstrip()
        if words:
            self.pieces.append(words)
