"""The keys, for whoever asks."""

from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

KEYS = (
    ("Enter", "send; while it works: as /busy says"),
    ("Ctrl+J, Shift+Enter, \\ Enter", "new line"),
    ("Ctrl+S, Ctrl+G, Ctrl+N", "meanwhile: interrupt, steer, queue"),
    ("Esc, Ctrl+C", "interrupt; Ctrl+C twice leaves"),
    ("Up, Down", "what was typed before; what waits"),
    ("/ and @", "commands and files; Tab takes one"),
    ("Tab, Shift+Tab", "go to cards, code and questions"),
    ("Enter on a card", "open or close it"),
    ("Ctrl+O", "open or close the last card"),
    ("Ctrl+Y", "copy the last code; on a code block: c"),
    ("PgUp, PgDn, Ctrl+Home/End", "scroll; to the beginning, to the end"),
    ("Ctrl+R", "go back to another session"),
    ("F2", "choose a model"),
    ("Ctrl+T", "dark or light"),
    ("Ctrl+Z", "back to the shell; fg returns"),
    ("Ctrl+D, /quit", "leave"),
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
