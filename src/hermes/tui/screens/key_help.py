"""A screen that lists the keys."""

from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

KEYS = (
    ("Enter", "send; during a turn as set by /busy"),
    ("Ctrl+J, Shift+Enter, \\ Enter", "new line"),
    ("Ctrl+S, Ctrl+G, Ctrl+N", "during a turn: interrupt, steer, queue"),
    ("Esc, Ctrl+C", "interrupt; Ctrl+C twice quits"),
    ("Up, Down", "input history; queued messages"),
    ("/ and @", "commands and files; Tab completes"),
    ("Tab, Shift+Tab", "go to cards, code and questions"),
    ("Enter on a card", "open or close it"),
    ("Ctrl+O", "open or close the last card"),
    ("Ctrl+Y", "copy the last code; on a code block: c"),
    ("PgUp, PgDn, Ctrl+Home/End", "scroll; to the start, to the end"),
    ("Ctrl+R", "resume another session"),
    ("F2", "choose a model"),
    ("Ctrl+T", "switch between dark and light"),
    ("Ctrl+Z", "suspend; fg resumes"),
    ("Ctrl+D, /quit", "quit"),
)


class KeyHelp(ModalScreen[None]):
    CSS = """
    KeyHelp { align: center middle; }
    KeyHelp > VerticalScroll {
        width: 90%; max-width: 84; height: auto; max-height: 90%;
        border: round $primary; background: $surface; padding: 0 1;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,ctrl+c,f1,enter,q", "dismiss(None)", show=False)
    ]

    def compose(self) -> ComposeResult:
        with VerticalScroll() as frame:
            frame.border_title = "Keys"
            lines = [Content.assemble((f"{keys:<30}", "bold"), what) for keys, what in KEYS]
            yield Static(Content("\n").join(lines), markup=False)

    def on_click(self, event: events.Click) -> None:
        self.dismiss(None)
