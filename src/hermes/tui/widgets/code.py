"""Markdown with code blocks that can be copied by a key or a click."""

from functools import cached_property
from typing import ClassVar

from markdown_it import MarkdownIt
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.css.styles import RulesMap
from textual.selection import Selection
from textual.strip import Strip
from textual.style import Style
from textual.visual import RenderOptions, Visual, VisualType
from textual.widget import Widget
from textual.widgets import Label, Markdown
from textual.widgets.markdown import MarkdownBlock, MarkdownFence

from hermes.kit.terminal_text import display_width, fit, single_line
from hermes.tui.widgets import CopyRequest

COPY_LABEL = "[copy]"
CONTINUATION_MARK = "↳ "
MAX_HIGHLIGHTED = 8_000
"""Longer code is not highlighted."""


class WrappedCode(Visual):
    """Code with wrapped long lines, marked as continuations."""

    def __init__(self, code: Content) -> None:
        self.code = code

    def get_optimal_width(self, rules: RulesMap, container_width: int) -> int:
        return self.code.get_optimal_width(rules, container_width)

    def get_height(self, rules: RulesMap, width: int) -> int:
        return self.code.get_height(rules, self._room(width))

    def render_strips(
        self, width: int, height: int | None, style: Style, options: RenderOptions
    ) -> list[Strip]:
        room = self._room(width)
        lines = self.code.render_strips(room, height, style, options)
        if room == width:
            return lines
        (mark, *_) = Content.styled(CONTINUATION_MARK, "dim").render_strips(
            width - room, 1, style, options
        )
        heights = [
            1 if _width(line) <= room else Content(line).get_height(options.rules, room)
            for line in self.code.plain.split("\n")
        ]
        marks = [row > 0 for rows in heights for row in range(rows)]
        blank = Strip.blank(width - room, style.rich_style)
        return [
            Strip.join([mark, line] if marked else [line, blank])
            for line, marked in zip(lines, marks, strict=False)
        ]

    def _room(self, width: int) -> int:
        """The width for code: all of it unless a line needs wrapping."""
        return width if self._widest <= width else max(width - display_width(CONTINUATION_MARK), 1)

    @cached_property
    def _widest(self) -> int:
        return max(map(_width, self.code.plain.split("\n")))


def _width(line: str) -> int:
    return display_width(line.expandtabs())


class CodeText(Label):
    DEFAULT_CSS = "CodeText { width: 1fr; height: auto; padding: 0 1; }"

    def __init__(self, code: Content) -> None:
        super().__init__(WrappedCode(code), id="code-content", expand=True)
        self._code = code

    def update(self, content: VisualType = "", *, layout: bool = True) -> None:
        if isinstance(content, Content):
            self._code = content
            content = WrappedCode(content)
        super().update(content, layout=layout)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        return selection.extract(self._code.plain), "\n"


class CodeHead(Widget):
    """The language, and a copy button."""

    DEFAULT_CSS = """
    CodeHead { height: 1; width: 1fr; color: $foreground 60%; padding: 0 1; }
    CodeHead:hover { color: $foreground; text-style: bold; }
    """

    def __init__(self, fence: "Code") -> None:
        super().__init__()
        self._fence = fence

    def render(self) -> Content:
        room = self.size.width - display_width(COPY_LABEL)
        language = fit(single_line(self._fence.lexer), max(room - 1, 0))
        return Content(language + " " * (room - display_width(language)) + COPY_LABEL)

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self._fence.action_copy()


class Code(MarkdownFence, can_focus=True):
    FOCUS_ON_CLICK = False
    """A letter typed after a click must not trigger copy."""
    DEFAULT_CSS = """
    Code { margin: 0 0 1 0; border-left: blank; overflow: hidden hidden; }
    Code, Code:light { background: $surface; }
    Code:focus { border-left: outer $primary; }
    Code > CodeText { padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter,c,y", "copy", "copy", show=False)]

    @classmethod
    def highlight(cls, code: str, language: str, ansi: bool = False, dark: bool = False) -> Content:
        """Highlighting runs again for every new line, so long code stays plain."""
        if len(code) > MAX_HIGHLIGHTED:
            return Content(code)
        return super().highlight(code, language, ansi, dark)

    def compose(self) -> ComposeResult:
        yield CodeHead(self)
        yield CodeText(self._highlighted_code)

    def set_content(self, content: Content) -> None:
        super().set_content(content)
        # The name of the language may have arrived in pieces.
        self.query(CodeHead).refresh()

    def action_copy(self) -> None:
        self.post_message(CopyRequest(self.code.rstrip("\n")))


def markdown_parser() -> MarkdownIt:
    """Without HTML: most tags in answers are meant as text.

    Only full addresses become links: `calc.py` or `README.md` would be taken for web sites.
    """
    parser = MarkdownIt("gfm-like", {"html": False})
    if parser.linkify is not None:
        parser.linkify.set({"fuzzy_link": False, "fuzzy_email": False})  # pyright: ignore[reportUnknownMemberType]
    return parser


class Prose(Markdown):
    DEFAULT_CSS = """
    Prose { padding: 0; margin: 0 0 1 0; }
    Prose.joined, Prose:last-child { margin: 0; }
    Prose > *:last-child { margin-bottom: 0; }
    Prose > MarkdownParagraph, Prose > MarkdownList, Prose > MarkdownBlockQuote { max-width: 110; }
    Prose MarkdownH1, Prose MarkdownH2, Prose MarkdownH3 {
        margin: 0 0 1 0; content-align: left middle; text-style: bold; color: $primary;
    }
    """
    # Not a ClassVar, as in the base class.
    BLOCKS: dict[str, type[MarkdownBlock]] = Markdown.BLOCKS | {"fence": Code, "code_block": Code}

    def __init__(self) -> None:
        super().__init__(open_links=False, parser_factory=markdown_parser)

    def on_markdown_link_clicked(self, event: Markdown.LinkClicked) -> None:
        """Copy the link instead of opening it, so that the user sees the address first."""
        event.stop()
        self.post_message(CopyRequest(event.href))
