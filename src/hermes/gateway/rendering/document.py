"""Parse Markdown into blocks of styled text that every dialect can render and every limit can cut.

HTML is shown as text, and link definitions are kept as text, so that nothing a model writes is
lost. Tables become aligned text, because most platforms have none.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum, auto
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct, structs

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

MAX_NESTING = 20
"""Deeper quotes and lists are shown as text by the parser."""


class Style(Enum):
    BOLD = auto()
    ITALIC = auto()
    STRIKE = auto()
    CODE = auto()


class Span(Struct, frozen=True):
    """A piece of a line in one style, perhaps a link."""

    text: str
    styles: tuple[Style, ...] = ()
    url: str = ""


class BlockKind(Enum):
    TEXT = auto()
    HEADING = auto()
    CODE = auto()
    RULE = auto()


class TextUnit(Struct, frozen=True, kw_only=True):
    """One paragraph, heading, list item, code block or rule.

    `marker` is the bullet or number of a list item, `depth` how deep its list is nested.
    `close` says that it follows the unit before it without a blank line.
    """

    kind: BlockKind = BlockKind.TEXT
    spans: tuple[Span, ...] = ()
    language: str = ""
    level: int = 0
    marker: str = ""
    depth: int = 0
    quote: int = 0
    close: bool = False

    @property
    def text(self) -> str:
        return "".join(span.text for span in self.spans)

    def head(self, at: int) -> "TextUnit":
        """Return the unit up to the character `at`."""
        spans: list[Span] = []
        for span in self.spans:
            if at <= 0:
                break
            spans.append(
                span if len(span.text) <= at else structs.replace(span, text=span.text[:at])
            )
            at -= len(span.text)
        return structs.replace(self, spans=tuple(spans))

    def tail(self, at: int) -> "TextUnit":
        """Return the unit from the character `at`, without the marker of its list item."""
        spans = list(self.spans)
        skipped = 0
        while spans and len(spans[skipped].text) <= at:
            at -= len(spans[skipped].text)
            skipped += 1
            if skipped == len(spans):
                break
        rest = spans[skipped:]
        if rest:
            rest[0] = structs.replace(rest[0], text=rest[0].text[at:])
        return structs.replace(self, spans=tuple(rest), marker=" " if self.marker else "")


def parse_markdown(text: str) -> list[TextUnit]:
    reader = _Reader()
    for token in _parser().parse(text):
        reader.read(token)
    return reader.units


@cache
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt  # noqa: PLC0415 - only channels with markup need it

    options = {"html": False, "maxNesting": MAX_NESTING}
    return MarkdownIt("commonmark", options).enable(["table", "strikethrough"]).disable("reference")


class _OpenList(Struct):
    """An open list: the number of its next item, None for bullets."""

    number: int | None
    marker: str = ""
    begun: bool = False

    def begin_item(self) -> None:
        if self.number is None:
            self.marker = "•"
        else:
            self.marker = f"{self.number}."
            self.number += 1


class _Reader:
    """Collects units from tokens."""

    def __init__(self) -> None:
        self.units: list[TextUnit] = []
        self._lists: list[_OpenList] = []
        self._rows: list[list[str]] = []
        self._quote = 0
        self._heading = 0
        self._tight = False

    def read(self, token: "Token") -> None:
        match token.type:
            case "inline":
                self._inline(token)
            case "fence" | "code_block":
                language = next(iter(token.info.split()), "")
                self._add_code(token.content.removesuffix("\n"), language)
            case "hr":
                self._add(TextUnit(kind=BlockKind.RULE))
            case "paragraph_open":
                self._tight = token.hidden
            case "heading_open" | "heading_close":
                self._heading = int(token.tag[1:]) if token.nesting == 1 else 0
            case "blockquote_open" | "blockquote_close":
                self._quote += token.nesting
            case _:
                self._container(token)

    def _container(self, token: "Token") -> None:
        match token.type:
            case "bullet_list_open":
                self._lists.append(_OpenList(None))
            case "ordered_list_open":
                start = token.attrGet("start")
                self._lists.append(_OpenList(1 if start is None else int(start)))
            case "bullet_list_close" | "ordered_list_close":
                self._lists.pop()
            case "list_item_open":
                self._lists[-1].begin_item()
            case "tr_open":
                self._rows.append([])
            case "table_close":
                self._add_code(_aligned(self._rows))
                self._rows = []
            case _:
                pass

    def _inline(self, token: "Token") -> None:
        spans = tuple(_joined(_spans(token.children or ())))
        if self._rows:
            self._rows[-1].append("".join(span.text for span in spans))
            return
        kind = BlockKind.HEADING if self._heading else BlockKind.TEXT
        unit = TextUnit(kind=kind, spans=spans, level=self._heading)
        self._add(unit, tight=self._tight and not self._heading)

    def _add_code(self, code: str, language: str = "") -> None:
        self._add(TextUnit(kind=BlockKind.CODE, spans=(Span(code),), language=language))

    def _add(self, unit: TextUnit, *, tight: bool = False) -> None:
        """Add a unit that has text; the first one of a list item gets its marker."""
        if unit.kind is not BlockKind.RULE and not unit.text.strip():
            return
        if not self._lists:
            self.units.append(structs.replace(unit, quote=self._quote))
            return
        current = self._lists[-1]
        marker, current.marker = current.marker or " ", ""
        depth = len(self._lists) - 1
        close = tight and (current.begun or depth > 0 or marker == " ")
        current.begun = True
        self.units.append(
            structs.replace(unit, marker=marker, depth=depth, quote=self._quote, close=close)
        )


_STYLES = {"strong": Style.BOLD, "em": Style.ITALIC, "s": Style.STRIKE}


def _joined(spans: Iterable[Span]) -> Iterator[Span]:
    """Join spans of the same style: adjacent markers would mean something else."""
    last: Span | None = None
    for original in spans:
        span = structs.replace(original, styles=tuple(dict.fromkeys(original.styles)))
        if last is None:
            last = span
        elif (last.styles, last.url) == (span.styles, span.url) and Style.CODE not in span.styles:
            last = structs.replace(last, text=last.text + span.text)
        else:
            yield last
            last = span
    if last is not None:
        yield last


def _spans(children: "Sequence[Token]") -> Iterator[Span]:
    styles: list[Style] = []
    url = ""
    for token in children:
        name = token.type.rpartition("_")[0]
        match token.type:
            case "text" if token.content:
                yield Span(token.content, tuple(styles), url)
            case "softbreak" | "hardbreak":
                yield Span("\n", tuple(styles), url)
            case "code_inline":
                yield Span(token.content, (*styles, Style.CODE), url)
            case "link_open" | "link_close":
                url = str(token.attrGet("href") or "")
            case "image":
                source = str(token.attrGet("src") or "")
                yield Span(token.content or source, tuple(styles), url or source)
            case _ if name in _STYLES and token.nesting == 1:
                styles.append(_STYLES[name])
            case _ if name in _STYLES and _STYLES[name] in styles:
                styles.remove(_STYLES[name])
            case _:
                pass


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    """Return a table as text with aligned columns."""
    columns = max(map(len, rows), default=0)
    full = [[*row, *[""] * (columns - len(row))] for row in rows]
    widths = [max((len(row[column]) for row in full), default=0) for column in range(columns)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in full
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)
