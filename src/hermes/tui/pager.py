"""A full-screen pager for long output."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static


class Pager(ModalScreen[None]):
    CSS = """
    Pager { background: $background; }
    Pager > VerticalScroll { height: 1fr; padding: 0 1; scrollbar-size-vertical: 1; }
    Pager > .pager-status { height: 1; background: $panel; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,ctrl+c,ctrl+o", "dismiss(None)", show=False),
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j,enter", "move(1)", show=False),
        Binding("pageup,b", "page(-1)", show=False),
        Binding("pagedown,space", "page(1)", show=False),
        Binding("home,g", "to_start", show=False),
        Binding("end,G", "to_end", show=False),
    ]

    def __init__(self, title: str, content: Content) -> None:
        super().__init__()
        self._title = title
        self._content = content

    def compose(self) -> ComposeResult:
        with VerticalScroll(can_focus=False):
            yield Static(self._content, markup=False)
        count = self._content.plain.count("\n") + 1
        keys = f"{count:,} lines · Space, b: page · g, G: start, end · q: back"
        yield Static(Content(f"{self._title} · {keys}"), markup=False, classes="pager-status")

    @property
    def _view(self) -> VerticalScroll:
        return self.query_one(VerticalScroll)

    def action_move(self, lines: int) -> None:
        self._view.scroll_relative(y=lines, animate=False)

    def action_page(self, way: int) -> None:
        self._view.scroll_relative(y=way * (self._view.size.height - 1), animate=False)

    def action_to_start(self) -> None:
        self._view.scroll_home(animate=False)

    def action_to_end(self) -> None:
        self._view.scroll_end(animate=False)
