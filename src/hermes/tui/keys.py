"""The keys of the chat screen: their list, quitting by a second press, and keys to ignore."""

from math import inf
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen, Screen
from textual.widgets import Static

from hermes.kit.clock import Clock
from hermes.tui.display_text import lost_jobs_text
from hermes.tui.widgets import app_of
from hermes.tui.widgets.prompt import Prompt

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
    ("Ctrl+R", "search the input history"),
    ("Ctrl+V", "paste an image"),
    ("!command", "run it in your shell; the agent sees the output"),
    ("F3", "resume another session"),
    ("F2", "choose a model"),
    ("Ctrl+T", "switch between dark and light"),
    ("Ctrl+Z", "suspend; fg resumes"),
    ("Ctrl+D, /quit", "quit"),
)
QUIT_WINDOW = 3.0
"""Seconds within which the second key press quits."""
JOBS_WINDOW = 10.0
"""Seconds within which a second attempt quits although background tasks are running."""
DEBOUNCE_SECONDS = 1.0
"""Seconds for which keys of a closed question are ignored."""


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
            lines = [Content.assemble((f"{keys:<30}", "bold"), meaning) for keys, meaning in KEYS]
            yield Static(Content("\n").join(lines), markup=False)

    def on_click(self, event: events.Click) -> None:
        self.dismiss(None)


class QuitConfirmation:
    def __init__(self, screen: Screen[None], clock: Clock) -> None:
        self._screen = screen
        self._clock = clock
        self._stopping = False
        self._until = -inf
        self._jobs_until = -inf

    @property
    def pending(self) -> bool:
        """Whether the same key now quits."""
        return self._clock.monotonic() < self._until

    def warn(self, jobs: int) -> None:
        """Announce that another Ctrl+C quits."""
        if self.confirmed(jobs, "Ctrl+C"):
            self._until = self._clock.monotonic() + QUIT_WINDOW
            text = "Press Ctrl+C again to quit (or Ctrl+D, /quit)."
            self._screen.notify(text, timeout=QUIT_WINDOW)

    def confirmed(self, jobs: int, key: str = "Ctrl+D") -> bool:
        """Whether to quit now: the first attempt that would end background tasks only warns."""
        now = self._clock.monotonic()
        if not jobs or now < self._jobs_until:
            return True
        self._until = self._jobs_until = now + JOBS_WINDOW
        text = f"{lost_jobs_text(jobs)} Press {key} again to quit."
        self._screen.notify(text, timeout=JOBS_WINDOW, severity="warning")
        return False

    def stopping(self, *, leaving: bool = False) -> None:
        """Announce that the turn is being stopped."""
        self._stopping = True
        if leaving:
            # If the turn does not stop, the user can still quit.
            self._until = inf
        text = "Stopping. Press Ctrl+C again to quit now." if leaving else "Stopping."
        self._screen.notify(text, timeout=QUIT_WINDOW)

    def stopped(self) -> None:
        """Remove the announcement."""
        if self._stopping:
            self._stopping = False
            if self.pending:
                self._until = self._clock.monotonic() + QUIT_WINDOW
            ui = app_of(self._screen)
            # After the notice itself, which may still be queued.
            ui.call_later(ui.clear_notifications)

    def reset(self) -> None:
        self._until = -inf


class KeyDebounce:
    def __init__(self, prompt: Prompt, clock: Clock) -> None:
        self._prompt = prompt
        self._clock = clock

    def ignore_answers(self, keys: frozenset[str]) -> None:
        """Ignore the keys of a question that just expired."""
        until = self._clock.monotonic() + DEBOUNCE_SECONDS
        self._prompt.ignore(lambda key: key in keys and self._clock.monotonic() < until)

    def ignore_rest(self, word: str) -> None:
        """Ignore the rest of a word whose first letter already decided."""
        until = self._clock.monotonic() + DEBOUNCE_SECONDS
        rest = list(word[1:])

        def ignores(key: str) -> bool:
            if key not in rest or self._clock.monotonic() >= until:
                return False
            del rest[: rest.index(key) + 1]
            return True

        self._prompt.ignore(ignores)
