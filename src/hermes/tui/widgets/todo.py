"""The agent's todo list, pinned above the prompt until everything on it is done."""

from textual.content import Content
from textual.widgets import Static

from hermes.kit.terminal_text import escape_controls, fit, single_line

_MAX_LINES = 6
_DONE = ("[x]", "[-]")
_STYLES = {"[x]": ("✓", "dim"), "[-]": ("-", "dim strike"), "[>]": ("▸", "bold $accent")}


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
        self._items: list[str] = []
        self._compact = True

    def show_list(self, text: str) -> None:
        """Show the list as the `todo` tool prints it; hide it if nothing is left to do."""
        items = [line for line in escape_controls(text).splitlines() if line.startswith("[")]
        self._items = items if any(not item.startswith(_DONE) for item in items) else []
        self.set_class(bool(self._items), "shown")
        self._draw()

    def set_compact(self, *, compact: bool) -> None:
        """Between turns one line is enough."""
        if compact is not self._compact:
            self._compact = compact
            self._draw()

    def _draw(self) -> None:
        if self._items:
            width = max(self.screen.size.width - 4, 8)
            self.update(_content(self._items, width, compact=self._compact))


def todo_progress(text: str) -> str:
    """How much of a list is done, for the header of its card."""
    items = [line for line in text.splitlines() if line.startswith("[")]
    return f"{sum(item.startswith(_DONE) for item in items)} of {len(items)} done" if items else ""


def _content(items: list[str], width: int, *, compact: bool) -> Content:
    """A heading and the items around the current one, or both in a line."""
    done = sum(item.startswith(_DONE) for item in items)
    current = next(
        (index for index, item in enumerate(items) if not item.startswith(_DONE)), len(items)
    )
    heading = f"Todo · {done} of {len(items)} done"
    if compact:
        return Content(fit(f"{heading} · next: {single_line(items[current][4:])}", width))
    first = max(min(current - 1, len(items) - _MAX_LINES), 0)
    shown = items[first : first + _MAX_LINES]
    lines = [Content.styled(heading, "bold")]
    for item in shown:
        mark, style = _STYLES.get(item[:3], ("○", ""))
        lines.append(Content.styled(fit(f"{mark} {single_line(item[4:])}", width), style))
    if hidden := len(items) - first - len(shown):
        lines.append(Content.styled(f"  … {hidden} more", "dim"))
    return Content("\n").join(lines)
