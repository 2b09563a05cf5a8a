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

    def show_list(self, text: str) -> None:
        """Show the list as the `todo` tool prints it; hide it if nothing is left to do."""
        items = [line for line in escape_controls(text).splitlines() if line.startswith("[")]
        left = [item for item in items if not item.startswith(_DONE)]
        self.set_class(bool(left), "shown")
        if left:
            width = max(self.screen.size.width - 4, 8) if self.is_attached else 80
            self.update(_content(items, len(items) - len(left), width))


def todo_progress(text: str) -> str:
    """How much of a list is done, for the header of its card."""
    items = [line for line in text.splitlines() if line.startswith("[")]
    return f"{sum(item.startswith(_DONE) for item in items)} of {len(items)} done" if items else ""


def _content(items: list[str], done: int, width: int) -> Content:
    """A heading and the items around the current one."""
    current = next(
        (index for index, item in enumerate(items) if not item.startswith(_DONE)), len(items)
    )
    first = max(min(current - 1, len(items) - _MAX_LINES), 0)
    shown = items[first : first + _MAX_LINES]
    lines = [Content.styled(f"Todo · {done} of {len(items)} done", "bold")]
    for item in shown:
        mark, style = _STYLES.get(item[:3], ("○", ""))
        lines.append(Content.styled(fit(f"{mark} {single_line(item[4:])}", width), style))
    if hidden := len(items) - first - len(shown):
        lines.append(Content.styled(f"  … {hidden} more", "dim"))
    return Content("\n").join(lines)
