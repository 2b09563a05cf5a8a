"""Markdown of the agent, with code that can be copied by a key or a click."""

from typing import ClassVar

from markdown_it import MarkdownIt
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Markdown
from textual.widgets.markdown import MarkdownBlock, MarkdownFence

from hermes.kit.plain import fit, flat, width_of
from hermes.tui.widgets.copied import Copied

COPY = "[copy]"
PLAIN = 8_000
"""Characters from which on code has no colours."""


class CodeHead(Widget):
    """Which language it is, and a place to click."""

    DEFAULT_CSS = """
    CodeHead { height: 1; width: 1fr; color: $foreground 60%; padding: 0 1; }
    CodeHead:hover { color: $foreground; text-style: bold; }
    """

    def __init__(self, fence: "Code") -> None:
        super().__init__()
        self._fence = fence

    def render(self) -> Content:
        room = self.size.width - width_of(COPY)
        language = fit(flat(self._fence.lexer), max(room - 1, 0))
        return Content(language + " " * (room - width_of(language)) + COPY)

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self._fence.action_copy()


class Code(MarkdownFence, can_focus=True):
    FOCUS_ON_CLICK = False
    """A letter that is typed after a click is no wish to copy."""
    DEFAULT_CSS = """
    Code { margin: 0 0 1 0; background: $surface; border-left: blank; }
    Code:focus { border-left: outer $primary; }
    Code > Label { padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter,c,y", "copy", "copy", show=False)]

    @classmethod
    def highlight(cls, code: str, language: str, ansi: bool = False, dark: bool = False) -> Content:
        """Coloured anew with every line that comes: what is very long stays plain."""
        return Content(code) if len(code) > PLAIN else super().highlight(code, language, ansi, dark)

    def compose(self) -> ComposeResult:
        yield CodeHead(self)
        yield from super().compose()

    def action_copy(self) -> None:
        self.post_message(Copied(self.code.rstrip("\n")))


def _parser() -> MarkdownIt:
    """Tags stay what they are, words: most of them are no HTML but a part of what is said."""
    return MarkdownIt("gfm-like", {"html": False})


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
    # Not a ClassVar, because the library says so.
    BLOCKS: dict[str, type[MarkdownBlock]] = Markdown.BLOCKS | {"fence": Code, "code_block": Code}

    def __init__(self) -> None:
        super().__init__(open_links=False, parser_factory=_parser)

    def on_markdown_link_clicked(self, event: Markdown.LinkClicked) -> None:
        """Nobody is sent anywhere by words of a model: the address can be looked at first."""
        event.stop()
        self.post_message(Copied(event.href))
