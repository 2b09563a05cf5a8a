"""Render Markdown as HTML from an allow-list of tokens, whole or while it is being written.

Raw HTML in the source is shown as text, links lead only to the web or to mail, and an image from
another server is a button until the reader agrees to load it.
"""

from collections.abc import Sequence
from functools import cache, lru_cache, partial
from urllib.parse import urlsplit

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from markdown_it import MarkdownIt
from markdown_it.token import Token
from msgspec import Struct

from hermes.kit.hosts import parse_host, parse_http_url, parse_ip
from hermes.web.highlight import highlight
from hermes.web.html import Html, h, join
from hermes.web.texts import text

MAX_NESTING = 20
"""Deeper quotes and lists are shown as text by the parser."""
MAX_MARKDOWN = 20_000
"""Characters of a text that are rendered; the rest is shown as plain text."""
LARGE = 3_000
"""More characters are parsed in a thread: they take more than some milliseconds."""
PARSERS = CapacityLimiter(2)
MAX_LIVE_REST = 4_000
"""Characters of that rest shown while the text is being written."""
MAX_CELLS = 10_000
"""A text that may have more table cells is rendered without tables."""
MAX_BRACKETS = 1_000
"""A text with more opening brackets is rendered without links: each is searched for its end."""
CACHED_TEXTS = 256
_WRAPPERS = {
    "paragraph": "p",
    "bullet_list": "ul",
    "list_item": "li",
    "blockquote": "blockquote",
    "thead": "thead",
    "tbody": "tbody",
    "tr": "tr",
    "strong": "strong",
    "em": "em",
    "s": "s",
}
_HEADING_OFFSET = 2
_LAST_HEADING = 6


def render(source: str) -> Html:
    """The HTML of a whole text."""
    rest = source[MAX_MARKDOWN:]
    return join([_rendered(source[:MAX_MARKDOWN]), _plain_text(rest) if rest else None])


@lru_cache(CACHED_TEXTS)
def _rendered(source: str) -> Html:
    return join(block for block, _ in _blocks(source))


async def render_in_thread(source: str) -> Html:
    return await run_sync(render, source, limiter=PARSERS)


def _plain_text(rest: str) -> Html:
    return h("div", rest, class_="text")


class Patch(Struct, frozen=True):
    """All blocks of a growing text; those before `start` are unchanged since the last patch."""

    start: int
    blocks: Sequence[Html]


class LiveMarkdown:
    """The blocks of a text that grows; only the last block is parsed again."""

    def __init__(self) -> None:
        self.text = ""
        self._finished: list[Html] = []
        self._offset = 0
        self._sent = 0
        self._last: Patch | None = None

    def add(self, more: str) -> None:
        self.text += more

    @property
    def is_large(self) -> bool:
        """Whether parsing the last block takes long."""
        return min(len(self.text), MAX_MARKDOWN) - self._offset > LARGE

    def blocks(self) -> Sequence[Html]:
        """The text so far; a large one as in the last patch."""
        if self.is_large and self._last is not None:
            return self._last.blocks
        return self._take(self.text, _blocks(self._open_text, is_open=True))

    def patch(self) -> Patch:
        return self._patch(self.text, _blocks(self._open_text, is_open=True))

    async def patch_in_thread(self) -> Patch | None:
        """None if another patch was made meanwhile."""
        text, before = self.text, (self._last, self._offset)
        found = await run_sync(partial(_blocks, self._open_text, is_open=True), limiter=PARSERS)
        return self._patch(text, found) if before == (self._last, self._offset) else None

    def draft(self) -> Html:
        """The text as in the last patch, until it is rendered as a whole."""
        return join(self._last.blocks) if self._last is not None else _plain_text(self.text)

    @property
    def _open_text(self) -> str:
        return self.text[self._offset : MAX_MARKDOWN]

    def _patch(self, text: str, found: Sequence[tuple[Html, int]]) -> Patch:
        start, blocks = self._sent, self._take(text, found)
        self._sent = len(self._finished)
        self._last = Patch(start, blocks)
        return self._last

    def _take(self, text: str, found: Sequence[tuple[Html, int]]) -> Sequence[Html]:
        """All blocks but the last one are finished."""
        # Only the line feed ends a line in Markdown; `splitlines` knows more.
        lines = text[self._offset : MAX_MARKDOWN].split("\n")
        last = max(len(found) - 1, 0)
        if last and found[last][1] == len(lines) - 1:
            # The rest of an unfinished line may make it a part of the block before.
            last -= 1
        if last:
            self._finished += [block for block, _ in found[:last]]
            self._offset += sum(len(line) + 1 for line in lines[: found[last][1]])
        shown = [block for block, _ in found[last:]]
        if len(text) > MAX_MARKDOWN:
            shown.append(_plain_text(text[MAX_MARKDOWN:][-MAX_LIVE_REST:]))
        return [*self._finished, *shown]


def _blocks(source: str, *, is_open: bool = False) -> list[tuple[Html, int]]:
    """The top-level blocks, each with its first line."""
    lines = source.split("\n")
    columns = max(line.count("|") for line in lines)
    # Rows are padded to the width of the table, so a short text can have many cells.
    tables, links = columns * len(lines) <= MAX_CELLS, source.count("[") <= MAX_BRACKETS
    tokens = _parser(tables=tables, links=links).parse(source)
    found: list[tuple[Html, int]] = []
    start = 0
    for position, token in enumerate(tokens):
        if token.level or token.nesting > 0:
            continue
        own = tokens[start : position + 1]
        line = own[0].map[0] if own[0].map else 0
        last = is_open and position == len(tokens) - 1
        found.append((_Renderer(plain_code=last).render(own), line))
        start = position + 1
    return found


@cache
def _parser(*, tables: bool, links: bool) -> MarkdownIt:
    options = {"html": False, "maxNesting": MAX_NESTING}
    parser = MarkdownIt("commonmark", options).enable("strikethrough")
    if tables:
        parser.enable("table")
    if not links:
        parser.disable(["link", "image"])
    # A definition would vanish from the text, and could change blocks that are already shown.
    return parser.disable("reference")


class _Renderer:
    """Renders one block. With `plain_code`, code is not highlighted: it is still being written."""

    def __init__(self, *, plain_code: bool) -> None:
        self._plain_code = plain_code
        self._links: list[bool] = []

    def render(self, tokens: Sequence[Token]) -> Html:
        return Html("".join(self._token(token) for token in tokens))

    def _token(self, token: Token) -> str:
        kind = token.type.removesuffix("_open").removesuffix("_close")
        if token.nesting:
            return self._tag(kind, token)
        match kind:
            case "inline":
                shown = self.render(token.children or ())
            case "softbreak":
                shown = "\n"
            case "hardbreak":
                shown = h("br")
            case "hr":
                shown = h("hr")
            case "code_inline":
                shown = h("code", token.content)
            case "fence" | "code_block":
                shown = self._code(token)
            case "image":
                shown = _image(token)
            case _:
                # Show text, raw HTML, and any token that is not on the list as text.
                shown = join([token.content])
        return shown

    def _tag(self, kind: str, token: Token) -> str:
        """An opening or closing tag; one that is not on the list is left out."""
        if kind in _WRAPPERS:
            return "" if token.hidden else _tag(_WRAPPERS[kind], token.nesting)
        match kind:
            case "link":
                shown = self._link(token)
            case "heading":
                level = min(int(token.tag[1:]) + _HEADING_OFFSET, _LAST_HEADING)
                shown = _tag(f"h{level}", token.nesting)
            case "ordered_list":
                start = token.attrGet("start")
                numbered = token.nesting > 0 and isinstance(start, int)
                shown = f'<ol start="{start}">' if numbered else _tag("ol", token.nesting)
            case "table":
                label = join([text("table")])
                opened = (
                    f'<div class="wide" tabindex="0" role="region" aria-label="{label}"><table>'
                )
                shown = opened if token.nesting > 0 else "</table></div>"
            case "th" | "td":
                shown = _cell(kind, token)
            case _:
                shown = ""
        return shown

    def _link(self, token: Token) -> str:
        if token.nesting < 0:
            return "</a>" if self._links.pop() else ""
        url = str(token.attrGet("href") or "")
        self._links.append(is_clickable(url))
        if not self._links[-1]:
            return ""
        opened = h("a", href=url, target="_blank", rel="noopener noreferrer nofollow", title=url)
        return opened.removesuffix("</a>")

    def _code(self, token: Token) -> Html:
        language = token.info.split(maxsplit=1)[0] if token.info.strip() else ""
        return code_block(token.content, language, plain=self._plain_code)


def code_block(source: str, language: str = "", *, plain: bool = False) -> Html:
    """Code with its language and a copy button."""
    lines = source if plain else highlight(source, language)
    head = h(
        "figcaption",
        h("span", language[:30] or text("code")),
        h("button", text("copy"), type="button", class_="quiet", data_action="copy"),
    )
    code = h("pre", h("code", lines), tabindex="0", role="region", aria_label=text("code"))
    return h("figure", head, code, class_="code")


def is_clickable(url: str) -> bool:
    """Whether a link may be followed: to the web but not to this machine, or mail.

    Browsers send cookies to every port of a host, so a server on another port of this machine would
    receive the page's cookie.
    """
    parts = parse_http_url(url)
    if parts is None:
        return url.lower().startswith("mailto:")
    host = parse_host(parts.netloc)
    if host is None or host.rpartition(".")[2] == "localhost":
        return False
    number = parse_ip(host)
    inner = getattr(number, "ipv4_mapped", None) or number
    return inner is None or not (inner.is_loopback or inner.is_unspecified)


def _image(token: Token) -> Html:
    url, label = str(token.attrGet("src") or ""), token.content or text("image")
    parts = parse_http_url(url)
    if parts is None or parts.scheme.lower() != "https":
        return h("span", label)
    host = urlsplit(url).netloc.lower()
    return h(
        "button",
        text("load_image", host=host),
        type="button",
        class_="remote-image",
        data_action="load-image",
        data_host=host,
        data_url=url,
        data_label=label,
    )


def _cell(kind: str, token: Token) -> str:
    align = str(token.attrGet("style") or "").removeprefix("text-align:")
    known = token.nesting > 0 and align in {"left", "right", "center"}
    return f'<{kind} class="{align}">' if known else _tag(kind, token.nesting)


def _tag(name: str, nesting: int) -> str:
    return f"<{name}>" if nesting > 0 else f"</{name}>"
