"""The agent's todo list, pinned above the prompt until everything on it is done."""

from textual.content import Content
from textual.widgets import Static

from hermes.kit.terminal_text import fit
from hermes.tui.todo_list import TodoList

_STYLES = {"✓": "dim", "-": "dim strike", "▸": "bold $accent"}


class TodoPanel(Static):
    DEFAULT_CSS = """
    TodoPanel {
        height: auto; max-height: 8; padding: 0 1; display: none;
        border-top: solid $panel; color: $foreground 85%;
    }
    TodoPanel.shown { display: block; }
    """

    def __init__(self) -> None:
        super().__init__(markup=False)
        self._list = TodoList()
        self._compact = True

    def show_list(self, text: str) -> None:
        """Show the list as the `todo` tool prints it; hide it if nothing is left to do."""
        self._list = TodoList.parse(text)
        self.set_class(self._list.is_open, "shown")
        self._draw()

    def set_compact(self, *, compact: bool) -> None:
        """Show one line between turns, and more during a turn."""
        if compact is not self._compact:
            self._compact = compact
            self._draw()

    def _draw(self) -> None:
        if self._list.is_open:
            width = max(self.screen.size.width - 4, 8)
            compact = Content(fit(self._list.summary, width)) if self._compact else None
            self.update(compact or _content(self._list, width))


def _content(todo: TodoList, width: int) -> Content:
    """A heading and the items around the current one."""
    items, hidden = todo.around_current()
    lines = [Content.styled(todo.heading, "bold")]
    lines += [Content.styled(fit(item.line, width), _STYLES.get(item.mark, "")) for item in items]
    if hidden:
        lines.append(Content.styled(f"  … {hidden} more", "dim"))
    return Content("\n").join(lines)
